"""Training for real: GCN and GAT on Cora, step by step as with PyG's layers, whatever is saved for the backward."""

from __future__ import annotations

from functools import cache

import pytest
import torch

from benchmarks.questions.accuracy import RECIPES, Task, train
from dacergnn import Config
from dacergnn.errors import DatasetError

EPOCHS = {"gcn": 12, "gat": 4}


FEATURES = ("features",)
NODE = ("score_src", "score_dst")
EDGE = ("used_1", "score")
"""Attention after dropout, and what has the sign that the LeakyReLU goes by."""


@cache
def task() -> Task:
    return Task.load("cora")


@cache
def expected(model: str) -> tuple[list[float], float]:
    return train(task(), RECIPES[model], 0, EPOCHS[model], None)


def nothing_but(*names: str) -> Config:
    return Config(caching="recompute_all", cache=names)


@pytest.fixture(autouse=True)
def data_and_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXXFLAGS", "-O1")
    pytest.importorskip("torch_geometric")
    try:
        task()
    except DatasetError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(
    ("model", "config"),
    [
        *(("gcn", Config(caching=name)) for name in ("cache_all", "papers", "auto", "budget:100000")),
        # Schemes of Cached Operator Reordering, table 3.
        *(("gat", nothing_but(*names)) for names in ((), (*FEATURES, *NODE), (*FEATURES, *EDGE))),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join((value.caching, *value.cache)),
)
def test_losses_are_those_of_pyg_step_by_step(model: str, config: Config) -> None:
    losses, accuracy = train(task(), RECIPES[model], 0, EPOCHS[model], config)
    theirs, their_accuracy = expected(model)
    assert losses == pytest.approx(theirs, rel=1e-4, abs=1e-4)
    assert accuracy == pytest.approx(their_accuracy, abs=0.002)
    assert losses[-1] < losses[0] - 0.01
    assert torch.tensor(losses).isfinite().all()
