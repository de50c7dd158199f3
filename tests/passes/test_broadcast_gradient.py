"""The gradient of a value that is broadcast along an axis which is summed afterwards."""

from __future__ import annotations

import numpy as np
import torch

from dacergnn import HeteroGraph, interpret, parse
from dacergnn.sdfg_passes import differentiate

TEXT = """
def layer(g, a: E[2], b: E[2, 3]):
    for e in g.edges():
        e["y"] = sum(e.a + e.b)
    return y
"""


def test_gradient_counts_the_axis():
    graph = HeteroGraph.from_arrays(torch.tensor([[0, 1], [1, 0]]), None, num_nodes=2)
    gradient = differentiate(parse(TEXT), ["a", "b"])
    seed = np.arange(1.0, 5.0).reshape(2, 2)
    arrays = {name: seed for name in gradient.backward.arg_names if name.startswith("grad_y")}
    values = interpret(gradient.backward, graph, **arrays)
    grad_a, grad_b = (values[name] for name in gradient.backward.arg_names[-2:])
    np.testing.assert_allclose(grad_a, 3 * seed)
    np.testing.assert_allclose(grad_b, np.repeat(seed[:, :, None], 3, axis=2))
