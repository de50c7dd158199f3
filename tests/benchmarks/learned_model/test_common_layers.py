"""Layers in common use: all kinds are drawn, and compiled programs compute what their text says."""

from __future__ import annotations

from collections import Counter

import dace
import numpy as np
import pytest

from benchmarks.learned_model import common_layers
from benchmarks.learned_model.common_layers import KINDS, common_layer
from dacergnn import Config, HeteroGraph, interpret, parse
from dacergnn.graph.profile import Profile
from dacergnn.program import Program
from dacergnn.sdfg_passes import compile_program
from tests.support.computed import Computed, assert_same, compute


def test_all_kinds_are_drawn_and_seeds_decide() -> None:
    layers = [common_layer(seed) for seed in range(120)]
    kinds = Counter(layer.family for layer in layers)
    assert kinds.keys() == KINDS.keys()
    assert {layer.dtype for layer in layers} == {"float32", "bfloat16"}
    assert {"x" in layer.learned for layer in layers} == {True, False}
    assert layers == [common_layer(seed) for seed in range(120)]


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_layers_compute_what_they_say(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common_layers, "CHANNELS", (3, 4))
    rng = np.random.default_rng(0)
    graph = HeteroGraph.from_arrays(rng.integers(12, size=(2, 40)), None, num_nodes=12)
    layer = next(layer for layer in map(common_layer, range(200)) if layer.family == kind)
    sdfg = parse(layer.text, dtype=dace.float64)
    program = Program(sdfg)
    values = {n: rng.uniform(-0.5, 0.5, (graph.size(program.space(n)), *program.shape(n))) for n in program.inputs}
    compiled = compile_program(sdfg, [], Config(), dace.int32, Profile.of(graph), keep=False)
    expected = interpret(sdfg, graph, **values)
    assert_same(
        compute(compiled, program.outputs, graph, values), Computed({n: expected[n] for n in program.outputs}, {})
    )
