"""Clocks of CUDA programs: events around each group of operators, in emulation and through nvcc."""

from __future__ import annotations

import random
from typing import Any

import dace
import pytest
import torch

import dacergnn
from dacergnn import Config, Rates, parse
from dacergnn.modules import RGCN
from dacergnn.modules.programs import compiled_program
from dacergnn.profiling import measure
from dacergnn.runtime.lower import lower, operator_groups
from dacergnn.sdfg_passes import compile_program
from tests.cuda.test_nvcc import ODD
from tests.support.emulated_device import emulated_device
from tests.support.nvcc import compile_nvcc
from tests.support.random_graphs import joined_graph

__all__ = ["emulated_device"]


def test_every_group_is_timed(monkeypatch: pytest.MonkeyPatch, emulated_device: Config) -> None:
    monkeypatch.setattr(measure, "LEAST_CALLS", 2)
    monkeypatch.setattr(measure, "MOST_CALLS", 2)
    monkeypatch.setattr(measure, "_rates", lambda *_: Rates(1e11, 1e10, 1e10, 1e9))
    compiled_program.cache_clear()  # other tests have made other variants of the program
    raw = joined_graph(random.Random(3), 60, 300, 4, 3)
    layer: Any = RGCN(16, 16, raw.num_edge_types, config=emulated_device)
    x, graph = torch.randn(60, 16, requires_grad=True), raw.hetero()
    profile = dacergnn.profile(layer, x, graph)
    program, _ = layer.last_call
    compilation = program.variants[-1].compilation
    expected = [
        (role, tuple(name for o in group for name in o.written_arrays))
        for role, sdfg in compilation.by_role.items()
        for group in operator_groups(sdfg, compilation.saved)[1]
    ]
    assert [(o.role, o.results) for o in profile.operators] == expected
    assert all(o.ms > 0 for o in profile.operators)
    assert any(len(o.results) > 1 for o in profile.operators)


@pytest.mark.check
def test_clocks_compile_for_devices() -> None:
    source, bindings = ODD["rgcn"]
    sdfg = parse(source, dtype=dace.float32, **bindings)
    compilation = compile_program(sdfg, ["W"], Config(implementation="cuda"), dace.int32)
    lowered = lower(compilation.forward, compilation.saved, clocked=True)
    assert lowered.code.startswith('#include "include/dacergnn/cuda/clock.cuh"')
    assert compile_nvcc(lowered.code, (90,))
