"""What `explain` tells of an optimized model."""

from __future__ import annotations

from dataclasses import dataclass, field

from dacergnn.cost import Cost, program_cost
from dacergnn.graph import HeteroGraph
from dacergnn.graph.spaces import ROW_SPACES
from dacergnn.modules.base import ProgramModule
from dacergnn.modules.compiled import Variant
from dacergnn.program import Program, print_program


@dataclass(frozen=True)
class BuildReport:
    """One build of a layer's program: for inference, or with the backward of some inputs.

    Costs and bytes are those of the graph of the layer's last call.
    """

    gradients: list[str]
    passes: dict[str, int]
    saved: list[str]
    saved_bytes: int
    workspace_bytes: int
    forward: Cost
    backward: Cost | None
    text: str


@dataclass(frozen=True)
class LayerReport:
    """A replaced layer; ``builds`` is empty until its first call."""

    name: str
    layer: str
    builds: list[BuildReport]
    encoding_bytes: dict[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True)
class Report:
    """Replaced layers, and those that were left alone with the reason; ``print`` it."""

    layers: list[LayerReport]
    refused: dict[str, str]

    def __str__(self) -> str:
        lines: list[str] = []
        for layer in self.layers:
            lines.append(f"{layer.name or '(model)'}: {layer.layer} compiled")
            if not layer.builds:
                lines.append("  not called yet; builds are made at the first call")
            for build in layer.builds:
                lines += _build_lines(build)
            if layer.encoding_bytes:
                total = sum(layer.encoding_bytes.values())
                lines.append(f"  graph encodings {_bytes(total)}: {', '.join(layer.encoding_bytes)}")
        lines += [f"{name or '(model)'}: left as it is; {reason}" for name, reason in self.refused.items()]
        return "\n".join(lines) if lines else "nothing to replace: the model holds no layer that has a front end"


def layer_report(name: str, layer: ProgramModule) -> LayerReport:
    """The report of one compiled layer."""
    kind, last = layer.kind, layer.last_call
    if last is None:
        return LayerReport(name, kind, [])
    compiled, graph = last
    builds = [_build_report(v, graph) for v in compiled.variants]
    return LayerReport(name, kind, builds, graph.encoding_bytes())


def _build_report(variant: Variant, graph: HeteroGraph) -> BuildReport:
    plan = variant.plan
    sdfgs = [s for s in (plan.forward, plan.backward) if s is not None]
    spaces = {Program(s).space(n) for s in sdfgs for n in s.arrays} | {
        o.space for s in sdfgs for o in Program(s).operators
    }
    sizes = {space: graph.size(space) for space in spaces & set(ROW_SPACES)}
    passes: dict[str, int] = {}
    for step in plan.steps:
        passes[step.name] = passes.get(step.name, 0) + step.fired
    view = Program(plan.forward)
    inputs = set(view.inputs)
    item = variant.forward.dtype.itemsize
    saved = [b for b in variant.forward.lowered.outputs if b.name in plan.saved and b.name not in inputs]
    executables = [e for e in (variant.forward, variant.backward) if e is not None]
    return BuildReport(
        gradients=plan.wrt,
        passes=passes,
        saved=plan.saved,
        saved_bytes=sum(sizes[b.rows] * b.elements * item for b in saved),
        workspace_bytes=max(e.prepare(graph).workspace for e in executables),
        forward=program_cost(plan.forward, sizes),
        backward=None if plan.backward is None else program_cost(plan.backward, sizes),
        text=print_program(plan.forward),
    )


def _build_lines(build: BuildReport) -> list[str]:
    purpose = f"gradients of {', '.join(build.gradients)}" if build.gradients else "inference"
    fired = ", ".join(f"{name} x{count}" for name, count in build.passes.items() if count)
    lines = [f"  build for {purpose}", f"    passes: {fired}", f"    forward: {_cost(build.forward)}"]
    if build.backward is not None:
        lines.append(f"    backward: {_cost(build.backward)}")
        saved = f"{_bytes(build.saved_bytes)} ({', '.join(build.saved)})" if build.saved else "nothing"
        lines.append(f"    saved for the backward: {saved}")
    lines.append(f"    workspace: {_bytes(build.workspace_bytes)}")
    return lines


def _cost(cost: Cost) -> str:
    return f"{cost.flops / 1e6:.1f} MFLOP, {_bytes(cost.streamed)} streamed, {_bytes(cost.gathered)} gathered"


def _bytes(count: int) -> str:
    return f"{count / 2**20:.2f} MiB" if count >= 2**20 else f"{count / 2**10:.1f} KiB"
