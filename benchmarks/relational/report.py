"""Makes rows, geometric means, JSON and tables of a benchmark run."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.relational.bound import Bound
from benchmarks.relational.entry import Entry, fastest
from dacergnn.bench.environment import write_run
from dacergnn.bench.rates import BEATEN
from dacergnn.bench.scatter import NOTE, Ratio, Steady, marked, scatters, with_left_out
from dacergnn.tables import Table

Row = dict[str, Any]


def make_rows(model: str, data: str, mode: str, entries: list[Entry], bound: Bound) -> list[Row]:
    """Returns one row for each level of ours, or one row without our figures where ours was not measured.

    layer_ms is our time without the loss, which the bound leaves out as well. library is the fastest layer of PyG's
    and DGL's, torch the fastest plain variant; a ratio is their time over ours. library_peak_mb is the smallest peak of
    the library layers that finish. Missing values are None. "scattering" names the times that scatter.
    """
    libraries = [e for e in entries if e.candidate.library in ("pyg", "dgl")]
    library = fastest(libraries)
    plain = fastest([e for e in entries if e.candidate.library == "torch"])
    peaks = [e.peak_mb for e in libraries if e.peak_mb is not None]
    rows: list[Row] = []
    for own in [e for e in entries if e.candidate.library == "ours"] or [None]:
        ms = own.ms if own else None
        rows.append(
            {
                "model": model,
                "data": data,
                "mode": mode,
                "level": own.candidate.name if own else None,
                "ours_ms": ms,
                "layer_ms": _layer_ms(own, mode) if own else None,
                "library": library.label if library else None,
                "library_ms": library.ms if library else None,
                "ratio_library": _ratio(library, ms),
                "torch": plain.candidate.name if plain else None,
                "torch_ms": plain.ms if plain else None,
                "ratio_torch": _ratio(plain, ms),
                "scattering": [
                    name
                    for name, scattering in (
                        ("ours", own is not None and own.scatters),
                        ("layer", own is not None and (own if mode == "infer" else own.layer).scatters),
                        ("library", library is not None and library.scatters),
                        ("torch", plain is not None and plain.scatters),
                    )
                    if scattering
                ],
                "bound_ms": bound.ms,
                "ours_peak_mb": own.peak_mb if own else None,
                "library_peak_mb": min(peaks, default=None),
                "max_error": own.error if own else None,
                "bound_plan": bound.plan,
                "bound_limit": bound.limit,
                "ours_status": f"{own.status} {own.note}".strip() if own else "not measured",
                "candidates": [e.as_json() for e in entries],
            }
        )
    return rows


def _layer_ms(own: Entry, mode: str) -> float | None:
    """Returns milliseconds without the loss, which inference does not compute; None where that was not measured."""
    if mode == "infer":
        return own.ms
    return own.layer.ms if own.layer.samples else None


def _ratio(peer: Entry | None, ms: float | None) -> float | None:
    return peer.ms / ms if peer is not None and peer.ms is not None and ms else None


def geometric_means(rows: list[Row]) -> dict[str, dict[str, Any]]:
    """Returns, by model and mode, the means of both ratios over the data sets that have them, and the smallest ratios.

    Ratios of times that scatter are left out, and counted. Where several levels were measured, those after the first
    stand under "<mode>@<level>"; where several numbers of features were, they stand under "<model> <features>".
    """
    first = rows[0]["level"] if rows else None
    several = len(_widths(rows)) > 1
    result: dict[str, dict[str, Any]] = {}
    for row in rows:
        mode = row["mode"] if row["level"] == first else f"{row['mode']}@{row['level']}"
        model = f"{row['model']} {row['hidden']}" if several else row["model"]
        cell = result.setdefault(model, {}).setdefault(mode, {"cases": 0})
        cell["cases"] += 1
        for key in ("ratio_library", "ratio_torch"):
            ratio = None if row[key] is None else Ratio(row[key], _scatters(row, "ours", key.removeprefix("ratio_")))
            cell.setdefault(f"_{key}", []).append(ratio)
    for modes in result.values():
        for cell in modes.values():
            for key in ("ratio_library", "ratio_torch"):
                steady = Steady.of(cell.pop(f"_{key}"))
                cell[key] = steady.mean
                cell[f"smallest_{key}"] = min(steady.values, default=None)
                cell[f"left_out_{key}"] = steady.left_out
    return result


def _widths(rows: list[Row]) -> set[int]:
    """Returns the numbers of features; rows of old files do not say theirs."""
    return {row["hidden"] for row in rows if "hidden" in row}


def _scatters(row: Row, *times: str) -> bool:
    """Tells whether one of the times of a row scatters; rows of old files do not say."""
    return any(name in row.get("scattering", ()) for name in times)


@dataclass
class Report:
    """Holds all rows of a run with what they depend on."""

    rows: list[Row] = field(default_factory=list)
    rates: dict[str, Any] = field(default_factory=dict)
    """Measured rates by data set."""
    settings: dict[str, Any] = field(default_factory=dict)

    def add(self, other: Report) -> None:
        """Adds the rows of a run on this machine with another number of features."""
        width = other.settings["hidden"]
        self.rows += other.rows
        self.rates |= {f"{data}, {width} features": rates for data, rates in other.rates.items()}

    def write(self, path: Path) -> None:
        """Appends the rows to a file of JSON lines, after the settings, the rates and what else they depend on."""
        write_run(path, self.rows, settings=self.settings, rates=self.rates)


def _number(value: float | None, digits: int = 3) -> str:
    return "-" if value is None else f"{value:.{digits}g}"


def row_table(rows: list[Row]) -> Table:
    """Returns the rows as a table, with times in milliseconds and memory in MB."""
    headings = ("model", "data", "mode", "level", "ours", "layer", "fastest library", "library", "library / ours",
                "fastest torch", "torch", "torch / ours", "bound", "layer / bound", "peak MB", "leanest library MB",
                "max error")  # fmt: skip
    peers = ("fastest library", "fastest torch")
    levels = () if len({row["level"] for row in rows}) > 1 else ("level",)
    extra = (*levels, *peers, "layer", "bound", "leanest library MB", "max error")
    table = Table("Time of one layer (ms)", headings, keys=3, words=("level", *peers), extra=extra)
    several = len(_widths(rows)) > 1
    for row in rows:
        own, layer, bound = row["ours_ms"], row["layer_ms"], row["bound_ms"]
        status = row["ours_status"]

        def shown(value: float | None, *times: str, row: Row = row) -> str:
            return marked(_number(value), _scatters(row, *times))

        name = f"{row['model']} {row['hidden']}" if several else row["model"]
        table.add_row(
            name, row["data"], row["mode"], row["level"] or "-",
            shown(own, "ours") if own is not None else status.partition(" ")[0],
            shown(layer, "layer"), row["library"] or "-", shown(row["library_ms"], "library"),
            shown(row["ratio_library"], "ours", "library"),
            row["torch"] or "-", shown(row["torch_ms"], "torch"), shown(row["ratio_torch"], "ours", "torch"),
            _number(bound), shown(layer / bound if layer else None, "layer"),
            _number(row["ours_peak_mb"]), _number(row["library_peak_mb"]), _number(row["max_error"], 2),
        )  # fmt: skip
    apart = sum((row["layer_ms"] or 0) > (row["ours_ms"] or 0) for row in rows)
    if any(row.get("scattering") for row in rows):
        table.add_note(NOTE)
    if any((row["layer_ms"] or math.inf) < row["bound_ms"] for row in rows):
        table.add_note(f"below bound: {BEATEN}")
    if apart:
        table.add_note(f"ours and its layer are measured apart: in {apart} rows the layer alone took longer")
    return table


def candidate_table(row: Row) -> Table:
    """Returns a table of every candidate of one case, fastest first."""
    headings = ("candidate", "ms", "p20", "p80", "peak MB", "max error", "status")
    table = Table(f"{row['model']} on {row['data']}, {row['mode']}", headings, words=("status",))
    ordered = sorted(row["candidates"], key=lambda c: math.inf if c["ms"] is None else c["ms"])
    for c in ordered:
        error = _number(c["max_error"], 2) if c["function"] == "same" else "other function"
        numbers = [_number(c[key]) for key in ("ms", "p20_ms", "p80_ms", "peak_mb")]
        numbers[0] = marked(numbers[0], scatters(c))
        status = f"{c['status']} {c['note']}".strip()
        table.add_row(f"{c['library']} {c['name']}", *numbers, error, status)
    if any(map(scatters, ordered)):
        table.add_note(NOTE)
    return table


def geomean_table(means: dict[str, dict[str, Any]]) -> Table:
    """Returns a table of the geometric means by model and mode."""
    headings = ("model", "mode", "library / ours", "torch / ours", "cases")
    table = Table("Geometric means (smallest) over the data sets", headings, keys=2)
    for model, modes in means.items():
        for mode, cell in modes.items():
            ratios = [
                with_left_out(f"{_number(cell[key])} ({_number(cell[f'smallest_{key}'])})", cell[f"left_out_{key}"])
                for key in ("ratio_library", "ratio_torch")
            ]
            table.add_row(model, mode, *ratios, str(cell["cases"]))
    return table
