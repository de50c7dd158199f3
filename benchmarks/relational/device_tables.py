"""Makes Markdown of results on a CUDA device: times, memory, and geometric means beside those that Hector reports."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from benchmarks.relational.record import PEERS, Line, Summary, kind_of, merged, ms_of, width_of
from benchmarks.relational.report import number_cell, ratio_cell, time_cell
from dacergnn.bench.scatter import NOTE, Ratio, Steady, scatters
from dacergnn.tables import Table

LARGE = 1_000_000
"""Least number of edges of a graph in means of the bound's share: smaller graphs do not fill a device."""
CARD = 24 << 30
"""Bytes of the card on which Hector was measured, an RTX 3090 (section 4.1)."""
HECTOR = {
    ("rgcn", "infer"): 1.79, ("rgat", "infer"): 8.56, ("hgt", "infer"): 2.87,
    ("rgcn", "train"): 2.59, ("rgat", "train"): 11.34, ("hgt", "train"): 8.02,
}  # fmt: skip
"""Hector's speed-ups over the best of DGL, PyG, Seastar, Graphiler and HGL: geometric means over the eight graphs, as
its section 4.2 gives them. For RGCN its table 4 has 1.91 and 2.76; the figures of the text are those of code without
optimizations there."""
_CASE = ("model", "graph", "mode", "precision", "features")


def markdown(lines: Iterable[Line]) -> str:
    """Returns the machine, and tables of times, of memory and of geometric means."""
    lines = list(lines)
    machine = next((line for line in reversed(lines) if "environment" in line), None)
    cases = [Summary(line) for line in merged(lines)]
    memory = None if machine is None else machine.get("memory_bytes")
    tables = (_times(cases), _memory(cases, memory), _means(cases))
    parts = [*([] if machine is None else [_machine(machine)]), *(table.markdown() for table in tables)]
    text = "\n\n".join(parts) + "\n"
    return f"{text}\n\\{NOTE}.\n" if any(scatters(c) for case in cases for c in case.candidates) else text


def _machine(line: Line) -> str:
    """Returns the device, versions, rates, absent peers and command of a run."""
    facts = line["environment"] | {name: f"{value:.4g}" for name, value in line["rates"].items()}
    told = [*(f"- {name}: {value}" for name, value in facts.items()), *(f"- {text}" for text in line.get("absent", ()))]
    return "\n".join([*told, "", f"    {line['command']}"])


def _times(cases: list[Summary]) -> Table:
    """Returns the milliseconds of ours, and of the fastest peer of each kind with its name."""
    head = ("O2", "replayed", "hector", "PyG", "PyG compiled", "DGL", "plain torch", "_grouped_mm",
            "ratio", "replayed", "bound", "share")  # fmt: skip

    def cells(case: Summary) -> list[str]:
        own = case.own("O2")
        return [
            time_cell(own) if ms_of(own) else (own or {}).get("status", case.line.get("status", "-")),
            time_cell(case.own("O2", replayed=True)),
            time_cell(case.own("hector")),
            *(_named(case.peer(kind)) for kind in PEERS),
            ratio_cell(case.ratio()),
            ratio_cell(case.ratio(replayed=True)),
            number_cell(case.line["bound_ms"]),
            ratio_cell(case.share),
        ]

    return Table("", (*_CASE, *head), len(_CASE), rows=[[*_case(case), *cells(case)] for case in cases])


def _memory(cases: list[Summary], device: float | None) -> Table:
    """Returns peaks in MB beyond graph and features, and what fits with these in 24 GB and on the device."""
    head = ("graph MB", "O2 MB", "hector MB", "leanest peer", "MB", "O2 in 24 GB", "peers in 24 GB", "O2 here",
            "peers here")  # fmt: skip

    def cells(case: Summary) -> list[str]:
        peers = [c for c in case.candidates if kind_of(c) in PEERS and not c["replayed"]]
        lean = min((c for c in peers if c["ms"] and c["peak_mb"]), key=lambda c: c["peak_mb"], default=None)
        resident = case.line.get("resident_bytes")

        def fit(limit: float | None) -> tuple[str, str]:
            own = fits(case.own("O2"), resident, limit)
            known = [f for f in (fits(peer, resident, limit) for peer in peers) if f is not None]
            return {True: "yes", False: "no", None: "-"}[own], f"{sum(known)} of {len(known)}" if known else "-"

        return [
            number_cell(None if resident is None else resident / 1e6, 4),
            *(number_cell((case.own(level) or {}).get("peak_mb"), 4) for level in ("O2", "hector")),
            *(("-", "-") if lean is None else (f"{lean['library']} {lean['name']}", number_cell(lean["peak_mb"], 4))),
            *fit(CARD),
            *fit(device),
        ]

    return Table("", (*_CASE, *head), len(_CASE), rows=[[*_case(case), *cells(case)] for case in cases])


def fits(candidate: Line | None, resident: float | None, limit: float | None) -> bool | None:
    """Tells whether a candidate, with the bytes of graph and features, fits in a memory; None where it is unknown.

    What ran out of memory on the device that measured it counts as too large for any.
    """
    if candidate is not None and candidate["status"] == "out of memory":
        return False
    if candidate is None or limit is None or resident is None or candidate["peak_mb"] is None:
        return None
    return resident + 1e6 * candidate["peak_mb"] <= limit


def _means(cases: list[Summary]) -> Table:
    """Returns rows of geometric means, with the smallest values; means of shares are over large graphs alone."""
    head = ("model", "mode", "precision", "features", "graphs", "peer / O2", "replayed", "library / O2",
            "Hector's own (4.2)", "hector / O2", "bound / O2, large graphs")  # fmt: skip
    groups: dict[tuple[str, str, str, str], list[Summary]] = {}
    for case in cases:
        model, _, mode, precision, width = _case(case)
        groups.setdefault((model, mode, precision, width), []).append(case)
    rows: list[list[str]] = []
    for names, group in groups.items():
        large = [case for case in group if case.line["edges"] >= LARGE]
        rows.append(
            [
                *names,
                str(len(group)),
                _mean(group, lambda case: case.ratio()),
                _mean(group, lambda case: case.ratio(replayed=True)),
                _mean(group, lambda case: case.ratio(kinds=("pyg", "compiled", "dgl"))),
                number_cell(HECTOR.get(names[:2]) if names[2:] == ("float32", "64") else None, 4),
                _mean(group, _over_hector),
                _mean(large, lambda case: case.share),
            ]
        )
    return Table("", head, 4, rows=rows)


def _over_hector(case: Summary) -> Ratio | None:
    return Ratio.of(case.own("hector") or {}, case.own("O2") or {})


def _mean(cases: list[Summary], value: Callable[[Summary], Ratio | None]) -> str:
    return Steady.of(map(value, cases)).text(form=".3g")


def _case(case: Summary) -> list[str]:
    line = case.line
    return [line["model"], line["data"], line["mode"], line["precision"], str(width_of(line))]


def _named(candidate: Line | None) -> str:
    return "-" if candidate is None else f"{time_cell(candidate)} ({candidate['name']})"
