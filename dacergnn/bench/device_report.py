"""Writes results on a CUDA device, a line of JSON for each case, and makes tables of them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from dacergnn.bench.bound import Bound
from dacergnn.bench.entry import Entry

Line = dict[str, Any]
LARGE = 1_000_000
"""Least number of edges of a graph in means of the bound's share: smaller graphs do not fill a device."""


def case_line(model: str, data: str, mode: str, entries: list[Entry], bound: Bound, **facts: Any) -> Line:
    """Returns the line of one measured case: its bound, every candidate, and further facts by name."""
    return {
        "model": model,
        "data": data,
        "mode": mode,
        "bound_ms": bound.ms,
        "bound_plan": bound.plan,
        "bound_limit": bound.limit,
        **facts,
        "candidates": [e.as_json() | {"compiled": e.candidate.compiled, "replayed": e.candidate.replayed}
                       for e in entries],
    }  # fmt: skip


def append_line(path: Path, line: Line) -> None:
    """Appends a line to a file, and closes the file."""
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")


def read_lines(path: Path) -> list[Line]:
    """Returns all lines of a file, or none without a file; skips lines that a killed process left incomplete."""
    lines: list[Line] = []
    for text in path.read_text().splitlines() if path.exists() else []:
        try:
            lines.append(json.loads(text))
        except ValueError:
            continue
    return lines


def key_of(line: Line) -> tuple[str, ...]:
    """Returns the key of a line; lines of the same case have the same key."""
    return tuple(str(line[name]) for name in ("data", "model", "mode", "precision"))


def is_complete(line: Line, levels: Iterable[str], against: Iterable[str]) -> bool:
    """Tells whether a line has all results for these levels and peers: ours are timed, and nothing is skipped."""
    if not set(against) <= set(line.get("against", ())):
        return False
    candidates: list[Line] = line.get("candidates", [])
    timed = {c["name"] for c in candidates if c["library"] == "ours" and c["ms"] is not None}
    return set(levels) <= timed and all(c["status"] != "skipped" for c in candidates)


class Summary:
    """Finds the best candidates of a line: ours by level, the fastest library layer, the fastest plain one."""

    def __init__(self, line: Line) -> None:
        self.line = line
        self.candidates: list[Line] = line["candidates"]

    def own(self, level: str, *, replayed: bool = False) -> Line | None:
        """Returns our layer at a level."""
        name = f"{level} replayed" if replayed else level
        return next((c for c in self.candidates if c["library"] == "ours" and c["name"] == name), None)

    def peer(self, *libraries: str, replayed: bool = False) -> Line | None:
        """Returns the fastest other layer; with ``replayed``, replayed ones count as well."""
        timed = [c for c in self.candidates if c["library"] in libraries and c["ms"] is not None]
        return min((c for c in timed if replayed or not c["replayed"]), key=lambda c: c["ms"], default=None)

    def ratio(self, level: str = "O2", *, replayed: bool = False) -> float | None:
        """Returns the time of the fastest other layer over ours; with ``replayed``, replayed ones count for both."""
        peer = self.peer("pyg", "torch", replayed=replayed)
        times = [_ms(self.own(level)), _ms(self.own(level, replayed=True)) if replayed else None]
        own = min((ms for ms in times if ms is not None), default=None)
        return None if peer is None or own is None else peer["ms"] / own

    @property
    def share(self) -> float | None:
        """Returns the bound over our time at level O2, replayed or not, whichever is faster."""
        times = [ms for ms in (_ms(self.own("O2")), _ms(self.own("O2", replayed=True))) if ms is not None]
        return self.line["bound_ms"] / min(times) if times and self.line["bound_ms"] else None


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
        own, again = _ms(Summary(first).own("O2")), _ms(Summary(line).own("O2"))
        scale = own / again if own and again else 1.0
        places = {(c["library"], c["name"]): n for n, c in enumerate(first["candidates"])}
        for candidate in line["candidates"]:
            ms, place = candidate["ms"], places.get((candidate["library"], candidate["name"]))
            scaled = candidate | {"ms": None if ms is None else ms * scale}
            if place is None:
                first["candidates"].append(scaled)
            elif ms is not None and first["candidates"][place]["ms"] is None:
                first["candidates"][place] = scaled
    return list(by_case.values())


