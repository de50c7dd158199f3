"""A small heterogeneous problem, and the same graph as a file."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.relational.experiment import kept
from benchmarks.relational.problem import Problem, make_problem
from dacergnn.bench import scatter

NODES = [9, 14, 7]
RELATIONS = [(0, 1), (1, 0), (1, 2), (2, 2), (2, 0), (1, 1)]
EMPTY = 4


def arrays() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Edges with duplicates, one relation without edges, a node of each type without incoming edges."""
    generator = torch.Generator().manual_seed(3)
    starts = [0, 9, 23]
    parts: list[list[torch.Tensor]] = [[], [], []]
    for etype, (s, d) in enumerate(RELATIONS):
        count = 0 if etype == EMPTY else 40
        parts[0].append(starts[s] + torch.randint(NODES[s], (count,), generator=generator))
        parts[1].append(starts[d] + torch.randint(NODES[d] - 1, (count,), generator=generator))
        parts[2].append(torch.full((count,), etype))
    src, dst, etype = (torch.cat(part) for part in parts)
    return src, dst, etype


@pytest.fixture(scope="session")
def problem() -> Problem:
    src, dst, etype = arrays()
    return make_problem("small", src, dst, etype, NODES, len(RELATIONS), hidden=16)


@pytest.fixture
def steady(monkeypatch: pytest.MonkeyPatch) -> None:
    """No runs scatter, however busy the machine is."""
    monkeypatch.setattr(scatter, "LIMIT", math.inf)


@pytest.fixture
def data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which the small graph goes by the name aifb, and an empty cache."""
    src, dst, etype = (part.numpy() for part in arrays())
    np.savez(
        tmp_path / "aifb.npz",
        num_nodes_per_type=np.array(NODES),
        node_type_names=np.array(["a", "b", "c"]),
        edge_type_names=np.array([f"{'abc'[s]}:r{i}:{'abc'[d]}" for i, (s, d) in enumerate(RELATIONS)]),
        src=src.astype("int32"),
        dst=dst.astype("int32"),
        etype=etype.astype("int16"),
    )
    kept.cache_clear()
    monkeypatch.setenv("DACERGNN_DATA", str(tmp_path))
    monkeypatch.setenv("DACERGNN_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path
