"""The layers of the DGL-style example compute what the built-in programs compute, and learn the same."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

pytest.importorskip("dgl", reason="dgl 1.1.3 needs Python 3.11")

from dacergnn.graph import HeteroGraph
from dacergnn.modules import HGT, RGAT, RGCN
from dacergnn.modules.graph_forward import compiled_forwards
from examples import dgl_style
from tests.frontends.dgl_forward import programs

NODES, EDGES, TYPES, RELATIONS, CHANNELS = 20, 60, 3, 4, 12


def rgcn() -> tuple[nn.Module, nn.Module]:
    ours, built_in = dgl_style.RGCN(CHANNELS, 10, RELATIONS), RGCN(CHANNELS, 10, RELATIONS)
    assert built_in.root is not None
    assert built_in.bias is not None
    ours.linear.W, ours.root, ours.bias = built_in.W, built_in.root, built_in.bias
    return ours, built_in


def rgat() -> tuple[nn.Module, nn.Module]:
    ours, built_in = dgl_style.RGAT(CHANNELS, 5, RELATIONS, heads=2), RGAT(CHANNELS, 5, RELATIONS, heads=2)
    assert built_in.bias is not None
    ours.linear.W, ours.q, ours.k, ours.bias = built_in.W, built_in.q, built_in.k, built_in.bias
    return ours, built_in


def hgt() -> tuple[nn.Module, nn.Module]:
    ours, built_in = dgl_style.HGT(CHANNELS, TYPES, RELATIONS, heads=3), HGT(CHANNELS, TYPES, RELATIONS, heads=3)
    ours.keys.W, ours.queries.W, ours.values.W, ours.out.W = built_in.W_k, built_in.W_q, built_in.W_v, built_in.A
    ours.attention, ours.messages, ours.prior = built_in.W_att, built_in.W_msg, built_in.pri
    ours.skip = built_in.skip
    return ours, built_in


@pytest.mark.parametrize("make", [rgcn, rgat, hgt])
def test_agrees_with_the_built_in_program(make: Any) -> None:
    ours, built_in = [m.double() for m in make()]
    g = dgl_style.typed_graph(NODES, EDGES, TYPES, RELATIONS)
    graph = HeteroGraph.from_dgl(g)
    rest = [graph.from_canonical(graph.pair_mean_weights(torch.float64))] if make is rgcn else []
    x = torch.randn(NODES, CHANNELS, dtype=torch.float64)
    mine, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    found, expected = ours(g, mine, *rest), built_in(theirs, graph)
    torch.testing.assert_close(found, expected)
    weights = torch.randn_like(expected)
    torch.autograd.backward([found, expected], [weights, weights])
    torch.testing.assert_close(mine.grad, theirs.grad)
    (layer,) = compiled_forwards(ours)
    assert layer.core.refusal is None
    assert len(programs(layer)) == 1


@pytest.mark.parametrize("make", [rgcn, rgat, hgt])
def test_learns_as_the_plain_forward_does(make: Any) -> None:
    ours = make()[0].double()
    plain = copy.deepcopy(ours)
    g = dgl_style.typed_graph(NODES, EDGES, TYPES, RELATIONS)
    rest = [torch.rand(EDGES, dtype=torch.float64)] if make is rgcn else []
    x = torch.randn(NODES, CHANNELS, dtype=torch.float64)
    losses: list[list[float]] = []
    for module, forward in ((ours, type(ours).forward), (plain, type(ours).forward.__wrapped__)):
        optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
        losses.append([])
        for _ in range(5):
            optimizer.zero_grad()
            loss = forward(module, g, x, *rest).square().mean()
            loss.backward()
            optimizer.step()
            losses[-1].append(loss.item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-9)
    assert losses[0][-1] < losses[0][0]


def test_runs_as_a_script(capsys: pytest.CaptureFixture[str]) -> None:
    dgl_style.main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["RGCN", "RGAT", "HGT"]
    assert all(float(line.split()[-1]) < 1e-4 for line in lines)
