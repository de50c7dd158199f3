"""Describes what is measured together: one network on one graph, and the ways to compute it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from benchmarks.caching.scheme import Scheme
from dacergnn.config import Rates


@dataclass(frozen=True)
class Task:
    """Describes a network on a graph."""

    model: str
    data: str
    network: str
    """"layer" for one layer on random features, "network" for two on those of the data set, "sparse" for two whose
    first takes the features as a sparse tensor."""
    features: int
    """Input features of a single layer."""
    hidden: int
    """Output features of a single layer, or features between two layers; of each head where there are heads."""
    heads: int = 1
    input_gradient: bool = False

    def __str__(self) -> str:
        size = f"{self.heads} x {self.hidden}" if self.heads > 1 else str(self.hidden)
        gradient = ", with input gradient" if self.input_gradient else ""
        return f"{self.model} on {self.data}, {self.network}, {size}{gradient}"


@dataclass(frozen=True)
class CachingCandidate:
    """Describes one way to compute a task: `library` is "ours", with a scheme, "pyg" or "dgl"."""

    library: str
    name: str
    scheme: Scheme | None = None

    @property
    def compiled(self) -> bool:
        """Tells whether the candidate runs through torch.compile."""
        return self.name.endswith("compiled")


@dataclass(frozen=True)
class Limits:
    """Describes the modes of measurements, and their limits of threads, repetitions, seconds and bytes."""

    modes: tuple[str, ...] = ("infer", "forward", "train")
    threads: int = 2
    seed: int = 0
    repeat: int = 30
    budget_s: float = 5.0
    """Seconds for the timing of one candidate."""
    trial_limit_s: float = 300.0
    """Seconds of a process for each candidate that it measures."""
    limit_bytes: int = 12 << 30
    device: str = "cpu"
    """Type of torch's device that everything runs on: "cpu" or "cuda"."""
    rates: Rates | None = None
    """Rates that our layers are compiled by; None for typical ones."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "modes", tuple(self.modes))


@dataclass(frozen=True)
class Request:
    """Describes what a worker process measures: the times of all candidates, or the peak memory of the only one."""

    task: Task
    candidates: tuple[CachingCandidate, ...]
    what: str
    limits: Limits = field(default_factory=Limits)

    def as_json(self) -> dict[str, Any]:
        """Returns the request, with the limits of the process itself at the top."""
        own = {name: getattr(self.limits, name) for name in ("threads", "limit_bytes", "device")}
        return {**asdict(self), **own}

    @classmethod
    def of_json(cls, values: dict[str, Any]) -> Request:
        """Makes a request of the values that `as_json` has returned."""
        return cls(
            Task(**values["task"]),
            tuple(_candidate(values) for values in values["candidates"]),
            values["what"],
            _limits(values["limits"]),
        )


def _limits(values: dict[str, Any]) -> Limits:
    rates: dict[str, float] | None = values["rates"]
    return replace(Limits(**values), rates=None if rates is None else Rates(**rates))


def _candidate(values: dict[str, Any]) -> CachingCandidate:
    scheme = values["scheme"]
    return CachingCandidate(values["library"], values["name"], None if scheme is None else Scheme(**scheme))
