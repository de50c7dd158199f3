"""Makes tables of the rows of a run, and their geometric means."""

from __future__ import annotations

import math
from collections.abc import Sequence

from benchmarks.rows import OURS, Group, grouped, label, least
from dacergnn.bench.rates import BEATEN
from dacergnn.bench.scatter import Ratio, Steady, marked, noted, ratio_cell, scatters, time_cell
from dacergnn.json_lines import Row
from dacergnn.tables import Table

LIBRARIES, PLAIN = ("pyg", "dgl", "compiled"), ("torch", "grouped")
"""Kinds of peers."""
Means = dict[tuple[str, str], tuple[Steady, Steady, int]]
"""Ratios of the fastest library layer and of the fastest plain variant over ours, and the number of cases, by model and
mode."""


def geometric_means(rows: Sequence[Row]) -> Means:
    """Returns the ratios over the data sets by model and mode.

    Where several levels were measured, those after the first stand under "<mode>@<level>"; where several numbers of
    features were, they stand under "<model> <features>".
    """
    ratios: dict[tuple[str, str], list[tuple[Ratio | None, Ratio | None]]] = {}
    for case in grouped(rows):
        levels = _levels(case)
        for own in levels:
            mode = case["mode"] if own is levels[0] else f"{case['mode']}@{own['name']}"
            both = case.speedup(own, "ms", *LIBRARIES), case.speedup(own, "ms", *PLAIN)
            ratios.setdefault((_model(case, rows), mode), []).append(both)
    return {key: (Steady.of(a for a, _ in both), Steady.of(b for _, b in both), len(both))
            for key, both in ratios.items()}  # fmt: skip


def _levels(case: Group) -> list[Row]:
    """Returns the rows of ours, also of those that failed; steps that are replayed count as levels of their own."""
    return [row for row in case.rows if row["library"] == OURS]


def _model(case: Group, rows: Sequence[Row]) -> str:
    """Returns the model of a case, with its features where several numbers of them were measured."""
    return f"{case['model']} {case['hidden']}" if len({row["hidden"] for row in rows}) > 1 else case["model"]


def number_cell(value: float | None, digits: int = 3) -> str:
    """Returns a number in a few digits."""
    return "-" if value is None else f"{value:.{digits}g}"


def row_table(rows: Sequence[Row]) -> Table:
    """Returns a row for each level of ours in each case, with times in milliseconds and memory in MB.

    The layer is our time without the loss, which inference and the bound leave out as well. The leanest library layer
    is that with the smallest peak of those that finish.
    """
    headings = ("model", "data", "mode", "level", "ours", "layer", "fastest library", "library", "library / ours",
                "fastest torch", "torch", "torch / ours", "bound", "layer / bound", "peak MB", "leanest library MB",
                "max error")  # fmt: skip
    peers, cases = ("fastest library", "fastest torch"), grouped(rows)
    levels = () if any(len(_levels(case)) > 1 for case in cases) else ("level",)
    extra = (*levels, *peers, "layer", "bound", "leanest library MB", "max error")
    table = Table("Time of one layer (ms)", headings, keys=3, words=("level", *peers), extra=extra)
    apart, nothing = 0, {"name": "-", "status": "not measured"}
    for case in cases:
        bound, leanest = case["bound_ms"], least(case.peers(*LIBRARIES), "peak_mb")
        time = "ms" if case["mode"] == "infer" else "layer_ms"
        for own in _levels(case) or [nothing]:
            layer, scattering, replayed = own.get(time), scatters(own, time), own.get("replayed", False)
            library, plain = (least(case.peers(*kinds, replayed=replayed), "ms") for kinds in (LIBRARIES, PLAIN))
            cells = [
                _model(case, rows), case["data"], case["mode"], own["name"],
                time_cell(own) if own.get("ms") else own["status"].partition(" ")[0],
                marked(number_cell(layer), scattering),
                "-" if library is None else label(library), time_cell(library),
                ratio_cell(case.speedup(own, "ms", *LIBRARIES), ".3g"),
                "-" if plain is None else label(plain), time_cell(plain),
                ratio_cell(case.speedup(own, "ms", *PLAIN), ".3g"), number_cell(bound),
                marked(number_cell(layer / bound if layer else None), scattering), number_cell(own.get("peak_mb")),
                time_cell(leanest, "peak_mb"), number_cell(own.get("max_error"), 2),
            ]  # fmt: skip
            table.add_row(*cells)
            if (layer or math.inf) < bound:
                table.add_note(f"below bound: {BEATEN}")
            apart += (layer or 0) > (own.get("ms") or 0)
    if apart:
        table.add_note(f"ours and its layer are measured apart: in {apart} rows the layer alone took longer")
    return noted(table)


def candidate_table(case: Group) -> Table:
    """Returns a table of every candidate of one case, fastest first."""
    headings = ("candidate", "ms", "p20", "p80", "peak MB", "max error", "status")
    table = Table(f"{case['model']} on {case['data']}, {case['mode']}", headings, words=("status",))
    for row in sorted(case.rows, key=lambda row: math.inf if row["ms"] is None else row["ms"]):
        error = number_cell(row["max_error"], 2) if row["function"] == "same" else "other function"
        numbers = [time_cell(row), *(number_cell(row.get(key)) for key in ("p20_ms", "p80_ms", "peak_mb"))]
        table.add_row(label(row), *numbers, error, f"{row['status']} {row['note']}".strip())
    return noted(table)


def geomean_table(means: Means) -> Table:
    """Returns a table of the geometric means by model and mode."""
    headings = ("model", "mode", "library / ours", "torch / ours", "cases")
    table = Table("Geometric means (smallest) over the data sets", headings, keys=2)
    for key, (library, plain, cases) in means.items():
        table.add_row(*key, library.text(form=".3g"), plain.text(form=".3g"), str(cases))
    return table
