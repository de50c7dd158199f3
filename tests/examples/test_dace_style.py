"""Layers written with DaCe compute what the built-in programs do."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import dacergnn
from dacergnn import HeteroGraph
from dacergnn.frontends import programs
from examples import dace_style

generator = torch.Generator().manual_seed(2)
ROWS = {"NS": 30, "E": 120, "R": 3, "T": 2}


def draw(*shape: str | int) -> torch.Tensor:
    sizes = [ROWS[d] if isinstance(d, str) else d for d in shape]
    return torch.randn(sizes, generator=generator, dtype=torch.float64).requires_grad_()


def make_graph() -> HeteroGraph:
    return HeteroGraph.from_arrays(
        torch.randint(29, (2, 120), generator=generator), torch.randint(3, (120,), generator=generator),
        num_nodes=30, num_edge_types=3, node_type=torch.arange(30) % 2, num_node_types=2,
    )  # fmt: skip


SHAPES: dict[str, dict[str, tuple[str | int, ...]]] = {
    "rgcn": {"x": ("NS", 64), "W": ("R", 64, 64), "norm": ("E",), "root": (64, 64), "bias": (64,)},
    "rgat": {"x": ("NS", 64), "W": ("R", 64, 64), "q": (2, 32), "k": (2, 32), "bias": (2, 32)},
    "hgt": {
        "x": ("NS", 64),
        "W_k": ("T", 64, 64),
        "W_q": ("T", 64, 64),
        "W_v": ("T", 64, 64),
        "A": ("T", 64, 64),
        "W_att": ("R", 2, 32, 32),
        "W_msg": ("R", 2, 32, 32),
        "pri": ("R", 2),
        "skip": ("T",),
    },
}
CONSTANTS: dict[str, dict[str, Any]] = {
    "rgcn": {},
    "rgat": {"heads": 2, "channels": 32, "slope": 0.2},
    "hgt": {"heads": 2, "dim": 32, "width": 64, "scale": 32**-0.5},
}


@pytest.mark.parametrize("name", SHAPES)
def test_values_and_gradients(name: str) -> None:
    graph = make_graph()
    arrays = {n: draw(*shape) for n, shape in SHAPES[name].items()}
    found = getattr(dace_style, name)(graph, **arrays)
    expected = dacergnn.compile(**CONSTANTS[name])(getattr(programs, name))(graph, **arrays)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    upstream = torch.randn(found.shape, generator=generator, dtype=torch.float64)
    wrt = list(arrays.values())
    torch.testing.assert_close(
        torch.autograd.grad(found, wrt, upstream), torch.autograd.grad(expected, wrt, upstream), rtol=1e-9, atol=1e-11
    )
