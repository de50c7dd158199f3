"""Whole plans, compiled: models under each level and for each kind of sizes, forward and backward, against the
interpreter."""

from __future__ import annotations

import copy
import random
from collections.abc import Sequence

import dace
import numpy as np
import pytest
import torch

from dacergnn import Config, parse
from dacergnn.graph.profile import Profile
from dacergnn.library_nodes.node import Typeclass
from dacergnn.program import Program, interpret
from dacergnn.runtime.executable import Executable
from dacergnn.sdfg_passes import Compilation, compile_program
from tests.nodes.test_expansions import TORCH, Compiled, graphs, with_index
from tests.nodes.test_fused_traversals import MODELS
from tests.support.random_graphs import RawGraph, random_graph

# Sizes that make each side the cheaper one, so that all plans are built.
PROFILES = {
    "sources": {"NS": 50, "ND": 50, "E": 900, "U": 100, "V": 500, "R": 3, "T": 2, "ONE": 1, "RNS": 150},
    "destinations": {"NS": 50, "ND": 50, "E": 900, "U": 500, "V": 100, "R": 3, "T": 2, "ONE": 1, "RNS": 150},
    "relations": {
        "NS": 50,
        "ND": 50,
        "E": 900,
        "U": 500,
        "V": 500,
        "R": 3,
        "T": 2,
        "ONE": 1,
        "RNS": 150,
        "Es": 450,
        "Us": 50,
        "Vs": 450,
        "Ed": 450,
        "Ud": 450,
        "Vd": 50,
    },
    "nodes": {"NS": 5, "ND": 5, "E": 900, "U": 800, "V": 800, "R": 3, "T": 2, "ONE": 1, "RNS": 15},
}
BUILDS = [
    ("rgcn", "O2", "relations"),
    ("rgat", "hector", "sources"),
    ("rgat", "O2", "destinations"),
    ("rgat one head", "O2", "nodes"),
    ("hgt", "hector", "sources"),
    ("hgt", "O2", "relations"),
]


def single_typed(raw: RawGraph) -> RawGraph:
    """The graph with one source type and one destination type."""
    src, dst = np.zeros_like(raw.src_type), np.zeros_like(raw.dst_type)
    return RawGraph(raw.src, raw.dst, raw.edge_type, src, dst, raw.num_edge_types, 1, raw.bipartite)


def check_plan(
    plan: Compilation, raws: Sequence[RawGraph], dtype: Typeclass = dace.float64, index: Typeclass = dace.int32
) -> None:
    """Forward and backward of a plan on random inputs, the backward on what the forward saved."""
    assert plan.backward is not None
    plain = next(step.sdfgs for step in plan.steps if step.name == "select_schedule")
    programs = [
        Compiled(copy.deepcopy(plain[role]), Executable(built), dtype, index)
        for role, built in (("forward", plan.forward), ("backward", plan.backward))
    ]
    for raw in raws:
        graph, generator = with_index(raw.hetero(), TORCH[index]), np.random.default_rng(0)
        values: dict[str, torch.Tensor] = {}
        for program in programs:
            view = Program(program.plain)
            for name in view.inputs:
                if name not in values:
                    shape = (graph.size(view.space(name)), *view.shape(name))
                    values[name] = torch.from_numpy(generator.uniform(-1, 1, shape)).to(TORCH[dtype])
            program.compare(graph, values)
            inputs = {name: values[name] for name in view.inputs}
            found = interpret(program.plain, graph, **inputs)
            values |= {n: torch.from_numpy(found[n]).to(TORCH[dtype]) for n in view.outputs}


@pytest.mark.no_cover
@pytest.mark.parametrize(("model", "level", "sizes"), BUILDS)
def test_models(model: str, level: str, sizes: str) -> None:
    source, bindings = MODELS[model]
    wrt = [n for n, spec in bindings.items() if isinstance(spec, str) and n != "norm"]
    sdfg = parse(source, dtype=dace.float64, **bindings)
    profile = Profile(tuple(PROFILES[sizes].items()), single_typed=True)
    rng = random.Random(3)
    raws = [*graphs(), random_graph(rng), random_graph(rng)]
    check_plan(compile_program(sdfg, wrt, Config(level=level), dace.int32, profile), [single_typed(r) for r in raws])
