"""Models of several steps: lists, sequences, PyG's models, and functions of rows before, between and behind layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import dacergnn
from tests.layerwise.samples import (
    BATCHES,
    EDGE_ARRAYS,
    K,
    M,
    N,
    R,
    assert_same,
    draw,
    drawn,
    edges,
    pyg,
)

MODELS: dict[str, Callable[[], Any]] = {
    "PyG Sequential": lambda: pyg().Sequential(
        "x, edge_index",
        [
            (nn.Linear(K, M), "x -> x"),
            nn.Tanh(),
            (pyg().SAGEConv(M, M), "x, edge_index -> h"),
            nn.ReLU(),
            nn.Sequential(nn.Linear(M, M), nn.ReLU()),
            (pyg().GATConv(M, 4, heads=2), "h, edge_index -> h"),
        ],
    ),
    "GraphSAGE": lambda: pyg().GraphSAGE(K, M, num_layers=3),
    "GraphSAGE-last": lambda: pyg().GraphSAGE(K, M, num_layers=2, out_channels=3, jk="last", norm="batch_norm"),
    "GAT-act-first": lambda: pyg().GAT(K, M, num_layers=2, heads=2, act="elu", act_first=True, norm="layer_norm",
                                       norm_kwargs={"mode": "node"}),
    "GIN-dropout": lambda: pyg().GIN(K, M, num_layers=2, dropout=0.5),
}  # fmt: skip


@pytest.mark.parametrize("compiled", [False, True], ids=["original", "compiled"])
@pytest.mark.parametrize("name", MODELS)
def test_whole_model(name: str, *, compiled: bool) -> None:
    model, x, index = drawn(MODELS[name]()), draw(N, K), edges()
    with torch.no_grad():
        expected = model(x, index)
    model = dacergnn.optimize(model, on_unsupported="error") if compiled else model
    for batch in BATCHES if name == "PyG Sequential" else (7,):  # each call is captured
        assert_same(dacergnn.inference(model, index, x, batch=batch), expected)


def parts() -> tuple[Any, ...]:
    convs = [pyg().RGCNConv(M, M, R), pyg().GraphConv(M, M)]
    lines = [nn.Linear(K, M), nn.LayerNorm(M), nn.Linear(M, 3)]
    return tuple(drawn(module) for module in (*convs, *lines))


def test_list_with_functions_and_edge_arrays() -> None:
    """Each layer gets the arrays that its forward names."""
    rgcn, conv, first, norm, last = parts()
    x, index = draw(N, K), edges()
    kind, weight = EDGE_ARRAYS["edge_type"], EDGE_ARRAYS["edge_weight"]
    model = [first, F.relu, rgcn, torch.relu, nn.Sequential(norm).eval(), conv, lambda rows: rows * 2, last]
    with torch.no_grad():
        expected = last(conv(norm(rgcn(first(x).relu(), index, kind).relu()), index, weight) * 2)
    for batch in BATCHES:
        found = dacergnn.inference(model, index, x, batch=batch, edge_type=kind, edge_weight=weight)
        assert_same(found, expected)


@pytest.mark.parametrize("container", [list, tuple, nn.ModuleList, lambda parts: nn.Sequential(*parts)],
                         ids=["list", "tuple", "ModuleList", "Sequential"])  # fmt: skip
def test_containers(container: Callable[[list[nn.Module]], Any]) -> None:
    one, other, x, index = drawn(pyg().SAGEConv(K, M)), drawn(pyg().SAGEConv(M, M)), draw(N, K), edges()
    model = container([one, nn.ReLU().eval(), other])
    model = model.eval() if isinstance(model, nn.Module) else model
    with torch.no_grad():
        assert_same(dacergnn.inference(model, index, x, batch=4), other(one(x, index).relu(), index))


def test_names_of_a_pyg_sequential_pass_by_position() -> None:
    model = drawn(
        pyg().Sequential("x, edge_index, kinds", [(pyg().RGCNConv(K, M, R), "x, edge_index, kinds -> x"), nn.ReLU()])
    )
    x, index, kinds = draw(N, K), edges(), EDGE_ARRAYS["edge_type"]
    with torch.no_grad():
        expected = model(x, index, kinds)
    for batch in BATCHES:
        assert_same(dacergnn.inference(model, index, x, batch=batch, kinds=kinds), expected)


def test_functions_of_rows_alone() -> None:
    table = drawn(nn.Embedding(9, M))
    numbers = torch.arange(N) % 9
    found = dacergnn.inference([table, torch.relu], edges(), numbers, batch=4)
    assert_same(found, table(numbers).relu().detach())
