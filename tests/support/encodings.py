"""Steps of models whose graphs come encoded, and how much is encoded in a test."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dacergnn.graph.encodings import Encodings
from dacergnn.modules.graphs import GraphCache


def assert_same_step(models: Sequence[nn.Module], results: Sequence[Tensor]) -> None:
    """Results of a model and of its original, and gradients of their parameters, are the same."""
    torch.testing.assert_close(*results)
    for model, result in zip(models, results, strict=True):
        model.zero_grad()
        result.square().sum().backward()
    for mine, theirs in zip(*(model.parameters() for model in models), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad)


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
