"""Makes tables of the lines of a run, and their geometric means."""

from __future__ import annotations

import math
from collections.abc import Sequence

from benchmarks.relational.record import Line, Summary, label_of
from dacergnn.bench.rates import BEATEN
from dacergnn.bench.scatter import Ratio, Steady, marked, noted, ratio_cell, time_cell
from dacergnn.tables import Table

LIBRARIES, PLAIN = ("pyg", "dgl", "compiled"), ("torch", "grouped")
"""Kinds of peers."""
Means = dict[tuple[str, str], tuple[Steady, Steady, int]]
"""Ratios of the fastest library layer and of the fastest plain variant over ours, and the number of cases, by model and
mode."""


def geometric_means(lines: Sequence[Line]) -> Means:
    """Returns the ratios over the data sets by model and mode.

    Where several levels were measured, those after the first stand under "<mode>@<level>"; where several numbers of
    features were, they stand under "<model> <features>".
    """
    several = len({line["hidden"] for line in lines}) > 1
    groups: dict[tuple[str, str], list[tuple[Ratio | None, Ratio | None]]] = {}
    for line in lines:
        case = Summary(line)
        for level in case.levels:
            mode = line["mode"] if level == case.levels[0] else f"{line['mode']}@{level}"
            model = f"{line['model']} {line['hidden']}" if several else line["model"]
            groups.setdefault((model, mode), []).append((case.ratio(level, *LIBRARIES), case.ratio(level, *PLAIN)))
    return {key: (Steady.of(a for a, _ in both), Steady.of(b for _, b in both), len(both))
            for key, both in groups.items()}  # fmt: skip


def number_cell(value: float | None, digits: int = 3) -> str:
    """Returns a number in a few digits."""
    return "-" if value is None else f"{value:.{digits}g}"


def row_table(lines: Sequence[Line]) -> Table:
    """Returns a row for each level of ours in each case, with times in milliseconds and memory in MB.

    The layer is our time without the loss, which the bound leaves out as well. The leanest library layer is that with
    the smallest peak of those that finish.
    """
    headings = ("model", "data", "mode", "level", "ours", "layer", "fastest library", "library", "library / ours",
                "fastest torch", "torch", "torch / ours", "bound", "layer / bound", "peak MB", "leanest library MB",
                "max error")  # fmt: skip
    peers = ("fastest library", "fastest torch")
    levels = () if any(len(Summary(line).levels) > 1 for line in lines) else ("level",)
    extra = (*levels, *peers, "layer", "bound", "leanest library MB", "max error")
    table = Table("Time of one layer (ms)", headings, keys=3, words=("level", *peers), extra=extra)
    several, apart = len({line["hidden"] for line in lines}) > 1, 0
    for line in lines:
        case, bound = Summary(line), line["bound_ms"]
        peaks = [c["peak_mb"] for c in case.candidates if c["library"] in LIBRARIES and c["peak_mb"] is not None]
        for level in case.levels or [""]:
            own, (layer, scattering) = case.own(level) or {}, case.layer(level)
            library, plain = (case.peer(*kinds, replayed=own.get("replayed", False)) for kinds in (LIBRARIES, PLAIN))
            cells = [
                f"{line['model']} {line['hidden']}" if several else line["model"], line["data"], line["mode"],
                level or "-", time_cell(own) if own.get("ms") else own.get("status", "not measured").partition(" ")[0],
                marked(number_cell(layer), scattering),
                "-" if library is None else label_of(library), time_cell(library),
                ratio_cell(case.ratio(level, *LIBRARIES), ".3g"),
                "-" if plain is None else label_of(plain), time_cell(plain),
                ratio_cell(case.ratio(level, *PLAIN), ".3g"), number_cell(bound),
                marked(number_cell(layer / bound if layer else None), scattering), number_cell(own.get("peak_mb")),
                number_cell(min(peaks, default=None)), number_cell(own.get("max_error"), 2),
            ]  # fmt: skip
            table.add_row(*cells)
            if (layer or math.inf) < bound:
                table.add_note(f"below bound: {BEATEN}")
            apart += (layer or 0) > (own.get("ms") or 0)
    if apart:
        table.add_note(f"ours and its layer are measured apart: in {apart} rows the layer alone took longer")
    return noted(table)


def candidate_table(line: Line) -> Table:
    """Returns a table of every candidate of one case, fastest first."""
    headings = ("candidate", "ms", "p20", "p80", "peak MB", "max error", "status")
    table = Table(f"{line['model']} on {line['data']}, {line['mode']}", headings, words=("status",))
    ordered = sorted(line["candidates"], key=lambda c: math.inf if c["ms"] is None else c["ms"])
    for c in ordered:
        error = number_cell(c["max_error"], 2) if c["function"] == "same" else "other function"
        numbers = [time_cell(c), *(number_cell(c.get(key)) for key in ("p20_ms", "p80_ms", "peak_mb"))]
        table.add_row(label_of(c), *numbers, error, f"{c['status']} {c['note']}".strip())
    return noted(table)


def geomean_table(means: Means) -> Table:
    """Returns a table of the geometric means by model and mode."""
    headings = ("model", "mode", "library / ours", "torch / ours", "cases")
    table = Table("Geometric means (smallest) over the data sets", headings, keys=2)
    for key, (library, plain, cases) in means.items():
        table.add_row(*key, library.text(form=".3g"), plain.text(form=".3g"), str(cases))
    return table