def markdown(lines: Iterable[Line]) -> str:
    """Returns the machine, a table of all cases, and the geometric means by model and mode, as Markdown."""
    lines = list(lines)
    cases = [Summary(line) for line in merged(lines)]
    head = ("model", "graph", "mode", "precision", "O2", "replayed", "hector", "fastest library", "ms",
            "fastest plain", "ms", "ratio", "replayed", "bound", "share", "peak MB", "leanest peer MB")  # fmt: skip
    rows = [_cells(case) for case in cases]
    table = [_row(head), _row("---" if i < 4 else "---:" for i in range(len(head))), *map(_row, rows)]
    return "\n".join([*_machine(lines), *table, "", *_means(cases)]) + "\n"


def _machine(lines: list[Line]) -> list[str]:
    """Returns the device, versions, rates and command of the last run."""
    last = next((line for line in reversed(lines) if "environment" in line), None)
    if last is None:
        return []
    facts = last["environment"] | {name: f"{value:.4g}" for name, value in last["rates"].items()}
    return [*(f"- {name}: {value}" for name, value in facts.items()), "", f"    {last['command']}", ""]


def _cells(case: Summary) -> list[str]:
    line = case.line
    library, plain = case.peer("pyg"), case.peer("torch")
    own = case.own("O2")
    peaks = [c["peak_mb"] for c in case.candidates if c["library"] != "ours" and c["ms"] and c["peak_mb"]]
    return [
        *(line["model"], line["data"], line["mode"], line["precision"]),
        _number(_ms(own)) if _ms(own) else (own or {}).get("status", line.get("status", "-")),
        _number(_ms(case.own("O2", replayed=True))),
        _number(_ms(case.own("hector"))),
        *_named(library),
        *_named(plain),
        _number(case.ratio()),
        _number(case.ratio(replayed=True)),
        _number(line["bound_ms"]),
        _number(case.share),
        _number((own or {}).get("peak_mb"), 4),
        _number(min(peaks, default=None), 4),
    ]


def _means(cases: list[Summary]) -> list[str]:
    """Returns rows of geometric means, with the smallest values; means of shares are over large graphs alone."""
    head = ("model", "mode", "precision", "graphs", "peer / O2", "replayed", "hector / O2", "bound / O2, large graphs")
    table = [_row(head), _row("---" if i < 3 else "---:" for i in range(len(head)))]
    groups: dict[tuple[str, str, str], list[Summary]] = {}
    for case in cases:
        groups.setdefault((case.line["model"], case.line["mode"], case.line["precision"]), []).append(case)
    for names, group in groups.items():
        large = [case for case in group if case.line["edges"] >= LARGE]
        table.append(
            _row(
                [
                    *names,
                    str(len(group)),
                    _mean(group, lambda case: case.ratio()),
                    _mean(group, lambda case: case.ratio(replayed=True)),
                    _mean(group, _over_hector),
                    _mean(large, lambda case: case.share),
                ]
            )
        )
    return table


def _over_hector(case: Summary) -> float | None:
    ours, hector = _ms(case.own("O2")), _ms(case.own("hector"))
    return hector / ours if ours and hector else None


def _mean(cases: list[Summary], value: Callable[[Summary], float | None]) -> str:
    values = [v for v in map(value, cases) if v is not None]
    if not values:
        return "-"
    return f"{math.exp(sum(map(math.log, values)) / len(values)):.3g} ({min(values):.3g})"


def _ms(candidate: Line | None) -> float | None:
    return None if candidate is None else candidate["ms"]


def _named(candidate: Line | None) -> tuple[str, str]:
    return ("-", "-") if candidate is None else (candidate["name"], _number(candidate["ms"]))


def _number(value: float | None, digits: int = 3) -> str:
    return "-" if value is None else f"{value:.{digits}g}"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
