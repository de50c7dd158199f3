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
    "rgcn": {"x": ("NS", 8), "W": ("R", 8, 8), "norm": ("E",), "root": (8, 8), "bias": (8,)},
    "rgat": {"x": ("NS", 8), "W": ("R", 8, 8), "q": (8,), "k": (8,), "bias": (8,)},
    "hgt": {
        "x": ("NS", 8),
        "W_k": ("T", 8, 8),
        "W_q": ("T", 8, 8),
        "W_v": ("T", 8, 8),
        "A": ("T", 8, 8),
        "W_att": ("R", 8, 8),
        "W_msg": ("R", 8, 8),
        "pri": ("R",),
        "skip": ("T",),
    },
}
CONSTANTS: dict[str, dict[str, Any]] = {
    "rgcn": {},
    "rgat": {"heads": 1, "channels": 8, "slope": 0.2},
    "hgt": {"heads": 1, "dim": 8, "width": 8, "scale": 8**-0.5},
}


@pytest.mark.parametrize("name", SHAPES)
def test_values_and_gradients(name: str) -> None:
    graph = make_graph()
    arrays = {n: draw(*shape) for n, shape in SHAPES[name].items()}
    given = dict(arrays)
    if name == "hgt":  # per edge and per node here, per type in the program
        given["pri"] = arrays["pri"][graph.encoding("idx_E_etype").long()]
        given["skip"] = arrays["skip"][graph.encoding("idx_NS_ntype").long()]
    found = getattr(dace_style, name)(graph, **given)
    builtin = {n: _with_head(name, n, a) for n, a in arrays.items()}
    expected = dacergnn.compile(**CONSTANTS[name])(getattr(programs, name))(graph, **builtin).flatten(1)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    upstream = torch.randn(found.shape, generator=generator, dtype=torch.float64)
    wrt = list(arrays.values())
    torch.testing.assert_close(
        torch.autograd.grad(found, wrt, upstream), torch.autograd.grad(expected, wrt, upstream), rtol=1e-9, atol=1e-11
    )


def _with_head(model: str, name: str, array: torch.Tensor) -> torch.Tensor:
    """An array as the program has it, which knows heads."""
    if (model, name) in (("rgat", "q"), ("rgat", "k"), ("rgat", "bias")):
        return array.view(1, 8)
    return array[:, None] if name in ("W_att", "W_msg", "pri") else array
