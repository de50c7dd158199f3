"""Builds the reports that `explain` returns for an optimized model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dacergnn.config import PASSES
from dacergnn.cost import Cost, program_cost
from dacergnn.graph import HeteroGraph
from dacergnn.modules.base import RunsPrograms
from dacergnn.modules.compiled import Variant
from dacergnn.modules.core import Core
from dacergnn.modules.loaded import LoadedProgram
from dacergnn.plan import MODEL, Plan
from dacergnn.program import Program, print_program
from dacergnn.sdfg_passes import Compilation
from dacergnn.sdfg_passes.questions import Question, answers

NOTHING = (
    "nothing to replace: the model holds no layer of PyG or DGL that can be compiled; "
    "a forward of your own over DGL graphs is compiled by dacergnn.compile"
)


@dataclass(frozen=True)
class PassReport:
    """Describes how often a pass fired on a program ("forward" or "backward"), and what that saves on the graph."""

    name: str
    role: str
    fired: int
    saved: Cost


@dataclass(frozen=True)
class BuildReport:
    """Describes one build of a layer's program: for inference, or with the backward of some inputs.

    Costs and bytes are for the graph of the layer's last call. ``questions`` are those that a plan may answer, by name;
    `Config(plan=...)` with ``plan`` makes the same choices again, on any graph.
    """

    gradients: list[str]
    passes: list[PassReport]
    saved: list[str]
    saved_bytes: int
    workspace_bytes: int
    forward: Cost
    backward: Cost | None
    text: str
    questions: Mapping[str, Question]

    @property
    def plan(self) -> Plan:
        return answers(self.questions)


@dataclass(frozen=True)
class LayerReport:
    """Describes a replaced layer; ``builds`` is empty until its first compiled call.

    ``refusal`` tells why the last call that ran the original layer did so. ``calls`` tells whether calls of a traced
    layer have to be recorded, and which are replayed as CUDA graphs. ``loaded`` is the folder of SDFGs that run in
    place of the compiled ones.
    """

    name: str
    layer: str
    builds: list[BuildReport]
    encoding_bytes: dict[str, int] = field(default_factory=dict[str, int])
    refusal: str | None = None
    calls: str | None = None
    loaded: str | None = None


@dataclass(frozen=True)
class Report:
    """Lists replaced layers, and layers that were left alone with the reason; ``print`` it.

    ``unasked`` are the questions that the user's plan answers and no program has asked so far. With ``verbose``, the
    text lists what plans may answer.
    """

    layers: list[LayerReport]
    refused: dict[str, str]
    unasked: list[str] = field(default_factory=list[str])
    verbose: bool = False

    @property
    def plan(self) -> Plan:
        """Returns the plan that makes all choices again: for each layer, those of its build with the most gradients."""
        builds = {
            layer.name or MODEL: max(layer.builds, key=lambda build: len(build.gradients))
            for layer in self.layers
            if layer.builds
        }
        return Plan.of({name: build.plan.by_question for name, build in builds.items()})

    def __str__(self) -> str:
        lines: list[str] = []
        for layer in self.layers:
            uncompiled = layer.refusal is not None and not layer.builds
            lines.append(f"{layer.name or MODEL}: {layer.layer} {'runs as it is' if uncompiled else 'compiled'}")
            if layer.refusal is not None:
                lines.append(f"  {'' if uncompiled else 'some calls run as they are: '}{layer.refusal}")
            elif not layer.builds:
                lines.append("  not called yet; builds are made at the first call")
            if layer.loaded is not None:
                lines.append(f"  runs the SDFGs of {layer.loaded}")
            if layer.calls is not None:
                lines.append(f"  {layer.calls}")
            for build in layer.builds:
                lines += _build_lines(build, verbose=self.verbose)
            if layer.encoding_bytes:
                total = sum(layer.encoding_bytes.values())
                lines.append(f"  graph encodings {_bytes(total)}: {', '.join(layer.encoding_bytes)}")
        lines += [f"{name or MODEL}: left as it is; {reason}" for name, reason in self.refused.items()]
        lines += [f'plan: no program has asked "{question}" so far' for question in self.unasked]
        return "\n".join(lines) if lines else NOTHING


def layer_report(name: str, layer: RunsPrograms, notes: Sequence[str | None]) -> LayerReport:
    """Returns the report of one compiled layer; ``notes`` tell how its calls are repeated."""
    kind, last = layer.kind, layer.last_call
    refusal = layer.refusal if isinstance(layer, Core) else None
    if last is None:
        return LayerReport(name, kind, [], refusal=refusal)
    compiled, graph = last
    graph = compiled.measured(graph)
    builds = [_build_report(v, graph) for v in compiled.variants]
    calls = "; ".join([note for note in notes if note is not None]) or None
    loaded = str(compiled.folder) if isinstance(compiled, LoadedProgram) else None
    return LayerReport(name, kind, builds, graph.encoding_bytes(), refusal, calls, loaded)


def _build_report(variant: Variant, graph: HeteroGraph) -> BuildReport:
    compilation = variant.compilation
    sizes = graph.sizes
    view = Program(compilation.forward)
    inputs = set(view.inputs)
    item = variant.forward.dtype.itemsize
    saved = [b for b in variant.forward.lowered.outputs if b.name in compilation.saved and b.name not in inputs]
    prepared = [variant.forward.prepare(graph)]
    if variant.backward is not None:
        prepared.append(variant.backward.prepare(graph, giver=variant.giver))
    return BuildReport(
        gradients=compilation.wrt,
        passes=_pass_reports(compilation, sizes),
        saved=compilation.saved,
        saved_bytes=sum(sizes[b.rows] * b.elements * item for b in saved),
        workspace_bytes=max(p.workspace for p in prepared),
        forward=program_cost(compilation.forward, sizes),
        backward=None if compilation.backward is None else program_cost(compilation.backward, sizes),
        text=print_program(compilation.forward),
        questions=compilation.asked,
    )


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


def _build_lines(build: BuildReport, *, verbose: bool) -> list[str]:
    purpose = f"gradients of {', '.join(build.gradients)}" if build.gradients else "inference"
    lines = [f"  build for {purpose}"]
    lines += [f"    {p.role}: {p.name} fired {p.fired}x, saves {_cost(p.saved)}" for p in build.passes]
    lines.append(f"    forward: {_cost(build.forward)}")
    if build.backward is not None:
        lines.append(f"    backward: {_cost(build.backward)}")
        saved = f"{_bytes(build.saved_bytes)} ({', '.join(build.saved)})" if build.saved else "nothing"
        lines.append(f"    saved for the backward: {saved}")
    lines.append(f"    workspace: {_bytes(build.workspace_bytes)}")
    if verbose:
        lines.append("    questions, their answers and all options:")
        lines += [f"      {name}: {q.answer} ({', '.join(q.options)})" for name, q in build.questions.items()]
    return lines


def _cost(cost: Cost) -> str:
    moved = f"{_bytes(cost.streamed)} streamed, {_bytes(cost.gathered)} gathered, {cost.rows} rows looked for"
    return f"{cost.flops / 1e6:.1f} MFLOP, {moved}"


def _bytes(count: int) -> str:
    return f"{count / 2**20:.2f} MiB" if abs(count) >= 2**20 else f"{count / 2**10:.1f} KiB"
