"""Runs a model in turns with and without clocks between its operators, and puts their times together."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import torch
from torch import nn

from dacergnn.config import Rates
from dacergnn.errors import DacergnnError
from dacergnn.library_nodes.form import statement_text
from dacergnn.modules.building import building
from dacergnn.modules.compiled import CompiledProgram
from dacergnn.modules.compiled_parts import CompiledPart, compiled_parts
from dacergnn.modules.variant import Variant
from dacergnn.native import nvcc
from dacergnn.profiling.devices import Device, at_hand
from dacergnn.profiling.forecast import Forecast
from dacergnn.profiling.groups import bound_of, cost_of, kind_of
from dacergnn.profiling.instrumentation import MeasuredProgram
from dacergnn.profiling.operator_forecast import OperatorForecast, forecast
from dacergnn.profiling.operator_time import OperatorTime
from dacergnn.profiling.result import OperatorProfile
from dacergnn.runtime.clocks import Clocked, ProgramWithClocks, Reading
from dacergnn.runtime.cuda_device import allows_tf32
from dacergnn.sdfg_passes.compilation import ROLES

LEAST_CALLS, MOST_CALLS = 5, 50
"""Calls that are measured with clocks, and as many without."""
ENOUGH_SECONDS = 10.0
"""Time after which no more calls than the least are measured."""
_profiling = threading.Lock()
log = logging.getLogger("dacergnn.build")


def profile(model: nn.Module, /, *args: Any, **kwargs: Any) -> OperatorProfile:
    """Measures each compiled operator of ``model(*args, **kwargs)``, and of the backward if results need gradients.

    The model runs some tens of times, with all effects of a call but those on ``grad`` of parameters. Under
    `torch.no_grad` no backward is measured. Half of the calls run builds with a clock between every two operators; all
    other calls, now and later, run builds without. Calls of other threads count if they run the same programs then.
    What torch computes is no operator: it is part of the time of the call alone. The same holds for programs of higher
    derivatives. On a CUDA device, programs are built once more, for the forecast of their kernels.

    Raises:
        DacergnnError: The call runs no compiled operator, or replays CUDA graphs, or another profile is being made.
    """
    from dacergnn.bench.calls import training_step  # imported only where something is measured

    if not isinstance(model, nn.Module):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise DacergnnError(f"model is a {type(model).__name__}; pass a torch.nn.Module.")
    if not _profiling.acquire(blocking=False):
        raise DacergnnError("model: another profile is being made in this process; wait for its end.")
    try:
        return _profile(model, training_step(model, args, kwargs))
    finally:
        _profiling.release()


def _profile(model: nn.Module, step: Callable[[], Any]) -> OperatorProfile:
    from dacergnn.bench.environment import load, machine  # imported only where something is measured
    from dacergnn.bench.measure import Timing, clock_of

    _parts(model)
    step()  # captures and compiles what has not been called yet
    layers: dict[CompiledProgram, list[str]] = {}
    for part in _parts(model):
        for program in part.part.compiled_programs.values():
            layers.setdefault(program, []).append(part.name)
    watched = [w for program, names in layers.items() for w in _watched(program, names)]

    def measure() -> list[Reading]:
        with ExitStack() as stack:
            for one in watched:
                stack.enter_context(one.clocked.installed())
            step()
        return [one.clocked.read() for one in watched]

    ran = [graph for reading in measure() for graph in reading.graphs]
    if not ran:
        raise DacergnnError(
            "model: the call runs no compiled operator; pass a model of dacergnn.optimize, and see dacergnn.explain."
        )
    clock = clock_of(ran[0].device)
    calls, before = Timing(), load()
    readings: list[list[Reading]] = []
    end = time.perf_counter() + ENOUGH_SECONDS
    while len(readings) < LEAST_CALLS or (len(readings) < MOST_CALLS and time.perf_counter() < end):
        calls.samples.append(clock.time(step))
        readings.append(measure())
    facts = {**machine(), "load_before": before, "load_after": load()}
    columns = zip(watched, zip(*readings, strict=True), strict=True)
    measured = [(one, own) for one, every in columns if (own := [reading for reading in every if reading.graphs])]
    measured.sort(key=lambda entry: (ROLES.index(entry[0].role), entry[1][-1].start))
    dtype = measured[0][0].clocked.executable.dtype
    rates = _rates(max(graph.size("NS") for graph in ran), ran[0].device, dtype)
    operators = [row for one, own in measured for row in _rows(one, own, rates)]
    device = at_hand(ran[0].device, rates)
    expected = None if device is None else _forecast(measured, operators, device)
    programs = tuple(_program(one.clocked.program, own) for one, own in measured)
    return OperatorProfile(tuple(operators), calls.ms, rates, expected, calls.scatters, facts, programs)


def _parts(model: nn.Module) -> list[CompiledPart]:
    """Returns the compiled parts of a model; raises DacergnnError for one that has no clocks."""
    parts = compiled_parts(model)
    if any(part.part.config.cuda_graph for part in parts):
        raise DacergnnError(
            "model: its layers replay CUDA graphs, which have no clocks; optimize it without cuda_graph=True."
        )
    return parts


@dataclass(frozen=True)
class _Watched:
    """Holds a forward or a backward with clocks, and the names of the layers that run it."""

    program: str
    role: str
    layers: tuple[str, ...]
    clocked: Clocked


def _watched(program: CompiledProgram, layers: Iterable[str]) -> list[_Watched]:
    """Returns the builds of a program with clocks."""

    def make(variant: Variant, role: str) -> ProgramWithClocks:
        with building():
            compilation = variant.compilation
            return ProgramWithClocks.of(compilation.by_role[role], compilation.saved)

    names = tuple(dict.fromkeys(name for name in layers if name))
    return [
        _Watched(program.name, role, names, Clocked(executable, partial(make, variant, role)))
        for variant in program.variants
        for role, executable in zip(ROLES, (variant.forward, variant.backward), strict=True)
        if executable is not None
    ]


def _program(made: ProgramWithClocks, readings: Sequence[Reading]) -> MeasuredProgram:
    return MeasuredProgram(made.sdfg, made.groups, [(reading.start, reading.seconds) for reading in readings])


def _rows(one: _Watched, readings: Sequence[Reading], rates: Rates) -> list[OperatorTime]:
    """Returns the operators of a program, with their median times."""
    from dacergnn.bench.measure import Timing

    program = one.clocked.program
    graphs, times = readings[-1].graphs, zip(*(reading.seconds for reading in readings), strict=True)
    rows: list[OperatorTime] = []
    for group, seconds in zip(program.groups, times, strict=True):
        cost = cost_of(group, program.sdfg, [graph.sizes for graph in graphs])
        timing = Timing([*seconds])
        rows.append(
            OperatorTime(
                program=one.program,
                layers=one.layers,
                role=one.role,
                kind=kind_of(group),
                results=tuple(name for o in group for name in o.written_arrays),
                statements=tuple(statement_text(s) for o in group for s in o.statements),
                runs=len(graphs),
                ms=timing.ms,
                cost=cost,
                bound_ms=bound_of(cost, rates),
                scatters=timing.scatters,
            )
        )
    return rows


def _forecast(
    measured: Sequence[tuple[_Watched, Sequence[Reading]]], rows: Sequence[OperatorTime], device: Device
) -> Forecast | None:
    """Returns the forecast of measured operators, with their times; None where there is none, as the log then says."""
    architecture, operators = nvcc.supported(device.architecture), list[OperatorForecast]()
    try:
        for one, readings in measured:
            sizes = [graph.sizes for graph in readings[-1].graphs]
            operators += forecast(
                one.clocked.program, sizes, device, role=one.role, architecture=architecture, tf32=allows_tf32()
            )
    except DacergnnError as error:  # the times are worth more
        log.warning("there is no forecast of kernels: %s", error)
        return None
    beside = zip(operators, rows, strict=True)
    return Forecast(device, tuple(replace(o, program=row.place, measured_ms=row.ms) for o, row in beside))


@cache
def _rates(rows: int, device: torch.device, dtype: torch.dtype) -> Rates:
    """Measures the machine, for graphs with so many nodes."""
    from dacergnn.bench.rates import measure_rates

    return measure_rates(rows, device=device, dtype=dtype)
