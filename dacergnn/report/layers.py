"""Makes the reports of compiled layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dacergnn.config import PASSES
from dacergnn.cost import Cost, program_cost
from dacergnn.graph import HeteroGraph
from dacergnn.modules.base import RunsPrograms
from dacergnn.modules.building import building
from dacergnn.modules.compiled import CompiledProgram
from dacergnn.modules.core import Core
from dacergnn.modules.loaded import LoadedProgram
from dacergnn.modules.programs import measured
from dacergnn.modules.variant import Variant
from dacergnn.modules.ways.memory_limit import InRanges, largest_division
from dacergnn.program import Program, print_program
from dacergnn.report.records import BuildReport, Estimate, LayerReport, PassReport
from dacergnn.runtime.lower import Buffer, lower
from dacergnn.runtime.memory import plan_memory
from dacergnn.sdfg_passes import Compilation, compile_program


def layer_report(name: str, layer: RunsPrograms, notes: Sequence[str | None]) -> LayerReport:
    """Returns the report of one compiled layer; ``notes`` tell how its calls are repeated."""
    kind, last = layer.kind, layer.last_call
    refusal = layer.refusal if isinstance(layer, Core) else None
    calls = "; ".join([note for note in notes if note is not None]) or None
    if last is None:
        return LayerReport(name, kind, [], refusal=refusal, calls=calls)
    compiled, graph = last
    graph, ranges = measured(compiled, graph), compiled.way(InRanges)
    division = largest_division(compiled, graph)
    if ranges is not None and division is not None and division.ranges is not None:
        part = division.ranges[0]
        compiled, graph = ranges.streams.of_range(part), part.graph
    largest = max(compiled.variants, key=lambda v: len(v.slots), default=None)
    builds = [_build_report(v, compiled, graph, largest=v is largest) for v in compiled.variants]
    loaded = str(compiled.folder) if isinstance(compiled, LoadedProgram) else None
    need, ranges = (0, None) if division is None else (division.need, division.ranges)
    return LayerReport(
        name, kind, builds, graph.encoding_bytes(), need, 1 if ranges is None else len(ranges), refusal, calls, loaded
    )


def _build_report(variant: Variant, compiled: CompiledProgram, graph: HeteroGraph, *, largest: bool) -> BuildReport:
    compilation = variant.compilation
    sizes = graph.sizes
    inputs = set(Program(compilation.forward).inputs)
    saved = [b for b in variant.forward.lowered.outputs if b.name in compilation.saved and b.name not in inputs]
    saved_bytes = _bytes(saved, sizes, variant.forward.dtype.itemsize)
    prepared = [variant.forward.prepare(graph)]
    if variant.backward is not None:
        prepared.append(variant.backward.prepare(graph, giver=variant.giver))
    workspace = max(p.workspace for p in prepared)
    return BuildReport(
        gradients=compilation.wrt,
        passes=_pass_reports(compilation, sizes),
        saved=compilation.saved,
        saved_bytes=saved_bytes,
        workspace_bytes=workspace,
        forward=program_cost(compilation.forward, sizes),
        backward=None if compilation.backward is None else program_cost(compilation.backward, sizes),
        compiled=Estimate(_seconds(_costs(compilation, sizes), compiled), saved_bytes + workspace),
        as_written=_as_written(compiled, compilation.wrt, sizes) if largest else None,
        text=print_program(compilation.forward),
        questions=compilation.asked,
    )


def _as_written(compiled: CompiledProgram, wrt: list[str], sizes: Mapping[str, int]) -> Estimate:
    """Returns the estimate for a program before all passes, which saves all that its backward reads."""
    costs, needed = planned(compiled, wrt, sizes, ())
    return Estimate(_seconds(costs, compiled), needed)


def planned(
    compiled: CompiledProgram, wrt: list[str], sizes: Mapping[str, int], passes: tuple[str, ...]
) -> tuple[list[Cost], int]:
    """Returns what a program would need if other passes compiled it, and it saved all that its backward reads.

    Nothing is built for it. These are the costs of forward and backward, and the bytes that are saved or between
    operators.
    """
    config = replace(compiled.config, passes=passes, caching="cache_all", cache=(), recompute=(), plan=None)
    with building():
        made = compile_program(compiled.sdfg, wrt, config, compiled.index_type, compiled.profile)
        parts = [lower(sdfg, made.saved) for sdfg in made.parts]
    item = compiled.dtype.itemsize
    saved = _bytes([b for b in parts[0].outputs if b.name in made.saved], sizes, item)
    between = max(plan_memory(part.intermediates, sizes, item).size for part in parts)
    return _costs(made, sizes), saved + between


def _costs(compilation: Compilation, sizes: Mapping[str, int]) -> list[Cost]:
    return [program_cost(sdfg, sizes) for sdfg in compilation.parts]


def _seconds(costs: list[Cost], compiled: CompiledProgram) -> float:
    return sum(cost.seconds(compiled.config.machine) for cost in costs)


def _bytes(buffers: Sequence[Buffer], sizes: Mapping[str, int], item: int) -> int:
    return sum(sizes[b.rows] * b.elements * item for b in buffers)


def _pass_reports(compilation: Compilation, sizes: Mapping[str, int]) -> list[PassReport]:
    reports: list[PassReport] = []
    costs: dict[str, Cost] = {}
    for step in compilation.steps:
        for role, sdfg in step.sdfgs.items():
            cost = program_cost(sdfg, sizes)
            fired = step.fired.get(role, 0)
            if fired and role in costs and step.name in (*PASSES, "cache_or_recompute"):
                reports.append(PassReport(step.name, role, fired, costs[role] - cost))
            costs[role] = cost
    return reports
