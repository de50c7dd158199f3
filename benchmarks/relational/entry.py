"""Defines the result of one candidate in one case."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from benchmarks.relational.candidate import Candidate
from dacergnn.bench.measure import Timing


@dataclass
class Entry:
    """Holds one candidate's times, error and memory; where it has no time, `status` says why."""

    candidate: Candidate
    timing: Timing = field(default_factory=Timing)
    status: str = "ok"
    error: float | None = None
    """Largest relative error against the float64 reference; None where the function is another one."""
    peak_mb: float | None = None
    note: str = ""
    layer: Timing = field(default_factory=Timing)
    """Times of a training step without its loss, where they were measured."""

    @property
    def label(self) -> str:
        """Returns the library and the name."""
        return f"{self.candidate.library} {self.candidate.name}"

    @property
    def ms(self) -> float | None:
        return self.timing.ms if self.timing.samples and self.status == "ok" else None

    @property
    def scatters(self) -> bool:
        return self.timing.scatters

    def as_json(self) -> dict[str, Any]:
        """Returns all that is known of the candidate, for the list of candidates in a row."""
        timed = self.timing.as_json() if self.ms is not None else {}
        return {
            "name": self.candidate.name,
            "library": self.candidate.library,
            "status": self.status,
            "function": "same" if self.candidate.function else "of comparable cost",
            **{name: timed.get(name) for name in ("ms", "p20_ms", "p80_ms")},
            "samples": len(self.timing.samples),
            "max_error": self.error,
            "peak_mb": self.peak_mb,
            "note": self.note,
        }


def fastest(entries: list[Entry]) -> Entry | None:
    """Returns the entry with the smallest median, or None where none has a time."""
    timed = [entry for entry in entries if entry.ms is not None]
    return min(timed, key=lambda entry: entry.timing.ms, default=None)
