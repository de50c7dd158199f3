"""DaCe's own differentiation through graph operators: a second opinion on our rules, node by node."""

from __future__ import annotations

import copy
import os
import sys
from pathlib import Path
from typing import Any

import dace
import pytest
import torch
from dace.autodiff import add_backward_pass

import dacergnn
from dacergnn import HeteroGraph, ops
from dacergnn.program import Program
from tests.frontends import dace_layers

WRT = ["x", "W", "a"]


@pytest.mark.filterwarnings("ignore:Using sets for connectors")
def test_gradients_are_those_of_our_own_differentiation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Energy = sum(exp(0.3 attention-weighted sums)), whose gradient by them is 0.3 times itself."""
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))  # of cmake
    generator = torch.Generator().manual_seed(0)
    graph = HeteroGraph.from_arrays(
        torch.randint(20, (2, 90), generator=generator), torch.randint(3, (90,), generator=generator),
        num_nodes=21, num_edge_types=4,
    )  # fmt: skip

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    inputs = {"x": draw(21, 6), "W": draw(4, 6, 4), "a": draw(90)}
    sdfg: Any = copy.deepcopy(dace_layers.energy.to_sdfg(simplify=True))
    add_backward_pass(sdfg, ["loss"], WRT)
    ops.connect_encodings(sdfg)
    loss, gradients = torch.zeros(1, dtype=torch.float64), {n: torch.zeros_like(v) for n, v in inputs.items()}
    arguments = {
        **inputs,
        "loss": loss,
        "gradient_loss": torch.ones_like(loss),
        **{f"gradient_{n}": g for n, g in gradients.items()},
        **ops.encoding_arguments(sdfg, graph),
    }
    sdfg(**arguments)

    layer = dacergnn.compile(dace_layers.sums)
    ours = {n: v.clone().requires_grad_() for n, v in inputs.items()}
    energy = (0.3 * layer(graph, **ours)).exp().sum()
    torch.testing.assert_close(loss[0], energy.detach(), rtol=1e-12, atol=0.0)
    expected = torch.autograd.grad(energy, list(ours.values()))
    torch.testing.assert_close(list(gradients.values()), list(expected), rtol=1e-10, atol=1e-12)


def test_encodings_become_arguments() -> None:
    sdfg = copy.deepcopy(dace_layers.sums.to_sdfg(simplify=True))
    ops.connect_encodings(sdfg, index=dace.int64)
    sdfg.validate()
    encodings = {n for n in sdfg.arglist() if n.startswith(("ptr_", "idx_", "ids_"))}
    assert {"ptr_E_etype", "idx_E_src", "idx_E_dst", "ptr_E_dst", "ids_E_dst"} <= encodings
    assert {sdfg.arrays[n].dtype for n in encodings} == {dace.int64}
    before = Program(sdfg).operators[0].encodings
    ops.connect_encodings(sdfg)
    assert Program(sdfg).operators[0].encodings == before
