"""What a pass does to a tiny program, and what must hold of any pass whatever it does."""

from __future__ import annotations

import random
from collections.abc import Callable

import dace
import numpy as np

from dacergnn import parse, print_program
from dacergnn.graph.profile import Profile
from dacergnn.graph.spaces import ROW_SPACES
from dacergnn.library_nodes.node import copied
from dacergnn.program import Program, verify
from dacergnn.sdfg_passes import Context, Pass, differentiate
from tests.support.computed import assert_same, compute
from tests.support.random_graphs import RawGraph, joined_graph, random_graph, single_typed

Rewrite = Callable[[dace.SDFG], int]


def rewritten(text: str, run: Rewrite) -> tuple[int, str]:
    """How often a pass fires on a program, and the program afterwards, without its head.

    On the way: the result is valid, a second run finds nothing to do, and forward and gradients are what they were.
    """
    before = parse(text)
    after = copied(before)
    count = run(after)
    verify(after)
    after.validate()
    listing = loops(after)
    assert run(after) == 0, "a second run fires again"
    assert loops(after) == listing, "a second run changes the program"
    assert_equal(before, after)
    return count, listing


def unchanged(text: str, run: Rewrite) -> bool:
    """Whether a pass leaves a program as it is."""
    return rewritten(text, run) == (0, loops(parse(text)))


def loops(sdfg: dace.SDFG) -> str:
    lines = print_program(sdfg).splitlines()[1:]
    return "\n".join(line[4:] for line in lines if "#" not in line)


def assert_equal(before: dace.SDFG, after: dace.SDFG) -> None:
    """The same results and gradients on two graphs in which relations join one type with one."""
    rng, program = random.Random(0), Program(before)
    for graph in (joined_graph(rng, 9, 30, 4, 3), block()):
        hetero, generator = graph.hetero(), np.random.default_rng(0)
        inputs = {
            name: generator.uniform(-1, 1, (hetero.size(program.space(name)), *program.shape(name)))
            for name in program.inputs
        }
        one, other = (
            compute(differentiate(sdfg, program.inputs), program.outputs, hetero, inputs) for sdfg in (before, after)
        )
        assert_same(other, one)


def block() -> RawGraph:
    """A sampled block: fewer destinations than sources."""
    rng = random.Random(3)
    while True:
        graph = single_typed(random_graph(rng, bipartite=False))
        if 0 < len(graph.dst_type) < len(graph.src_type) and len(graph.src) > 4:
            return graph


def on_graph(step: Pass, *, single_typed: bool = False, **rows: int) -> Rewrite:
    """A pass for a graph with `sizes`."""
    return lambda sdfg: step.run(sdfg, Context(Profile(tuple(sizes(**rows).items()), single_typed)))


def sizes(**rows: int) -> dict[str, int]:
    """Rows of the row spaces of a graph of a million edges, and what is given."""
    usual = {"NS": 10_000, "ND": 10_000, "E": 1_000_000, "U": 300_000, "V": 300_000, "R": 100, "T": 5, "ONE": 1}
    return dict.fromkeys(ROW_SPACES, 1_000_000) | usual | rows
