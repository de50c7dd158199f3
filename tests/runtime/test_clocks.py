"""Programs with clocks: the same code otherwise, times of all operators, no trace afterwards."""

from __future__ import annotations

import re
import time
from functools import partial
from typing import Any

import dace
import pytest
import torch

from dacergnn import parse
from dacergnn.errors import DacergnnError
from dacergnn.runtime.clocks import Clocked, ProgramWithClocks
from dacergnn.runtime.executable import Executable
from dacergnn.runtime.lower import lower
from dacergnn.sdfg_passes import Context, SelectAdjacency
from tests.runtime.test_executable import TEXT, graph, inputs

TICK = re.compile(r"\n *\{\n\n */+\n *dacergnn::tick\((\d+)\);\n */+\n\n *\}")
NUMBER = re.compile(r"(?<=_pure)(_\d+)+")


def program(implementation: str = "cpu") -> dace.SDFG:
    sdfg = parse(TEXT, dtype=dace.float64)
    SelectAdjacency().run(sdfg, Context(implementation=implementation))
    for node in next(iter(sdfg.states())).nodes():
        if isinstance(node, dace.nodes.LibraryNode):
            node.implementation = implementation
    return sdfg


def clocked(executable: Executable, sdfg: dace.SDFG) -> Clocked:
    return Clocked(executable, partial(ProgramWithClocks.of, sdfg, ()))


@pytest.mark.parametrize("implementation", ["cpu", "pure"])
def test_code_differs_in_clocks_alone(implementation: str) -> None:
    sdfg = program(implementation)
    plain, measured = lower(sdfg), lower(sdfg, clocked=True)
    assert "tick" not in plain.code
    assert "clock.h" not in plain.code
    head, _, rest = measured.code.partition("\n")
    assert head == '#include "include/dacergnn/clock.h"'
    assert TICK.findall(rest) == [str(k) for k in range(len(ProgramWithClocks.of(sdfg, ()).groups) + 1)]
    # Functions of the pure expansions are numbered by the nodes of the program, which ticks are among.
    assert NUMBER.sub("", TICK.sub("", rest)) == NUMBER.sub("", plain.code)


def test_every_operator_is_timed() -> None:
    sdfg, g = program(), graph()
    executable = Executable(sdfg)
    values = inputs(g)
    arrays = [values[n] for n in executable.lowered.inputs]
    expected = executable(executable.prepare(g), arrays)
    clock = clocked(executable, sdfg)
    assert clock.read().graphs == ()
    with clock.installed():
        started = time.perf_counter()
        found = executable(executable.prepare(g), arrays)
        passed = time.perf_counter() - started
    reading = clock.read()
    assert reading.graphs == (g,)
    assert len(reading.seconds) == len(clock.program.groups) == 4
    assert all(seconds > 0 for seconds in reading.seconds)
    assert sum(reading.seconds) <= passed
    assert started < reading.start < started + passed
    executable(executable.prepare(g), arrays)
    assert clock.read().graphs == ()
    for a, b in zip(found, expected, strict=True):
        assert torch.equal(a, b)


def test_runs_are_added_up_until_they_are_read() -> None:
    sdfg, graphs = program(), [graph(5), graph(50), graph(5)]
    executable = Executable(sdfg)
    clock = clocked(executable, sdfg)
    with clock.installed():
        for g in graphs:
            values = inputs(g)
            executable(executable.prepare(g), [values[n] for n in executable.lowered.inputs])
    assert clock.read().graphs == tuple(graphs)
    assert clock.read().graphs == ()


def test_another_program_is_refused() -> None:
    executable, g = Executable(program()), graph()
    other: Any = parse(TEXT.replace("s: E,", "s: E, more: NS[3],"), dtype=dace.float64)
    SelectAdjacency().run(other, Context())
    clock, values = clocked(executable, other), inputs(g)
    with clock.installed(), pytest.raises(DacergnnError, match="passes have not repeated their choices"):
        executable(executable.prepare(g), [values[n] for n in executable.lowered.inputs])
