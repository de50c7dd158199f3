"""Holds the results of a case, a model on a graph in one mode, as a row with one for each of its candidates."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from benchmarks.named import Named
from benchmarks.relational.bound import Bound
from benchmarks.relational.settings import BenchSettings
from dacergnn.bench.scatter import Ratio, scatters
from dacergnn.json_lines import Row

Line = Row


def about(candidate: Named, function: str) -> Row:
    """Returns the row of a candidate that has not run.

    Args:
        function: The reference function that it computes; "" for another one.
    """
    return {
        "name": candidate.name,
        "library": candidate.library,
        "compiled": candidate.compiled,
        "replayed": candidate.replayed,
        "function": "same" if function else "of comparable cost",
        "status": "ok",
        "note": "",
        "ms": None,
        "max_error": None,
        "peak_mb": None,
    }


def label_of(row: Row) -> str:
    """Returns the library and the name of a candidate."""
    return f"{row['library']} {row['name']}"


def fastest(rows: Iterable[Row]) -> Row | None:
    """Returns the candidate with the smallest median, or None where none has a time."""
    return min((row for row in rows if row["ms"] is not None), key=lambda row: row["ms"], default=None)


def case_line(model: str, data: str, mode: str, candidates: list[Row], bound: Bound, **facts: Any) -> Line:
    """Returns the line of one measured case: its bound, every candidate, and further facts by name."""
    return {
        "model": model,
        "data": data,
        "mode": mode,
        "bound_ms": bound.ms,
        "bound_plan": bound.plan,
        "bound_limit": bound.limit,
        **facts,
        "candidates": candidates,
    }


def is_complete(line: Line, settings: BenchSettings) -> bool:
    """Tells whether a line has all results that settings ask for: ours at all levels are timed."""
    asked = {*settings.against} <= {*line["against"]} and settings.compiled <= line["compiled"]
    timed = {c["name"] for c in line["candidates"] if c["library"] == "ours" and c["ms"] is not None}
    return asked and settings.memory <= line["memory"] and (not settings.ours or {*settings.levels} <= timed)


class Summary:
    """Finds the best candidates of a line: ours by level, and the fastest peer of each kind."""

    def __init__(self, line: Line) -> None:
        self.line = line
        self.candidates: list[Line] = line["candidates"]

    @property
    def levels(self) -> list[str]:
        """Returns the levels of ours; those that are replayed count as others."""
        return [c["name"] for c in self.candidates if c["library"] == "ours"]

    def layer(self, level: str) -> tuple[float | None, bool]:
        """Returns our time at a level without the loss, and whether it scatters; inference computes no loss."""
        prefix = "" if self.line["mode"] == "infer" else "layer_"
        own = self.own(level) or {}
        return own.get(f"{prefix}ms"), scatters(own, f"{prefix}ms")

    def own(self, level: str) -> Line | None:
        """Returns our layer at a level."""
        return next((c for c in self.candidates if c["library"] == "ours" and c["name"] == level), None)

    def peer(self, *kinds: str, replayed: bool = False) -> Line | None:
        """Returns the fastest other layer of these kinds; with ``replayed``, replayed ones count as well."""
        chosen = (c for c in self.candidates if kind_of(c) in kinds)
        return fastest(c for c in chosen if replayed or not c["replayed"])

    def ratio(self, level: str, *kinds: str) -> Ratio | None:
        """Returns the time of the fastest layer of these kinds over ours; replayed ones count beside a replayed one."""
        own = self.own(level) or {}
        peer = self.peer(*kinds, replayed=own.get("replayed", False))
        return None if peer is None else Ratio.of(peer, own)


def kind_of(candidate: Line) -> str:
    """Returns the library of a candidate; "compiled" for its layers through torch.compile."""
    return "compiled" if candidate["compiled"] else candidate["library"]
