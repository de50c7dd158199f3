"""Names that recorded programs have of the layer: its class, and paths of parameters."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import dace
import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing

import dacergnn
from dacergnn.frontends.symbolic.names import Names
from dacergnn.modules.capture.captured_graph import CapturedGraph
from dacergnn.program import Program

X, INDEX = torch.randn(7, 3), torch.randint(7, (2, 15), generator=torch.Generator().manual_seed(1))


class Gated(MessagePassing):
    """Reads a parameter twice, two of one tensor, and a view of a parameter, which has no name."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(3, 3)
        self.tied = nn.Linear(3, 3, bias=False)
        self.tied.weight = self.lin.weight
        self.gate = nn.Parameter(torch.randn(3))
        self.att = nn.Parameter(torch.randn(2, 3))

    def forward(self, x: Tensor, edge_index: Tensor, scale: Tensor) -> Tensor:
        return self.propagate(edge_index, x=self.lin(x) + self.tied(x), scale=scale) * self.gate

    def message(self, x_j: Tensor, scale: Tensor) -> Tensor:
        return x_j * scale.view(-1, 1) * self.gate * self.att[0]


def names_of(layer: Any, folder: Path) -> tuple[str, set[str]]:
    """The name of the program of a layer that has been called, and those of its inputs."""
    program = Program(dace.SDFG.from_file(str(layer.save_sdfg(folder)[0])))
    return program.sdfg.name, {*program.inputs}


def test_programs_name_class_and_parameters(tmp_path: Path) -> None:
    original = Gated()
    scale = torch.rand(15)
    layer, other = dacergnn.optimize(copy.deepcopy(original)), dacergnn.optimize(Gated())
    torch.testing.assert_close(layer(X, INDEX, scale), original(X, INDEX, scale))
    other(X, INDEX, scale=scale)
    name, inputs = names_of(layer, tmp_path / "layer")
    assert name == "Gated"
    assert {"lin_weight", "lin_bias", "gate"} < inputs
    assert {n[0] for n in inputs - {"lin_weight", "lin_bias", "gate"}} == {"v"}
    assert names_of(other, tmp_path / "other") == (name, inputs)


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["lin.weight", "part.0.lin.weight", "other.1.weight"], ["lin_weight", "lin_weight", "other_weight"]),
        (["exp", "g", "n", "v3", "grad_x"], [None] * 5),  # words of programs, and names that recording and passes give
        (["class_", "_own", "lambda.x", "ptr_E_dst"], ["class_", None, "lambda_x", None]),
    ],
)
def test_what_cannot_be_a_name_is_left_out(paths: list[str], names: list[str | None]) -> None:
    module = nn.Module()
    for path in paths:
        *above, last = path.split(".")
        part = module
        for name in above:
            part.add_module(name, nn.Module())
            part = part.get_submodule(name)
        part.register_parameter(last, nn.Parameter(torch.ones(1)))
    found = Names.of_paths("Module", module.named_parameters()).inputs
    assert [found.get(id(module.get_parameter(path))) for path in paths] == names


class Twice(MessagePassing):
    """Propagates in two equal steps, each with a linear layer of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.parts, self.place = nn.ModuleList(nn.Linear(3, 3) for _ in range(2)), [0]

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for self.place[0] in range(2):
            x = self.propagate(edge_index, x=x).cumsum(0)
        return x

    def message(self, x_j: Tensor) -> Tensor:
        return self.parts[self.place[0]](x_j).tanh()


def test_equal_parts_share_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    texts: list[Any] = []
    run = CapturedGraph.run_program

    def noted(self: CapturedGraph, program: Any, *others: Any) -> Any:
        texts.append(program.source)
        return run(self, program, *others)

    monkeypatch.setattr(CapturedGraph, "run_program", noted)
    original = Twice()
    layer: Any = dacergnn.optimize(copy.deepcopy(original), on_unsupported="error")
    torch.testing.assert_close(layer(X, INDEX), original(X, INDEX))
    assert len(texts) == 2
    assert len({*texts}) == 1
