"""Tests of layers run programs in NumPy by default, with what a compiled program gives: values, gradients, rounding."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch

import dacergnn
from dacergnn import Config
from dacergnn.modules.layer import core_of
from dacergnn.target import TARGETS, find
from tests.compatibility.comparing import assert_same, gradients, losses
from tests.compatibility.kinds import KINDS

KINDS_WITH = {
    "arrays in parts": ("pyg.HGTConv", torch.float32),
    "saved arrays": ("pyg.RGATConv", torch.bfloat16),
    "extrema": ("pyg.RGCNConv-max", torch.float32),
    "weights of one type": ("pyg.GCNConv", torch.bfloat16),
    "recorded statements": ("pyg.traced-UserLayer", torch.float32),
}
TOLERANCES = {torch.float32: 1e-5, torch.bfloat16: 5e-2}


@pytest.mark.skipif("DACERGNN_TEST_TARGET" in os.environ, reason="another target is asked for")
def test_layers_of_tests_run_in_numpy() -> None:
    assert find(None).name == "interpreted"
    kind = next(kind for kind in KINDS if kind.name == "pyg.GCNConv")
    module: Any = kind.compiled()
    module(*kind.arguments())
    programs = core_of(module).compiled_programs.values()
    found = {type(v.forward).__name__ for program in programs for v in program.variants}
    assert found == {"InterpretedExecutable"}


@pytest.mark.compiled
def test_others_run_compiled() -> None:
    assert find(None).name == "cpu"
    assert "interpreted" not in TARGETS


@pytest.mark.skipif("DACERGNN_TEST_TARGET" in os.environ, reason="another target is asked for")
@pytest.mark.parametrize(("name", "dtype"), [*KINDS_WITH.values()], ids=[*KINDS_WITH])
def test_results_are_those_of_kernels(name: str, dtype: torch.dtype) -> None:
    (kind,) = [kind for kind in KINDS if kind.name == name]
    found: list[Any] = []
    for config in (Config(), Config(implementation="cpu")):
        module = dacergnn.optimize(kind.original(dtype), config=config, on_unsupported="error")
        values = losses(kind, module, dtype)
        sum(values).backward()
        found.append([*values, *gradients(module)])
    assert_same(found[0], found[1], TOLERANCES[dtype])
