"""The programs that front ends make, run by the interpreter, against the restatements in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from dacergnn.frontends import find_frontend
from dacergnn.program import Program, interpret, parse
from tests.frontends.cases import CASES, Case
from tests.frontends.check import assert_same, skip_without_library
from tests.support.bindings import arrays_of, result_of


def call(case: Case, layer: torch.nn.Module, arguments: object) -> object:
    """What the layer's front end and the interpreter return for a call."""
    args, kwargs = arguments  # type: ignore[misc]
    found = find_frontend(layer)
    assert found is not None
    frontend = found(layer)
    frontend.edges(*args, **kwargs)
    graph = frontend.graph(*args, **kwargs)
    torch.manual_seed(11)
    binding = frontend.bind(graph, *args, **kwargs)
    sdfg = parse(binding.program.source, **dict(binding.program.bindings))
    program = Program(sdfg)
    arrays = arrays_of(binding)
    assert set(program.inputs) <= set(arrays)
    for name, array in arrays.items():
        assert array.is_contiguous(), name
        rows, shape = graph.size(program.space(name)), program.shape(name)
        assert array.numel() == rows * torch.Size(shape).numel(), f"{name}: {list(array.shape)} for {rows} x {shape}"
    values = interpret(sdfg, graph, **{name: array.detach().numpy() for name, array in arrays.items()})
    outputs: tuple[Tensor, ...] = tuple(torch.from_numpy(values[name]) for name in program.outputs)
    result = result_of(binding, outputs)
    return result if binding.activation is None else binding.activation(result)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_program_equals_restatement(case: Case) -> None:
    skip_without_library(case)
    edges = case.edges()
    layer, (args, kwargs) = case.layer(edges, torch.float64), case.inputs(edges, torch.float64)
    with torch.no_grad():
        torch.manual_seed(11)
        expected = case.reference(layer, *args, **kwargs)
        found = call(case, layer, (args, kwargs))
    assert_same(found, expected, torch.float64)
