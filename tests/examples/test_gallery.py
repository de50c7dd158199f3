"""The gallery: every model is trained beside a plain restatement of its formulas, with equal losses."""

from __future__ import annotations

import copy
import importlib

import pytest
import torch

from examples.training import small_problem, train
from tests.reference import gallery

MODELS = [
    ("listing1", "make"), ("rgcn", "make"), ("rgat", "make"), ("hgt", "make"), ("sage", "make"), ("gin", "make"),
    ("gatv2", "make"), ("compgcn", "make"), ("compgcn", "make_multiplication"), ("rgin", "make"),
    ("simple_hgn", "make"), ("han", "make"), ("gated_graph", "make"),
]  # fmt: skip
COMPILED = ("sage", "compgcn", "simple_hgn", "han")
"""The others run in NumPy: kernels of their operators are tested elsewhere."""


@pytest.mark.parametrize(
    ("name", "make"),
    [
        pytest.param(name, make, marks=() if name in COMPILED and make == "make" else pytest.mark.interpreted)
        for name, make in MODELS
    ],
)
def test_five_steps_of_training(name: str, make: str) -> None:
    graph, x, labels = small_problem(6, 4)
    x = x.double()
    torch.manual_seed(1)
    net = getattr(importlib.import_module(f"examples.{name}"), make)(graph, 6, 4).double()
    parameters = {n: p.detach().clone().requires_grad_() for n, p in copy.deepcopy(net).named_parameters()}
    edges, restated = gallery.Edges.of(graph), getattr(gallery, name + make.removeprefix("make"))
    found = train(lambda: net(graph, x), net.parameters(), labels)
    expected = train(lambda: restated(parameters, edges, x), parameters.values(), labels)
    assert found == pytest.approx(expected, rel=1e-5)
    assert len(set(expected)) == 5  # something was learned
    for parameter, (key, other) in zip(net.parameters(), parameters.items(), strict=True):
        torch.testing.assert_close(parameter, other, rtol=1e-6, atol=1e-8, msg=key)


def test_main_trains_and_prints(capsys: pytest.CaptureFixture[str]) -> None:
    losses = importlib.import_module("examples.sage").main()
    assert losses[-1] < losses[0]
    assert capsys.readouterr().out.startswith("examples.sage: loss ")
