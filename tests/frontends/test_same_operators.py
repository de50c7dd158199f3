"""RGCN and RGAT compile to the same kernels, whichever front end they are written for."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from dacergnn import HeteroGraph
from dacergnn.modules import RGAT, RGCN
from dacergnn.program import Program
from examples import dace_style

dgl: Any = pytest.importorskip("dgl", reason="dgl 1.1.3 needs Python 3.11")
from dacergnn.modules.graph_forward import compiled_forwards  # noqa: E402
from examples import dgl_style  # noqa: E402

NODES, EDGES, RELATIONS = 30, 120, 3


def operators(layer: Any) -> list[tuple[str, str, str]]:
    """Kind, mapping and result of the operators of the last call's program; the result by its row space and size."""
    compiled, _ = layer.last_call
    program = Program(compiled.variants[-1].plan.steps[-2].sdfgs["forward"])
    found: list[tuple[str, str, str]] = []
    for operator in program.operators:
        shapes = [f"{program.space(n)}[{torch.Size(program.shape(n)).numel()}]" for n in operator.written_arrays]
        found.append((type(operator).__name__, operator.space, " ".join(sorted(shapes))))
    return found


@pytest.fixture(scope="module")
def graphs() -> tuple[Any, HeteroGraph]:
    generator = torch.Generator().manual_seed(3)
    ends = torch.randint(NODES - 1, (2, EDGES), generator=generator)
    graph = dgl.graph((ends[0], ends[1]), num_nodes=NODES)
    graph.edata[dgl.ETYPE] = torch.randint(RELATIONS, (EDGES,), generator=generator)
    types = graph.edata[dgl.ETYPE]
    return graph, HeteroGraph.from_arrays(ends, types, num_nodes=NODES, num_edge_types=RELATIONS)


@pytest.mark.parametrize("model", ["rgcn", "rgat"])
def test_kernels(model: str, graphs: tuple[Any, HeteroGraph]) -> None:
    of_dgl, graph = graphs
    x, norm = torch.randn(NODES, 8), torch.rand(EDGES)
    with torch.no_grad():
        if model == "rgcn":
            builtin, written = RGCN(8, 8, RELATIONS), dgl_style.RGCN(8, 8, RELATIONS)
            written(of_dgl, x, norm)
            arrays = [builtin.W, norm, builtin.root, builtin.bias]
        else:
            builtin, written = RGAT(8, 8, RELATIONS), dgl_style.RGAT(8, 8, RELATIONS)
            written(of_dgl, x)
            arrays = [builtin.W, builtin.q[0], builtin.k[0], builtin.bias[0]]
        builtin(x, graph)
        layer = getattr(dace_style, model)
        layer(graph, x.double(), *[a.double() for a in arrays])
    expected = operators(builtin)
    assert len(expected) in (2, 3)
    assert operators(compiled_forwards(written)[0]) == expected
    assert operators(layer) == expected
