"""Defines the reports that `explain` returns."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from dacergnn.cost import Cost
from dacergnn.plan import MODEL, Plan
from dacergnn.report.text import report_text
from dacergnn.sdfg_passes.questions import Question, answers


@dataclass(frozen=True)
class PassReport:
    """Describes how often a pass fired on a program ("forward" or "backward"), and what that saves on the graph."""

    name: str
    role: str
    fired: int
    saved: Cost


@dataclass(frozen=True)
class Estimate:
    """Describes what forward and backward of a build should take by the cost model; nothing of it is measured.

    Attributes:
        seconds: Time at the rates of ``Config(rates=...)``.
        bytes: Memory for what is saved for the backward and for arrays between operators, at the most.
    """

    seconds: float
    bytes: int


@dataclass(frozen=True)
class BuildReport:
    """Describes one build of a layer's program: for inference, or with the backward of some inputs.

    Costs and bytes are for the graph of the layer's last call. ``as_written`` is the estimate for the program before
    all passes, operator by operator; None for builds that are not the layer's largest one. ``questions`` are those that
    a plan may answer, by name; `Config(plan=...)` with ``plan`` makes the same choices again, on any graph.
    """

    gradients: list[str]
    passes: list[PassReport]
    saved: list[str]
    saved_bytes: int
    workspace_bytes: int
    forward: Cost
    backward: Cost | None
    compiled: Estimate
    as_written: Estimate | None
    text: str
    questions: Mapping[str, Question]

    @property
    def plan(self) -> Plan:
        return answers(self.questions)


@dataclass(frozen=True)
class LayerReport:
    """Describes a replaced layer; ``builds`` is empty until its first compiled call.

    ``step_bytes`` estimates the most that a step takes at one time beside its inputs, with the encodings of the graph.
    Under `Config(memory=...)`, a step may run in ``ranges`` of destinations; ``builds`` are then of one range.
    ``refusal`` tells why the last call that ran the original layer did so. ``calls`` tells whether calls of a traced
    layer have to be recorded, and which are replayed as CUDA graphs. ``loaded`` is the folder of SDFGs that run in
    place of the compiled ones.
    """

    name: str
    layer: str
    builds: list[BuildReport]
    encoding_bytes: dict[str, int] = field(default_factory=dict[str, int])
    step_bytes: int = 0
    ranges: int = 1
    refusal: str | None = None
    calls: str | None = None
    loaded: str | None = None

    @property
    def largest(self) -> BuildReport | None:
        """Returns the build with the most gradients; None before the first call."""
        return max(self.builds, key=lambda build: len(build.gradients), default=None)


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
        return report_text(self)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, (tuple, set, frozenset)) else str(value)
