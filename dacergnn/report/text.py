"""Defines the report that `explain` returns, and writes it as text, in lines of the terminal's width."""

from __future__ import annotations

import json
import shutil
import textwrap
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from dacergnn.cost import Cost
from dacergnn.plan import MODEL, Plan
from dacergnn.report.records import BuildReport, LayerReport
from dacergnn.sdfg_passes.cache_or_recompute import ANSWERS, RECOMPUTE

NOTHING = (
    "nothing to replace: the model holds no layer of PyG or DGL that can be compiled; "
    "a forward of your own over DGL graphs is compiled by dacergnn.compile"
)
LINES = 10
"""Lines of a text that tells more of each layer than its time and memory."""
ESTIMATES = "Before -> after the passes: estimates of the cost model; profile measures."
_DONE = {
    "fused": ("gemm_scale_fusion", "gemm_epilogue_fusion", "traversal_fusion"),
    "reordered": ("linear_operator_reordering", "propagation_postponing", "aggregation_order"),
    "kept once per pair of node and type": ("compact_materialization",),
}
"""Names what passes do with operators; passes that prepare for others are not told."""


@dataclass(frozen=True)
class Report:
    """Lists replaced layers, and layers that were left alone with the reason; ``print`` it.

    ``apart`` tells why layers are compiled one by one that would be compiled together, by the name of what holds them.
    ``unasked`` are the questions that the user's plan answers and no program has asked so far. The text names
    every layer with its time; with ``verbose`` it has all builds, passes and arrays, and what plans may answer.
    """

    layers: list[LayerReport]
    refused: dict[str, str]
    unasked: list[str] = field(default_factory=list[str])
    verbose: bool = False
    apart: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def plan(self) -> Plan:
        """Returns the plan that makes all choices again: for each layer, those of its build with the most gradients."""
        builds = {layer.name or MODEL: build for layer in self.layers if (build := layer.largest) is not None}
        return Plan.of({name: build.plan.by_question for name, build in builds.items()})

    def to_json(self) -> str:
        """Returns everything in the report as JSON text."""
        return json.dumps({"layers": [asdict(layer) for layer in self.layers], "refused": self.refused,
                           "unasked": self.unasked, "apart": self.apart}, indent=2, default=_plain)  # fmt: skip

    def __str__(self) -> str:
        return _text(self)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, (tuple, set, frozenset)) else str(value)


def _text(report: Report) -> str:
    """Returns the text of a report: some lines on each layer, one if there are many, or everything if it is verbose."""
    unasked = [f'plan: no program has asked "{question}" so far' for question in report.unasked]
    refused = [f"{name or MODEL}: left as it is; {reason}" for name, reason in report.refused.items()]
    refused += [f"{name or MODEL}: {reason}" for name, reason in report.apart.items()]
    if not report.layers and not refused:
        return "\n".join(_wrapped(unasked or [NOTHING]))
    if report.verbose:
        layers = [line for layer in report.layers for line in _verbose(layer)]
        return "\n".join(_wrapped([*layers, *refused, *unasked]))
    estimates = [ESTIMATES] if any(layer.builds for layer in report.layers) else []
    layers = [line for layer in report.layers for line in _brief(layer, numbers_only=False)]
    if len(layers) + len(refused) + len(unasked) + len(estimates) > LINES:
        layers = [line for layer in report.layers for line in _brief(layer, numbers_only=True)]
        layers += _names(report.layers)
    return "\n".join(_wrapped([*layers, *refused, *unasked, *estimates]))


def _brief(layer: LayerReport, *, numbers_only: bool) -> list[str]:
    """Returns up to four lines on a layer, or one, and another one for each thing that a user has to know."""
    state, build = _state(layer), layer.largest
    if build is None:
        return [state, *_warnings(layer)]
    numbers = _numbers(build)
    if numbers_only:
        short = state.removesuffix(" for training")
        return [f"{short}: {numbers}{'; ' * (layer.ranges > 1)}{_ranges(layer)}", *_warnings(layer)]
    details = [numbers, _done(build), *_fates(build), _ranges(layer)]
    return [state, *[f"  {detail}" for detail in details if detail], *_warnings(layer)]


def _names(layers: Iterable[LayerReport]) -> list[str]:
    """Returns a line for layers whose arrays have the same fate: with their class, or their names if it varies."""
    fates: dict[str, dict[str, list[str]]] = {}
    for layer in layers:
        fate = "" if layer.largest is None else "; ".join(_fates(layer.largest))
        fates.setdefault(layer.layer, {}).setdefault(fate, []).append(layer.name or MODEL)
    return [
        f"{kind if len(by_fate) == 1 else ', '.join(names)}: {fate}"
        for kind, by_fate in fates.items() for fate, names in by_fate.items() if fate
    ]  # fmt: skip


def _verb(layer: LayerReport) -> str:
    if layer.builds:
        return "compiled"
    if layer.refusal is not None:
        return "runs as it is"
    return "has not been called yet" if layer.calls is None else "runs no program of its own"


