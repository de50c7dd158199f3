"""300 random programs on random graphs: interpreter, gradients, text and fusion against torch and each other."""

from __future__ import annotations

import re
from typing import Any

import dace
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dacergnn import HeteroGraph
from dacergnn.library_nodes.node import copied
from dacergnn.program import Program, interpret, parse, print_program, verify
from dacergnn.sdfg_passes import Context, GemmScaleFusion, Gradient, differentiate
from tests.support.random_programs import Case, cases, random_case
from tests.support.torch_evaluate import torch_evaluate

PROGRAMS, BATCH = 300, 50
Values = dict[str, Any]


def assert_close(actual: Any, expected: Any, tolerance: float, what: str) -> None:
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.shape == expected.shape, what
    if actual.size:
        error = np.abs(actual - expected).max() / max(1.0, np.abs(expected).max())
        assert error <= tolerance, (what, error)


class Checked:
    """A case, run forward and backward by the interpreter, compared with torch on the source text."""

    def __init__(self, case: Case, seed: int = 0) -> None:
        self.case = case
        self.graph: HeteroGraph = case.graph.hetero()
        self.sdfg = parse(case.text)
        leaves = {n: t.clone().requires_grad_(n in case.wrt) for n, t in case.inputs.items()}
        self.results, _ = torch_evaluate(case.text, case.graph, leaves)
        self.outputs = Program(self.sdfg).outputs
        generator = torch.Generator().manual_seed(seed)
        self.seeds = [torch.randn(r.shape, generator=generator, dtype=torch.float64) for r in self.results]
        self.values = self.forward(self.sdfg)
        self.reference = self._autograd(leaves)

    def _autograd(self, leaves: dict[str, Tensor]) -> dict[str, Tensor | None]:
        pairs = [(r, s) for r, s in zip(self.results, self.seeds, strict=True) if r.requires_grad]
        wanted = [leaves[n] for n in self.case.wrt]
        if not pairs:
            return dict.fromkeys(self.case.wrt)
        results, seeds = zip(*pairs, strict=True)
        return dict(zip(self.case.wrt, torch.autograd.grad(results, wanted, seeds, allow_unused=True), strict=True))

    def forward(self, sdfg: dace.SDFG) -> Values:
        """All values of a forward program; its results (the first outputs) must be torch's."""
        values = interpret(sdfg, self.graph, **self.case.inputs)
        for name, result in zip(Program(sdfg).outputs, self.results, strict=False):
            assert_close(values[name], result.detach(), 1e-10, name)
        return values

    def backward_inputs(self, gradient: Gradient) -> Values:
        values = self.forward(gradient.forward)
        names = Program(gradient.forward).outputs[: len(self.seeds)]
        values |= {f"grad_{n}": s for n, s in zip(names, self.seeds, strict=True)}
        assert set(gradient.saved) <= set(Program(gradient.forward).outputs)
        return {n: values[n] for n in Program(gradient.backward).inputs}

    def gradients(self, gradient: Gradient) -> Values:
        """Gradients by the interpreter, equal to autograd's."""
        values = interpret(gradient.backward, self.graph, **self.backward_inputs(gradient))
        found = dict(zip(gradient.wrt, Program(gradient.backward).outputs, strict=True))
        for name, expected in self.reference.items():
            if name in found:
                zero = np.zeros(self.case.inputs[name].shape)
                assert_close(values[found[name]], zero if expected is None else expected, 1e-8, f"gradient of {name}")
            elif name in self.case.wrt:
                assert expected is None or not expected.any(), f"no gradient of {name}"
        return {n: values[found[n]] for n in found}


