"""The operators of exported models in C++ give what Python's give, and refuse bad calls with a sentence."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch_geometric.nn import GATConv, GCNConv, GINConv, RGCNConv, SAGEConv

import dacergnn
from dacergnn.deploy.capture import capture
from dacergnn.deploy.package import build_operators, share_calls
from dacergnn.deploy.processors import processor
from tests.deploy.packaged import SIZES, TwoLayers, batch, hgt, without_package

HERE = Path(__file__).parent
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")


class Recorder(TorchDispatchMode):
    """Keeps the calls of our operators and their results."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[dict[str, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func.namespace == "dacergnn":
            name = func._schema.name.partition("::")[2]
            self.calls.append({"name": name, "args": args, "result": result, "error": None})
        return result


def edges(nodes: int, count: int) -> torch.Tensor:
    return torch.randint(nodes, (2, count), generator=torch.Generator().manual_seed(nodes))


class Typed(nn.Module):
    """Calls a layer that takes types of edges."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = RGCNConv(8, 4, 3)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor, edge_type: torch.Tensor) -> torch.Tensor:
        return self.layer(x, edge_index, edge_type)


def recorded(model: nn.Module, example: Any, *others: Any) -> tuple[torch.export.ExportedProgram, list[dict[str, Any]]]:
    """Returns an exported model, and the calls of operators in its calls."""
    program = capture(dacergnn.optimize(model).eval(), example)
    share_calls(program.graph)
    module = program.module()
    with torch.no_grad(), Recorder() as recorder:
        for args in (example, *others):
            module(*args)
    return program, recorder.calls


def test_operators_give_what_python_gives_and_refuse_bad_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replays calls in a process without Python's operators. It takes half a minute, as g++ reads torch's headers."""
    torch.manual_seed(1)
    x, other = torch.randn(12, 8), torch.randn(9, 8)
    plain = [(x, edges(12, 40)), (other, edges(9, 0)), (torch.randn(0, 8), torch.zeros(2, 0, dtype=torch.int64))]
    typed = [(*args, torch.arange(args[1].size(1)) % 3) for args in plain[:2]]
    programs = [
        recorded(GCNConv(8, 4), *plain), recorded(GATConv(8, 4, heads=2), *plain[:2]), recorded(Typed(), *typed),
    ]  # fmt: skip
    calls = [call for _, own in programs for call in own]
    assert {call["name"] for call in calls} == {"edges", "with_loops", "edge_weights", "program"}
    libraries = [tmp_path / "libfirst.so", tmp_path / "libsecond.so"]  # the one loaded first runs programs of the other
    native = processor("native")
    kind = replace(native, command=(*native.command, "-O0"))  # what packages have is optimized
    monkeypatch.setattr("dacergnn.deploy.package.processor", lambda _: kind)
    build_operators([programs[0][0]], libraries[0])
    build_operators([program for program, _ in programs[1:]], libraries[1])
    torch.save(
        [*calls, *bad_calls(next(call["args"] for call in calls if call["name"] == "program"))], tmp_path / "calls.pt"
    )
    package = Path(dacergnn.__file__).parent.parent
    run = without_package(HERE / "replay.py", "operators", tmp_path / "calls.pt", package, *libraries, cwd=tmp_path)
    assert run.returncode == 0, run.stderr


