"""Counts how much is encoded in a test."""

from __future__ import annotations

from typing import Any

import pytest

from dacergnn.graph.encodings import Encodings
from dacergnn.modules.graphs import GraphCache


def count_encodings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Returns a list of one number: how often a graph or what is read of it has been encoded since, in this process."""
    counts = [0]

    def count(owner: Any, method: str) -> None:
        plain = getattr(owner, method)

        def counted(self: Any, *args: Any) -> Any:
            counts[0] += 1
            return plain(self, *args)

        monkeypatch.setattr(owner, method, counted)

    count(GraphCache, "encode")
    count(Encodings, "_build")
    return counts
