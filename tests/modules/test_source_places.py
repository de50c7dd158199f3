"""Nodes of saved SDFGs lead to the lines that they come from, as viewers need it to go to the source."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import dace
import dgl
import pytest
import torch
from dgl import function as fn
from torch import Tensor, nn
from torch_geometric import nn as pyg
from torch_geometric.utils import softmax

import dacergnn
from dacergnn.frontends.dace_program.source import program_text
from dacergnn.library_nodes import GraphOperator
from dacergnn.modules.graph_forward import compiled_forwards
from dacergnn.program import parse
from examples import attention
from tests.frontends import dace_layers
from tests.modules import functions
from tests.modules.functions import GRAPH, draw, rgat, scaled
from tests.modules.layers import weighted
from tests.modules.loaded_sdfgs import change, optimized

X, EDGES = (12, 8), torch.randint(12, (2, 40), generator=torch.Generator().manual_seed(1))


class Attention(pyg.MessagePassing):
    def __init__(self) -> None:
        super().__init__(aggr="sum")
        self.lin = nn.Linear(8, 8)
        self.att = nn.Parameter(torch.ones(8))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=self.lin(x))

    def message(self, x_i: Tensor, x_j: Tensor, index: Tensor) -> Tensor:
        score = nn.functional.leaky_relu((x_i * x_j * self.att).sum(-1), 0.2)
        score = softmax(score, index)
        return score.unsqueeze(-1) * x_j


class Difference(nn.Module):
    def differ(self, edges: Any) -> dict[str, Tensor]:
        return {"m": torch.tanh(edges.src["h"] - edges.dst["h"])}

    def forward(self, g: Any, x: Tensor) -> Tensor:
        with g.local_scope():
            g.ndata["h"] = x
            g.update_all(self.differ, fn.sum("m", "h"))
            return g.ndata["h"]


def line_of(element: Any) -> tuple[str, str]:
    """File and line that an element of an SDFG comes from."""
    info = element.debuginfo
    assert info is not None, element
    return info.filename, Path(info.filename).read_text().splitlines()[info.start_line - 1].strip()


def operators(path: Path) -> dict[str, Any]:
    """The operators of a saved SDFG by the array that they write last."""
    nodes = [node for state in dace.SDFG.from_file(str(path)).states() for node in state.nodes()]
    return {node.name: node for node in nodes if isinstance(node, GraphOperator)}


def lines(path: Path, file: str = functions.__file__) -> dict[str, str]:
    """The lines of a file from which the operators of a saved SDFG come, by the array that they write last."""
    found = {name: line_of(node) for name, node in operators(path).items()}
    assert {own for own, _ in found.values()} == {file}
    return {name: line for name, (_, line) in found.items()}


def save_function(folder: Path) -> list[Path]:
    width = X[1]
    inputs = [draw(GRAPH.size("NS"), width), draw(GRAPH.size("R"), width, width), draw(width)]
    weighted(scaled(GRAPH, *inputs)).backward()
    return scaled.save_sdfg(folder)


def test_operators_of_functions(tmp_path: Path) -> None:
    paths = save_function(tmp_path)
    first = lines(paths[0])
    assert first["message"] == 'e["message"] = linear(e.src.x, W[e.etype])'
    assert first["att"] == 'e["att"] = leakyrelu('
    assert first["out"] == 'n["out"] = sum(exp(e["att"]) * e["message"] for e in n.incoming_edges())'
    texts = set(first.values())
    assert all(set(lines(path).values()) <= texts for path in paths)


def test_gradients_come_from_the_lines_that_they_are_gradients_of(tmp_path: Path) -> None:
    paths = save_function(tmp_path)
    (path,) = [p for p in paths if p.name.endswith("_differentiate_backward.sdfg")]
    found = lines(path)
    assert found["grad_q"] == 'e["att"] = leakyrelu('
    assert found["grad_W"] == 'e["message"] = linear(e.src.x, W[e.etype])'
    assert found["grad_att"].startswith('n["out"] = sum(exp(e["att"])')


def test_fused_operators_know_the_lines_of_all_statements(tmp_path: Path) -> None:
    *_, forward, _ = save_function(tmp_path)
    fused = operators(forward)["factor"]
    assert len(fused.places) == len(fused.body) > 1
    numbers = [statement.place.line for statement in fused.statements]
    source, start = inspect.getsourcelines(scaled.user.source)
    texts = [source[number - start] for number in numbers]
    assert [any(word in text for text in texts) for word in ("leakyrelu", "exp(")] == [True, True]
    assert fused.label == "factor: linear, dot_prd, leakyrelu, exp  [U]"


def test_arrays_and_their_nodes(tmp_path: Path) -> None:
    first, *_ = save_function(tmp_path)
    sdfg = dace.SDFG.from_file(str(first))
    (state,) = sdfg.states()
    accesses = {node.data: node for node in state.data_nodes()}
    assert line_of(accesses["att"]) == line_of(sdfg.arrays["att"]) == (functions.__file__, 'e["att"] = leakyrelu(')
    assert line_of(accesses["q"]) == line_of(sdfg.arrays["q"]) == (functions.__file__, "def scaled(g, x, W, q):")


def test_helpers_in_other_files(tmp_path: Path) -> None:
    heads = draw(2, 4)
    inputs = [draw(GRAPH.size("NS"), 8), draw(GRAPH.size("R"), 8, 8), heads, heads, draw(2, 4)]
    rgat(GRAPH, *inputs)
    first = operators(rgat.save_sdfg(tmp_path)[0])
    file, line = line_of(first["total"])
    assert (file, "total" in line) == (attention.__file__, True)


def test_layers_of_users(tmp_path: Path) -> None:
    layer = dacergnn.optimize(Attention())
    layer(torch.randn(*X, requires_grad=True), EDGES).sum().backward()
    paths = layer.save_sdfg(tmp_path)
    assert set(lines(paths[0], __file__).values()) == {
        "return self.propagate(edge_index, x=self.lin(x))",
        "score = nn.functional.leaky_relu((x_i * x_j * self.att).sum(-1), 0.2)",
        "score = softmax(score, index)",
        "return score.unsqueeze(-1) * x_j",
    }
    assert all(lines(path, __file__) for path in paths)


def test_functions_of_dgl_users(tmp_path: Path) -> None:
    layer = dacergnn.compile(Difference())
    layer(dgl.graph((EDGES[0], EDGES[1]), num_nodes=X[0]), torch.randn(*X, requires_grad=True)).sum().backward()
    (forward,) = compiled_forwards(layer)
    *_, last, _ = forward.core.save_sdfg(tmp_path)
    (node,) = operators(last).values()
    lines = {Path(__file__).read_text().splitlines()[s.place.line - 1].strip() for s in node.statements}
    assert 'return {"m": torch.tanh(edges.src["h"] - edges.dst["h"])}' in lines


def test_layers_of_the_library_without_code_of_users(tmp_path: Path) -> None:
    """A traced one leads to the library; one whose program is made as a text, to its message."""
    traced = dacergnn.optimize(pyg.ClusterGCNConv(8, 8))
    made = dacergnn.optimize(pyg.EdgeConv(nn.Linear(16, 8)))
    for layer, module in ((traced, "cluster_gcn_conv.py"), (made, "edge_conv.py")):
        layer(torch.randn(*X), EDGES)
        found = {Path(line_of(o)[0]).name for o in operators(layer.save_sdfg(tmp_path / module)[-1]).values()}
        assert module in found
    first = operators(made.save_sdfg(tmp_path)[0])
    assert {line_of(o)[1] for o in first.values()} == {"def message(self, x_i: Tensor, x_j: Tensor) -> Tensor:"}


def test_programs_of_dace() -> None:
    sdfg = parse(program_text(dace_layers.attention))
    (state,) = sdfg.states()
    found = [line_of(node) for node in state.nodes() if isinstance(node, GraphOperator)]
    assert {file for file, _ in found} == {dace_layers.__file__}
    source = inspect.getsource(dace_layers.attention.f)
    assert found
    assert all(line in source for _, line in found)


@pytest.mark.parametrize("places", [[], ["one.py:1:1", "two.py:2:2"]])
def test_edited_sdfgs_load_without_the_right_places(places: list[str], tmp_path: Path) -> None:
    layer = optimized()
    *_, forward, _ = layer.save_sdfg(tmp_path)
    assert all(len(node.places) == len(node.body) == 1 for node in operators(forward).values())

    def edit(sdfg: dace.SDFG, nodes: dict[str, Any]) -> None:
        for node in nodes.values():
            node.places = places

    change(tmp_path, edit)
    assert layer.load_sdfg(tmp_path)
