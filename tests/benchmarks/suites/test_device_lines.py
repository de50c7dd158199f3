"""Lines and tables of the benchmark for CUDA devices."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.relational import device_run as gpu
from benchmarks.relational import plain_torch
from benchmarks.relational.bound import Bound
from benchmarks.relational.device_tables import CARD, HECTOR, fits, markdown
from benchmarks.relational.record import (
    Line,
    Summary,
    about,
    append_line,
    case_line,
    is_complete,
    merged,
    read_lines,
)
from dacergnn.bench.measure import Timing
from dacergnn.bench.scatter import Ratio
from dacergnn.json_lines import Row


def entry(library: str, name: str, ms: float | None, **flags: bool) -> Row:
    candidate = replace(plain_torch.candidates("rgcn")[0], name=name, library=library, **flags)
    timed = {"status": "failed"} if ms is None else Timing([ms / 1e3]).as_json()
    return about(candidate) | timed | {"peak_mb": ms}


def line(data: str, *rows: Row, edges: int = 2_000_000) -> Line:
    return case_line("rgcn", data, "train", list(rows), Bound(1.0, "compact", "FLOP"), precision="float32",
                     edges=edges)  # fmt: skip


def rows_of(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in row.split("|")[1:-1]] for row in table.splitlines()]


def test_tables() -> None:
    big = line("am~", entry("ours", "O2", 2.0), entry("ours", "hector", 3.0), entry("pyg", "RGCNConv", 20.0),
               entry("pyg", "RGCNConv compiled", 10.0, compiled=True), entry("dgl", "RelGraphConv", 12.0),
               entry("torch", "sources", 8.0), entry("grouped", "sources", 16.0),
               entry("torch", "edges", None))  # fmt: skip
    small = line(
        "aifb~", entry("ours", "O2", 4.0), entry("ours", "O2 replayed", 0.5, replayed=True),
        entry("torch", "sources", 8.0), entry("torch", "sources replayed", 2.0, replayed=True), edges=9,
    )  # fmt: skip
    summary = Summary(small)
    assert [summary.ratio(), summary.ratio(replayed=True), summary.share] == [Ratio(2.0), Ratio(4.0), Ratio(2.0)]
    machine = {"command": "python gpu.py --data am", "environment": {"gpu": "H200"}, "rates": {"copy_gb_s": 4100.04},
               "memory_bytes": 10e6, "absent": ["dgl is left out: no CUDA"]}  # fmt: skip
    lines = [machine, big | {"resident_bytes": 5e6}, small, gpu.failed_line("hgt", "mag~", "infer", "float32", "ended")]
    head, command, times, memory, means = markdown(lines).split("\n\n")
    assert head.splitlines() == ["- gpu: H200", "- copy_gb_s: 4100", "- dgl is left out: no CUDA"]
    assert command == "    python gpu.py --data am"
    first, _, *rows = rows_of(times)
    assert rows[0][:4] == ["rgcn", "am~", "train", "float32"]
    assert rows[0][5:] == ["2", "-", "3", "20 (RGCNConv)", "10 (RGCNConv compiled)", "12 (RelGraphConv)",
                           "8 (sources)", "16 (sources)", "4", "4", "1", "0.5"]  # fmt: skip
    assert rows[2][5] == "failed"
    assert {len(row) for row in rows} == {len(first)}
    first, _, *rows = rows_of(memory)
    assert rows[0][5:] == ["5", "2", "3", "torch sources", "8", "yes", "5 of 5", "yes", "0 of 5"]
    assert rows[1][5:] == ["-", "4", "-", "torch sources", "8", "-", "-", "-", "-"]
    assert {len(row) for row in rows} == {len(first)}
    assert rows_of(means)[2] == ["rgcn", "train", "float32", "64", "2", "2.83 (2)", "4 (4)", "5 (5)", "2.59",
                                 "1.5 (1.5)", "0.5 (0.5)"]  # fmt: skip
    assert set(HECTOR) == {(model, mode) for model in ("rgcn", "rgat", "hgt") for mode in ("infer", "train")}


def test_what_fits_in_a_memory() -> None:
    candidate = {"status": "ok", "peak_mb": 25_000.0}
    assert fits(candidate, 0.7e9, CARD) is True
    assert fits(candidate, 0.8e9, CARD) is False
    assert fits(candidate | {"status": "out of memory", "peak_mb": None}, 0.0, CARD) is False
    assert fits(candidate | {"status": "failed", "peak_mb": None}, 0.0, CARD) is None
    assert fits(candidate, None, CARD) is None
    assert fits(None, 0.0, CARD) is None


def test_lines_of_one_case_are_merged() -> None:
    first = line("am~", entry("ours", "O2", 2.0), entry("pyg", "RGCNConv", 20.0))
    second = line("am~", entry("ours", "O2", 4.0), entry("pyg", "RGCNConv compiled", 30.0, compiled=True))
    (one,) = merged([first, second])
    assert [c["ms"] for c in one["candidates"]] == pytest.approx([2.0, 20.0, 15.0])


def test_a_later_time_replaces_a_failure() -> None:
    (one,) = merged([line("am~", entry("ours", "O2", None)), line("am~", entry("ours", "O2", 4.0))])
    assert [(c["ms"], c["status"]) for c in one["candidates"]] == [(4.0, "ok")]


def test_complete_lines() -> None:
    whole = line("am~", entry("ours", "O2", 2.0), entry("ours", "hector", 3.0), entry("pyg", "RGCNConv", None))
    whole |= {"against": ["pyg", "torch"]}
    assert is_complete(whole, ("O2", "hector"), ("torch",))
    assert not is_complete(whole, ("O2", "O0"), ("torch",))
    assert not is_complete(whole, ("O2",), ("compiled",))
    late = whole | {"candidates": [*whole["candidates"], whole["candidates"][0] | {"status": "skipped"}]}
    assert not is_complete(late, ("O2",), ("torch",))
    assert not is_complete({"rates": {}}, ("O2",), ())


def test_lines_survive_a_killed_writer(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    assert read_lines(path) == []
    append_line(path, {"a": 1})
    with path.open("a") as file:
        file.write('{"b": ')
    assert read_lines(path) == [{"a": 1}]