def check_text(checked: Checked, gradient: Gradient) -> None:
    """Printing and parsing is a fixed point, and the printed text means what the SDFG does."""
    for sdfg in (checked.sdfg, gradient.backward):
        if not Program(sdfg).outputs:
            continue
        text = print_program(sdfg)
        assert print_program(parse(text)) == text
        inputs = checked.case.inputs if sdfg is checked.sdfg else checked.backward_inputs(gradient)
        values = interpret(sdfg, checked.graph, **inputs)
        _, arrays = torch_evaluate(text, checked.case.graph, {n: torch.as_tensor(a) for n, a in inputs.items()})
        assert {name for _, name in arrays} >= set(values)
        for (_, name), array in arrays.items():
            assert_close(values[name], array, 1e-9, name)


def check_fusion(checked: Checked, gradient: Gradient) -> None:
    """Fusion changes no value, applied to the forward before differentiation or to the backward after it."""
    before = checked.gradients(gradient)
    backward = copied(gradient.backward)
    GemmScaleFusion().run(backward, Context())
    verify(backward)
    values = interpret(backward, checked.graph, **checked.backward_inputs(gradient))
    for name, output in zip(gradient.wrt, Program(backward).outputs, strict=True):
        assert_close(values[output], before[name], 1e-10, f"gradient of {name}")
    forward = copied(checked.sdfg)
    if GemmScaleFusion().run(forward, Context()):
        verify(forward)
        checked.forward(forward)
        after = checked.gradients(differentiate(forward, checked.case.wrt))
        for name in before:
            assert_close(after[name], before[name], 1e-8, f"gradient of {name} after fusion")


def check_finite_differences(checked: Checked, gradients: Values) -> None:
    """The derivative along a random direction."""
    generator = np.random.default_rng(0)
    directions = {n: generator.standard_normal(g.shape) for n, g in gradients.items()}
    step = 1e-5

    def loss(sign: float) -> float:
        moved = {n: np.asarray(a) + sign * step * directions.get(n, 0.0) for n, a in checked.case.inputs.items()}
        values = interpret(checked.sdfg, checked.graph, **moved)
        return sum(float((values[n] * s.numpy()).sum()) for n, s in zip(checked.outputs, checked.seeds, strict=True))

    slope = sum(float((gradients[n] * d).sum()) for n, d in directions.items())
    assert (loss(1) - loss(-1)) / (2 * step) == pytest.approx(slope, rel=1e-5, abs=1e-5)


def check_subset(checked: Checked, gradients: Values) -> None:
    """A gradient that nobody asks for leaves no trace; the others stay what they are."""
    wanted = list(gradients)[:1]
    gradient = differentiate(checked.sdfg, wanted)
    program = Program(gradient.backward)
    assert gradient.wrt == wanted
    others = "|".join(n for n in checked.case.inputs if n not in wanted)
    assert not [n for n in gradient.backward.arrays if others and re.fullmatch(rf"grad_({others})(_\d+)?", n)]
    operators = len(program.operators)
    program.drop_unused()
    assert len(program.operators) == operators
    values = interpret(gradient.backward, checked.graph, **checked.backward_inputs(gradient))
    assert_close(values[program.outputs[0]], gradients[wanted[0]], 1e-12, wanted[0])


def check(case: Case, seed: int) -> None:
    checked = Checked(case, seed)
    gradient = differentiate(checked.sdfg, case.wrt)
    gradients = checked.gradients(gradient)
    kind = seed % 6
    if kind == 0:
        check_text(checked, gradient)
    elif kind == 1:
        check_fusion(checked, gradient)
    elif kind in (2, 3) and case.smooth:
        check_finite_differences(checked, gradients)
    elif kind == 4 and gradients:
        check_subset(checked, gradients)


@pytest.mark.no_cover
@pytest.mark.parametrize("first", range(0, PROGRAMS, BATCH))
def test_random_programs(first: int) -> None:
    for seed in range(first, first + BATCH):
        case = random_case(seed)
        try:
            check(case, seed)
        except Exception as error:
            raise AssertionError(f"seed {seed}, gradients of {case.wrt}:\n{case.text}") from error


@settings(max_examples=15)
@given(cases(), st.integers(0, 5))
def test_random_programs_by_hypothesis(case: Case, seed: int) -> None:
    check(case, seed)
