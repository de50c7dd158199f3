"""Programs of torch.export carry compiled programs: they run in processes that never saw the layer."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import dacergnn
from dacergnn import HeteroGraph, UnsupportedCallError
from dacergnn.deploy.capture import dynamic_shapes
from dacergnn.modules import HGT, RGAT
from dacergnn.modules.exported import ExportedProgramText, program_operator
from tests.deploy.networks import assert_equal, leaves, trained
from tests.modules.functions import scaled

pytestmark = pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec.*:FutureWarning")
_RUN = """
import torch, dacergnn
model = dacergnn.load_exported("program.pt2").module()
with torch.no_grad():
    results = [torch.utils._pytree.tree_leaves(model(*call)) for call in torch.load("calls.pt")]
torch.save(results, "results.pt")
"""


def _exported(model: nn.Module, arguments: tuple[Any, ...]) -> torch.export.ExportedProgram:
    return torch.export.export(model, arguments, dynamic_shapes=tuple(map(dynamic_shapes, arguments)))


def _texts(program: torch.export.ExportedProgram) -> list[str]:
    return [str(n.args[-1]) for n in program.graph.nodes if n.target is torch.ops.dacergnn.program.default]


@pytest.mark.parametrize("name", ["HGT", "HeteroConv-GATv2", "RGCN", "GCN", "SAGE-max"])
def test_results_are_those_of_the_model(name: str) -> None:
    network = trained(name)
    model = dacergnn.optimize(network.model)
    calls = [network.arguments(*sizes, seed) for seed, sizes in enumerate([(40, 120), (7, 9), (1, 1), (0, 0)])]
    program = _exported(model, calls[0])
    assert "dacergnn.layer" not in str(program.graph)
    with torch.no_grad():
        for call in calls:
            assert_equal(leaves(program.module()(*call)), leaves(model(*call)))


@pytest.mark.compiled
def test_another_process_runs_the_programs(tmp_path: Path) -> None:
    """It takes more than ten seconds, as a network is compiled and another process imports all that it needs."""
    network = trained("HeteroConv-GAT-SAGE")
    model = dacergnn.optimize(network.model)
    calls = [network.arguments(*sizes, seed) for seed, sizes in enumerate([(40, 120), (7, 9)])]
    with torch.no_grad():
        expected = [leaves(model(*call)) for call in calls]
    torch.export.save(_exported(model, calls[0]), tmp_path / "program.pt2")
    torch.save(calls, tmp_path / "calls.pt")
    subprocess.run([sys.executable, "-c", _RUN], check=True, cwd=tmp_path)
    for results, wanted in zip(torch.load(tmp_path / "results.pt"), expected, strict=True):
        assert_equal(results, wanted)


def test_the_layer_may_be_gone() -> None:
    network = trained("GCN")
    model, arguments = dacergnn.optimize(network.model), network.arguments(20, 60)
    with torch.no_grad():
        expected = leaves(model(*arguments))
    program = _exported(model, arguments)
    del model, network
    gc.collect()
    assert_equal(leaves(program.module()(*arguments)), expected)


def test_gradients_of_a_program_are_those_of_the_model() -> None:
    network = trained("RGAT")
    model, (x, *rest) = dacergnn.optimize(network.model), network.arguments(20, 60)
    program = _exported(model, (x, *rest)).module()
    gradients: list[dict[str, Tensor]] = []
    for module in (model, program):
        module.zero_grad()
        own = x.clone().requires_grad_()
        sum(t.square().sum() for t in leaves(module(own, *rest))).backward()  # type: ignore[union-attr]
        assert own.grad is not None
        gradients.append({"x": own.grad, **{n: p.grad for n, p in module.named_parameters() if p.grad is not None}})
    assert gradients[0].keys() == gradients[1].keys()
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], gradient)


def test_the_operator_fits_torch() -> None:
    network = trained("RGCN")
    model, arguments = dacergnn.optimize(network.model), network.arguments(12, 30)
    program = _exported(model, arguments)
    calls: list[Any] = []

    class Note(torch.fx.Interpreter):
        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            if target is torch.ops.dacergnn.program.default:
                calls.append(args)
            return super().call_function(target, args, kwargs)

    Note(program.module()).run(*leaves(arguments))
    *graph, arrays, text = calls[0]
    arrays = [array.detach().requires_grad_() for array in arrays]
    torch.library.opcheck(program_operator, (*graph, arrays, text))


def test_a_text_of_another_compiler_or_format() -> None:
    network = trained("GCN")
    model, arguments = dacergnn.optimize(network.model), network.arguments(12, 30)
    model(*arguments)
    fields = json.loads(_texts(_exported(model, arguments))[0])
    assert {"program", "plan", "compiler", "version", "dtype", "implementation"} <= fields.keys()
    other = ExportedProgramText.from_json(json.dumps({**fields, "compiler": "another"})).compiled()
    assert other.config.plan is None  # makes its own choices
    with pytest.raises(UnsupportedCallError, match=r"written by dacergnn 9\.0 in format 99, but dacergnn .* reads"):
        ExportedProgramText.from_json(json.dumps({**fields, "format": 99, "version": "9.0"}))


class Scaled(nn.Module):
    """Calls a compiled function whose parameters it has."""

    def __init__(self) -> None:
        super().__init__()
        self.function = scaled.module(num_edge_types=9, W=(8, 8), q=8)

    def forward(self, x: Tensor, graph: HeteroGraph) -> Tensor:
        return self.function(graph, x)


OWN = {"RGAT": lambda: RGAT(8, 8, 9), "HGT": lambda: HGT(8, 3, 9, heads=2), "function": Scaled}


@pytest.mark.parametrize("kind", OWN)
def test_graphs_are_arguments(kind: str, tmp_path: Path) -> None:
    layer = OWN[kind]()

    def arguments(nodes: int, edges: int) -> tuple[Tensor, HeteroGraph]:
        types, pairs = torch.arange(nodes) * 3 // nodes, torch.randint(nodes, (2, edges))
        relations = types[pairs[0]] * 3 + types[pairs[1]]
        options: dict[str, Any] = {"node_type": types, "num_node_types": 3} if kind == "HGT" else {}
        return torch.randn(nodes, 8), HeteroGraph.from_arrays(
            pairs, relations, num_nodes=nodes, num_edge_types=9, **options
        )

    program = _exported(layer, arguments(30, 90))
    torch.export.save(program, tmp_path / "program.pt2")
    for own in (program, dacergnn.load_exported(tmp_path / "program.pt2")):
        for sizes in ((30, 90), (9, 20)):
            call = arguments(*sizes)
            with torch.no_grad():
                torch.testing.assert_close(own.module()(*call), layer(*call))


def test_a_graph_whose_relations_join_several_types_is_refused() -> None:
    layer = HGT(8, 2, 1)

    def graph(types: list[int]) -> HeteroGraph:
        pairs = torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
        return HeteroGraph.from_arrays(pairs, None, num_nodes=4, node_type=torch.tensor(types), num_node_types=2)

    x = torch.randn(4, 8)
    program = torch.export.export(layer, (x, graph([0, 0, 0, 0]))).module()
    mixed = graph([0, 0, 1, 1])
    with pytest.raises((UnsupportedCallError, ValueError)):
        program(x, mixed)


def test_indices_are_checked_when_a_program_runs() -> None:
    network = trained("HGT")
    model, arguments = dacergnn.optimize(network.model), network.arguments(30, 90)
    program = _exported(model, arguments).module()
    arguments[1]["author", "writes", "paper"][0, 0] = 30
    with pytest.raises(dacergnn.GraphError, match=r"writes.*30"):
        program(*arguments)


def test_layers_without_a_front_end_run_as_operations_of_torch() -> None:
    from torch_geometric.nn import GraphConv

    model = dacergnn.optimize(GraphConv(8, 4))
    arguments = torch.randn(10, 8), torch.randint(10, (2, 30))
    with pytest.warns(UserWarning, match="GraphConv runs uncompiled: torch.export takes compiled layers that have"):
        program = _exported(model, arguments)
    torch.testing.assert_close(program.module()(*arguments), model(*arguments))
