"""Forwards whose calls are counted as networks are made of them."""

from __future__ import annotations

from typing import Any

import pytest

from dacergnn.modules.capture.captured_graph import CapturedGraph


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """As many items as calls of captured graphs have been recorded."""
    found: list[int] = []
    original = CapturedGraph._recorded  # pyright: ignore[reportPrivateUsage]

    def counted(self: CapturedGraph, *args: Any) -> Any:
        found.append(1)
        return original(self, *args)

    monkeypatch.setattr(CapturedGraph, "_recorded", counted)
    return found
