"""The edge softmax of the model programs, called more than once in a program."""

from __future__ import annotations

import numpy as np
import torch

from dacergnn import HeteroGraph, interpret, parse
from dacergnn.frontends.programs import edge_softmax


def two_softmaxes(g, a, b):
    for e in g.edges():
        e["p"] = e.a + 0.0
        e["q"] = e.b + 0.0
    edge_softmax(g, "p")
    edge_softmax(g, "q")
    return p, q  # noqa: F821


def softmax(values: np.ndarray, groups: np.ndarray) -> np.ndarray:
    result = np.exp(values)
    for group in np.unique(groups):
        result[groups == group] /= result[groups == group].sum()
    return result


def test_every_call_starts_anew():
    assert callable(edge_softmax)
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(0, 4, (2, 12), generator=generator)
    graph = HeteroGraph.from_arrays(edges, None, num_nodes=5)
    a, b = (torch.randn(12, generator=generator).numpy() for _ in range(2))
    sdfg = parse(two_softmaxes, a="E", b="E")
    values = interpret(sdfg, graph, a=a, b=b)
    p, q = sdfg.arg_names[-2:]
    groups = graph.index("E", "dst").numpy()
    np.testing.assert_allclose(values[p], softmax(a.astype(np.float64), groups), rtol=1e-12)
    np.testing.assert_allclose(values[q], softmax(b.astype(np.float64), groups), rtol=1e-12)