def _state(layer: LayerReport) -> str:
    name = f"{layer.name or MODEL}: {layer.layer}"
    if layer.largest is not None:
        return f"{name} {_verb(layer)} for {'training' if layer.largest.gradients else 'inference'}"
    return f"{name} {_verb(layer)}"


def _warnings(layer: LayerReport) -> list[str]:
    lines: list[str] = []
    if layer.refusal is not None:
        lines.append(f"  {'some calls run as they are: ' if layer.builds else ''}{layer.refusal}")
    if layer.loaded is not None:
        lines.append(f"  runs the SDFGs of {layer.loaded}")
    if layer.calls is not None:
        lines.append(f"  {layer.calls}")
    return lines


def _numbers(build: BuildReport) -> str:
    before, after = build.as_written, build.compiled
    was = f"{_time(before.seconds)} -> " if before is not None else ""
    held = f"{_bytes(before.bytes)} -> " if before is not None else ""
    return f"time {was}{_time(after.seconds)}, memory {held}{_bytes(after.bytes)}"


def _done(build: BuildReport) -> str:
    counts = {done: sum(p.fired for p in build.passes if p.name in names) for done, names in _DONE.items()}
    told = [f"{count} {done}" for done, count in counts.items() if count]
    return f"operators: {', '.join(told)}" if told else ""


def _fates(build: BuildReport) -> list[str]:
    """Returns the names of the arrays that are saved, and of those that are computed again.

    All of them, since `Config(cache=..., recompute=...)` takes names.
    """
    asked = [(name.rpartition("/")[2], q.answer) for name, q in build.questions.items() if q.options == ANSWERS]
    again = [name for name, answer in asked if answer == RECOMPUTE]
    saved = [f"saved for the backward: {_bytes(build.saved_bytes)} ({', '.join(build.saved)})"] if build.saved else []
    return saved + ([f"computed again in the backward: {', '.join(again)}"] if again else [])


def _ranges(layer: LayerReport) -> str:
    if layer.ranges == 1:
        return ""
    return f"in {layer.ranges} ranges of destinations, of which this is one; a step takes {_bytes(layer.step_bytes)}"


def _verbose(layer: LayerReport) -> list[str]:
    lines = [_state(layer), *_warnings(layer)]
    if layer.step_bytes:
        lines.append(f"  a step takes {_bytes(layer.step_bytes)} beside its inputs, as estimated")
    if layer.ranges > 1:
        lines.append(f"  it runs in {layer.ranges} ranges of destinations; the builds are for one of them")
    for build in layer.builds:
        lines += _build_lines(build)
    if layer.encoding_bytes:
        total = sum(layer.encoding_bytes.values())
        lines.append(f"  graph encodings {_bytes(total)}: {', '.join(layer.encoding_bytes)}")
    return lines


def _build_lines(build: BuildReport) -> list[str]:
    purpose = f"gradients of {', '.join(build.gradients)}" if build.gradients else "inference"
    lines = [f"  build for {purpose}", f"    estimate: {_numbers(build)}"]
    lines += [f"    {p.role}: {p.name} fired {p.fired}x, saves {_cost(p.saved)}" for p in build.passes]
    lines.append(f"    forward: {_cost(build.forward)}")
    if build.backward is not None:
        lines.append(f"    backward: {_cost(build.backward)}")
        saved = f"{_bytes(build.saved_bytes)} ({', '.join(build.saved)})" if build.saved else "nothing"
        lines.append(f"    saved for the backward: {saved}")
    lines.append(f"    workspace: {_bytes(build.workspace_bytes)}")
    lines.append("    questions, their answers and all options:")
    return lines + [f"      {name}: {q.answer} ({', '.join(q.options)})" for name, q in build.questions.items()]


def _wrapped(lines: Iterable[str]) -> list[str]:
    """Returns lines that fit the terminal; what is left of a long one follows, indented."""
    width = max(shutil.get_terminal_size((80, 24)).columns, 40)
    wrapped: list[str] = []
    for line in lines:
        indent = " " * (len(line) - len(line.lstrip()) + 4)
        wrapped += textwrap.wrap(line, width, subsequent_indent=indent, break_long_words=False,
                                 break_on_hyphens=False) or [""]  # fmt: skip
    return wrapped


def _cost(cost: Cost) -> str:
    moved = f"{_bytes(cost.streamed)} streamed, {_bytes(cost.gathered)} gathered, {cost.rows} rows looked for"
    return f"{cost.flops / 1e6:.1f} MFLOP, {moved}"


def _time(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{1e3 * seconds:.3g} ms" if seconds >= 1e-3 else f"{1e6 * seconds:.3g} us"


def _bytes(count: int) -> str:
    return f"{count / 2**20:.2f} MiB" if abs(count) >= 2**20 else f"{count / 2**10:.1f} KiB"
