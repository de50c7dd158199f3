"""The gradient of a softmax over groups of rows reads what the softmax gives, and nothing that it is made of."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from dacergnn import HeteroGraph, interpret, parse
from dacergnn.program import Program
from dacergnn.sdfg_passes import differentiate
from tests.reference.scatter import scatter_softmax

TEXT = """
def weights(g, s: E[2], kept: E[2]):
    for e in g.edges():
        e["p"] = {power}
    for e in g.edges():
        e.{group}["t"] += {summed}
    for e in g.edges():
        e["y"] = {result}
        e["z"] = {other}
    return {returned}
"""
PLAIN = {
    "power": "exp(tanh(e.s))", "group": "dst", "summed": 'e["p"]', "result": 'e["p"] / e.dst["t"]', "other": "e.kept",
    "returned": "y",
}  # fmt: skip
GROUPS = {"dst": lambda g: g.index("E", "dst"), "dst_pair": lambda g: g.index("E", "etype") * 5 + g.index("E", "dst")}


def differentiated(options: dict[str, str]) -> tuple[set[str], np.ndarray, np.ndarray]:
    """What the backward reads of the forward; the gradient of s for some gradient of y, and what torch says."""
    generator = torch.Generator().manual_seed(0)
    edges, types = torch.randint(0, 4, (2, 12), generator=generator), torch.arange(12) % 2
    graph = HeteroGraph.from_arrays(edges, types, num_nodes=5)
    s, kept, seed = (torch.randn(12, 2, generator=generator, dtype=torch.float64) for _ in range(3))
    gradient = differentiate(parse(TEXT.format(**PLAIN | options)), ["s"])
    forward = interpret(gradient.forward, graph, s=s.numpy(), kept=kept.numpy())
    arrays: dict[str, np.ndarray] = {"s": s.numpy(), "kept": kept.numpy(), **forward}
    arrays["grad_y"] = seed.numpy()
    inputs = {n: arrays[n] if n in arrays else np.zeros_like(arrays[n[5:]]) for n in Program(gradient.backward).inputs}
    found = interpret(gradient.backward, graph, **inputs)[Program(gradient.backward).outputs[0]]
    x = s.clone().requires_grad_()
    groups: Tensor = GROUPS[options.get("group", "dst")](graph).long()
    y = scatter_softmax(x.tanh(), groups, 10) * (kept if "kept" in options.get("result", "") else 1.0)
    (expected,) = torch.autograd.grad(y, x, seed)
    return {*inputs} - {"s", "kept", "grad_y"}, found, expected.numpy()


@pytest.mark.parametrize(
    ("options", "read"),
    [
        ({}, {"y"}),
        ({"group": "dst_pair", "result": 'e["p"] / e.dst_pair["t"]'}, {"y"}),
        ({"result": 'e["p"] / e.dst["t"] * e.kept'}, {"p", "t"}),
        ({"returned": "y, t"}, {"p", "t", "grad_t"}),
        ({"returned": "y, p"}, {"p", "t", "grad_p"}),
        ({"summed": 'e["p"] * 1.0000000001'}, {"p", "t"}),
        ({"power": "exp(tanh(e.s)) * 1.0"}, {"p", "t"}),
        ({"other": 'e["p"] * e.kept', "returned": "y, z"}, {"p", "t", "grad_z"}),
        ({"other": 'e.dst["t"] * e.kept', "returned": "y, z"}, {"p", "t", "grad_z"}),
    ],
    ids=[
        *("nodes", "pairs", "factor", "sum returned", "powers returned", "another sum", "no power"),
        *("powers read", "sum read"),
    ],
)
def test_gradient(options: dict[str, str], read: set[str]) -> None:
    found_read, found, expected = differentiated(options)
    assert found_read == read
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-8)


def test_powers_of_nodes() -> None:
    """Each is a term of several sums, and none receives what it would as the term of one."""
    text = """def weights(g, s: NS):
    for n in g.src_nodes():
        n["p"] = exp(n.s)
    for e in g.edges():
        e.dst["t"] += e.src["p"]
    for e in g.edges():
        e["y"] = e.src["p"] / e.dst["t"]
    return y
"""
    edges = torch.randint(0, 4, (2, 12), generator=torch.Generator().manual_seed(0))
    graph = HeteroGraph.from_arrays(edges, None, num_nodes=5)
    s = torch.linspace(-1, 1, 5, dtype=torch.float64, requires_grad=True)
    seed = torch.linspace(1, 2, 12, dtype=torch.float64)
    y = scatter_softmax(s[graph.index("E", "src").long()], graph.index("E", "dst").long(), 5)
    (expected,) = torch.autograd.grad(y, s, seed)
    gradient = differentiate(parse(text), ["s"])
    forward = interpret(gradient.forward, graph, s=s.detach().numpy())
    arrays = {"s": s.detach().numpy(), "grad_y": seed.numpy(), **forward}
    backward = Program(gradient.backward)
    found = interpret(gradient.backward, graph, **{n: arrays[n] for n in backward.inputs})
    np.testing.assert_allclose(found[backward.outputs[0]], expected.numpy(), rtol=1e-8, atol=1e-8)
