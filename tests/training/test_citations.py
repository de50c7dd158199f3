"""Training for real: GCN on Cora, step by step as with PyG's layers, whatever is saved for the backward."""

from __future__ import annotations

from functools import cache

import pytest
import torch

from benchmarks.accuracy import RECIPES, Task, train
from dacergnn import Config
from dacergnn.errors import DatasetError
from tests.support.quick_builds import quick

EPOCHS = 12


@cache
def task() -> Task:
    return Task.load("cora")


@cache
def expected() -> tuple[list[float], float]:
    return train(task(), RECIPES["gcn"], 0, EPOCHS, None)


@pytest.fixture(autouse=True)
def data_and_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXXFLAGS", quick("-O1"))
    pytest.importorskip("torch_geometric")
    try:
        task()
    except DatasetError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("caching", ["cache_all", "recompute_all", "papers", "auto", "budget:100000"])
def test_losses_are_those_of_pyg_step_by_step(caching: str) -> None:
    losses, accuracy = train(task(), RECIPES["gcn"], 0, EPOCHS, Config(caching=caching))
    theirs, their_accuracy = expected()
    assert losses == pytest.approx(theirs, rel=1e-4, abs=1e-4)
    assert accuracy == pytest.approx(their_accuracy, abs=0.002)
    assert losses[-1] < losses[0] - 0.05
    assert torch.tensor(losses).isfinite().all()