def bad_calls(known: Any) -> list[dict[str, Any]]:
    """Returns calls with what is said of each; ``known`` are the arguments of a program."""
    index, sizes = edges(5, 6), [5, 5, 1, 1, 0]
    own, *own_types, own_sizes, arrays, text = known
    outside = own.clone()
    outside[0, 0] = 12
    backwards = own.flip(1)
    bad: list[tuple[str, tuple[Any, ...], str]] = [
        ("edges", (index, None, 3, 5, 1, True), "out of range; there are 3 such nodes"),
        ("edges", (index, None, 5, 6, 1, False), "there are 6 destinations"),
        ("edges", (index.float(), None, 5, 5, 1, False), "edge_index must hold int32 or int64"),
        ("edges", (index[:1], None, 5, 5, 1, False), "edges are a tensor [2, E]"),
        ("edges", (index, torch.full((6,), 7), 5, 5, 3, False), "type 7 of edge 0"),
        ("edges", (index, torch.zeros(5), 5, 5, 3, False), "edge_type must hold"),
        ("edges", (index, torch.zeros(5, dtype=torch.int64), 5, 5, 3, False), "5 types of 6 edges"),
        ("edges", (index, None, -5, 5, 1, True), "there are -5 sources"),
        ("typed_edges", ([index], [0], [0, 0], [2], 2, 1, "cites"), "cites: source"),
        ("typed_edges", ([index], [0], [0, 1], [5], 5, 1, "cites"), "joins types 0 and 1"),
        ("typed_edges", ([index], [4], [0, 0], [5], 5, 1, "cites"), "relation 4"),
        ("typed_edges", ([index], [0], [0, 0], [5], 2, 1, "cites"), "is no destination"),
        ("typed_edges", ([index], [0], [0], [5], 5, 1, "cites"), "1 ends"),
        ("node_types", ([3, -1], index), "there are -1 nodes"),
        ("with_loops", (index, 6, 5, 5), "6 nodes cannot get self loops"),
        ("with_loops", (index, 2, 2, 2), "out of range"),
        ("edge_weights", (index, sizes, "symmetric", torch.float32), "a tensor [4, E]"),
        ("edge_weights", (own, own_sizes[:3], "symmetric", torch.float32), "5 sizes, not 3"),
        ("edge_weights", (own, own_sizes, "other", torch.float32), "no weights other"),
        ("edge_weights", (own, own_sizes, "symmetric", torch.float16), "float32 or float64"),
        ("program", (own, *own_types, own_sizes, arrays, "{}"), "Load the library that was written with the model"),
        ("program", (own, *own_types, own_sizes[:4], arrays, text), "a graph has 5 sizes"),
        ("program", (outside, *own_types, own_sizes, arrays, text), "an end or a type out of range"),
        ("program", (backwards, *own_types, own_sizes, arrays, text), "not sorted"),
        ("program", (own.long(), *own_types, own_sizes, arrays, text), "int32"),
        ("program", (own, *own_types, own_sizes, arrays[:1], text), "arrays, not 1"),
        ("program", (own, *own_types, own_sizes, [a[:1] for a in arrays], text), "and the graph asks for"),
        ("program", (own, *own_types, own_sizes, [a.double() for a in arrays], text), "other elements"),
    ]  # fmt: skip
    return [{"name": name, "args": args, "result": None, "error": words} for name, args, words in bad]


def test_equal_calls_are_one() -> None:
    program = capture(dacergnn.optimize(TwoLayers(hgt)).eval(), batch(*SIZES[0]))
    sort = torch.ops.dacergnn.typed_edges.default
    assert len(program.graph.find_nodes(op="call_function", target=sort)) == 2
    share_calls(program.graph)
    assert len(program.graph.find_nodes(op="call_function", target=sort)) == 1


class Shared(nn.Module):
    """Has an activation, and a network, in several places."""

    def __init__(self) -> None:
        super().__init__()
        self.act = nn.ReLU()
        self.network = nn.Sequential(nn.Linear(6, 6), self.act)
        self.first, self.second = GINConv(self.network), SAGEConv(6, 6)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return self.network(self.second(self.act(self.first(x, edge_index)), edge_index))


def test_modules_in_several_places() -> None:
    model = Shared().eval()
    fast: Any = dacergnn.optimize(model)
    x, index = torch.randn(20, 6), edges(20, 70)
    program: Any = capture(fast, (x, index))
    programs = [node for node in program.graph.nodes if node.target is torch.ops.dacergnn.program.default]
    assert len(programs) == 2
    torch.testing.assert_close(program.module()(x, index), model(x, index), rtol=1e-4, atol=1e-5)
    assert fast.act is fast.network[1]
