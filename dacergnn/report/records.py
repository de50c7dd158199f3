"""Defines what `explain` reports of a layer and of its builds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dacergnn.cost import Cost
from dacergnn.plan import Plan
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
