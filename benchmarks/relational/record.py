"""Holds the results of a case, a model on a graph in one mode, as a row with one for each of its candidates."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.relational.bound import Bound
from benchmarks.relational.candidate import Candidate
from dacergnn.bench.scatter import Ratio, scatters
from dacergnn.json_lines import Row, Writer, load

Line = Row
PEERS = ("pyg", "compiled", "dgl", "torch", "grouped")
"""Kinds of peers; "compiled" are layers of PyG through torch.compile."""


def about(candidate: Candidate) -> Row:
    """Returns the row of a candidate that has not run."""
    return {
        "name": candidate.name,
        "library": candidate.library,
        "compiled": candidate.compiled,
        "replayed": candidate.replayed,
        "function": "same" if candidate.function else "of comparable cost",
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


def append_line(path: Path, line: Line) -> None:
    """Appends a line to a file, after it has removed one that a killed process left incomplete."""
    Writer(path).write([line])


def read_lines(path: Path) -> list[Line]:
    """Returns all lines of a file, or none without a file."""
    return load(path) if path.exists() else []


def key_of(line: Line) -> tuple[str, ...]:
    """Returns the key of a line; lines of the same case have the same key."""
    return (*(str(line[name]) for name in ("data", "model", "mode", "precision")), str(width_of(line)))


def width_of(line: Line) -> int:
    """Returns the number of features of a line's case; files of earlier versions hold cases of 64 alone."""
    return line.get("hidden", 64)


def is_complete(line: Line, levels: Iterable[str], against: Iterable[str]) -> bool:
    """Tells whether a line has all results for these levels and peers: ours are timed, and nothing is skipped."""
    if not set(against) <= set(line.get("against", ())):
        return False
    candidates: list[Line] = line.get("candidates", [])
    timed = {c["name"] for c in candidates if c["library"] == "ours" and c["ms"] is not None}
    return set(levels) <= timed and all(c["status"] != "skipped" for c in candidates)


class Summary:
    """Finds the best candidates of a line: ours by level, and the fastest peer of each kind."""

    def __init__(self, line: Line) -> None:
        self.line = line
        self.candidates: list[Line] = line["candidates"]

    @property
    def levels(self) -> list[str]:
        """Returns the levels of ours."""
        return [c["name"] for c in self.candidates if c["library"] == "ours" and not c["replayed"]]

    def layer(self, level: str) -> tuple[float | None, bool]:
        """Returns our time at a level without the loss, and whether it scatters; inference computes no loss."""
        prefix = "" if self.line["mode"] == "infer" else "layer_"
        own = self.own(level) or {}
        return own.get(f"{prefix}ms"), scatters(own, f"{prefix}ms")

    def own(self, level: str, *, replayed: bool = False) -> Line | None:
        """Returns our layer at a level."""
        name = f"{level} replayed" if replayed else level
        return next((c for c in self.candidates if c["library"] == "ours" and c["name"] == name), None)

    def peer(self, *kinds: str, replayed: bool = False) -> Line | None:
        """Returns the fastest other layer of these kinds; with ``replayed``, replayed ones count as well."""
        chosen = (c for c in self.candidates if kind_of(c) in kinds)
        return fastest(c for c in chosen if replayed or not c["replayed"])

    def fastest_own(self, level: str, *, replayed: bool) -> Line | None:
        """Returns our layer at a level; with ``replayed``, the replayed one if it is faster."""
        both = [self.own(level), self.own(level, replayed=True) if replayed else None]
        return fastest(own for own in both if own is not None)

    def ratio(self, level: str = "O2", *, kinds: Iterable[str] = PEERS, replayed: bool = False) -> Ratio | None:
        """Returns the time of the fastest other layer over ours; with ``replayed``, replayed ones count for both."""
        peer, own = self.peer(*kinds, replayed=replayed), self.fastest_own(level, replayed=replayed)
        return None if peer is None or own is None else Ratio.of(peer, own)

    @property
    def share(self) -> Ratio | None:
        """Returns the bound over our time at level O2, replayed or not, whichever is faster."""
        own, bound = self.fastest_own("O2", replayed=True), self.line["bound_ms"]
        return Ratio(bound / own["ms"], scatters(own)) if own is not None and bound else None


def kind_of(candidate: Line) -> str:
    """Returns "ours", or one of `PEERS`."""
    return "compiled" if candidate["compiled"] else candidate["library"]


def ms_of(candidate: Line | None) -> float | None:
    """Returns a candidate's time, None where there is none."""
    return None if candidate is None else candidate["ms"]


def merged(lines: Iterable[Line]) -> list[Line]:
    """Returns one line for each case; candidates that have no time in an earlier line come from later ones.

    Times of a later line are scaled by the ratio of our times in both, since processes differ.
    """
    by_case: dict[tuple[str, ...], Line] = {}
    for line in lines:
        if "candidates" not in line:
            continue
        first = by_case.setdefault(key_of(line), line | {"candidates": []})
        if first["bound_ms"] is None:
            by_case[key_of(line)] = first = line | {"candidates": first["candidates"]}
        own, again = ms_of(Summary(first).own("O2")), ms_of(Summary(line).own("O2"))
        scale = own / again if own and again else 1.0
        places = {(c["library"], c["name"]): n for n, c in enumerate(first["candidates"])}
        for candidate in line["candidates"]:
            ms, place = candidate["ms"], places.get((candidate["library"], candidate["name"]))
            times = {name: candidate.get(name) for name in ("ms", "p20_ms", "p80_ms")}
            scaled = candidate | {name: None if time is None else time * scale for name, time in times.items()}
            if place is None:
                first["candidates"].append(scaled)
            elif ms is not None and first["candidates"][place]["ms"] is None:
                first["candidates"][place] = scaled
    return list(by_case.values())
