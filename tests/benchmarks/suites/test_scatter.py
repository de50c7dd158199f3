"""Times that scatter: they keep a mark, and are in no mean; and parts that were measured apart from their whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.batches import runner
from benchmarks.caching.plot import MEAN, bars, drawn, figures
from benchmarks.caching.report import tables
from benchmarks.named import Named
from benchmarks.relational.record import row_of
from benchmarks.relational.report import geomean_table, geometric_means, row_table
from benchmarks.rows import grouped
from dacergnn.bench.environment import governor
from dacergnn.bench.measure import Timing
from dacergnn.bench.scatter import NOTE, scatters
from dacergnn.json_lines import Row

STEADY, NOISY = [1.0, 1.0, 1.0, 1.1, 1.2], [1.0, 1.0, 1.0, 1.0, 1.3]
"""Samples with a median of 1, in units of a time."""


def timing(ms: float, samples: list[float]) -> Timing:
    return Timing([ms / 1e3 * sample for sample in samples])


def test_what_scatters() -> None:
    assert not timing(4.0, STEADY).scatters
    assert timing(4.0, NOISY).scatters
    assert not timing(4.0, [1.0, 2.0]).scatters  # too few to tell
    assert not Timing().scatters
    row = timing(4.0, NOISY).as_json("train_") | {"peak_mb": 3.0}
    assert scatters(row, "train_ms")
    assert not scatters(row, "infer_ms")
    assert not scatters(row, "peak_mb")
    assert not scatters({"train_ms": 4.0}, "train_ms")  # as in old files


def entry(library: str, ms: float, samples: list[float]) -> Row:
    found = {"status": "ok", "note": "", **timing(ms, samples).as_json()}
    return row_of(Named(library, "O2" if library == "ours" else "x"), "rgcn", found, "infer")


def case(data: str, mode: str, *rows: Row) -> list[Row]:
    facts = {"model": "rgcn", "data": data, "mode": mode, "hidden": 64, "bound_ms": 0.5, "group": data}
    return [facts | row for row in rows]


def test_rows_of_relational_layers() -> None:
    rows: list[Row] = []
    for data, ours, library, samples in (("a", 1.0, 2.0, STEADY), ("b", 1.0, 8.0, STEADY), ("c", 1.0, 99.0, NOISY)):
        candidates = entry("ours", ours, STEADY), entry("pyg", library, samples), entry("torch", 3.0, STEADY)
        rows += case(data, "infer", *candidates)
    library, plain, cases = geometric_means(rows)["rgcn", "infer"]
    assert (library.mean, library.left_out) == (pytest.approx(4.0), 1)
    assert (plain.mean, plain.left_out) == (pytest.approx(3.0), 0)
    assert cases == 3
    text = str(row_table(rows))
    assert text.count("99*") == 2  # the time and its ratio
    assert NOTE in text
    assert "4 (2), 1 left out" in str(geomean_table(geometric_means(rows)))
    assert NOTE not in str(row_table(rows[:6]))


def test_a_layer_that_takes_longer_than_its_step() -> None:
    own = entry("ours", 1.0, STEADY) | timing(1.1, STEADY).as_json("layer_")
    assert "measured apart: in 1 rows the layer alone took longer" in str(row_table(case("a", "train", own)))


def caching_row(name: str, ms: float, size: int, samples: list[float], data: str = "cora", **more: Any) -> Row:
    return {
        "model": "gat", "data": data, "network": "layer", "features": 64, "hidden": size, "heads": 8,
        "input_gradient": False, "library": "ours", "name": name, "caching": name, "cache": [], "recompute": [],
        "adjacency": "auto", "order": "auto", "status": "ok", "group": f"{data} {size}", "peak_mb": 1.0,
        **timing(ms / 4, STEADY).as_json("forward_"), **timing(ms, samples).as_json("train_"), **more,
    }  # fmt: skip


@pytest.fixture
def rows() -> list[Row]:
    """Two sizes of a graph and one of another; of all times, that of "auto" on the small one scatters."""
    found: list[Row] = []
    for data, size, samples in (("cora", 8, NOISY), ("cora", 16, STEADY), ("pubmed", 8, STEADY)):
        found += [
            caching_row("cache_all", 2.0, size, STEADY, data),
            caching_row("recompute_all", 3.0, size, STEADY, data),
            caching_row("auto", 1.0, size, samples, data),
            caching_row("COO", 4.0 if samples is STEADY else 99.0, size, STEADY, data, library="pyg", caching=None),
        ]
    return found


def test_tables_of_strategies(rows: list[Row]) -> None:
    libraries, recomputation, choice = tables(rows)
    first = [[*table.rows[0]] for table in (libraries, recomputation, choice)]
    assert first[0][4:] == ["4.00 (4.00), 1 left out", "1.00 (1.00)", "3"]
    assert first[1][2] == "1.50 (1.50)"
    assert first[2][2::3] == ["2 (100%)", "2, 1 left out"]
    assert [table.notes for table in (libraries, recomputation, choice)] == [[NOTE], [], [NOTE]]


def test_figures_of_strategies(rows: list[Row]) -> None:
    found = {name: panels for name, _, panels in figures(grouped(rows))}
    forward, train = found["speedup_gat_layer"]
    assert (forward.title, train.title) == ("forward", "forward and backward, 1 left out")
    assert train.series["cora"] == pytest.approx([99.0, 4.0])
    assert train.series[MEAN] == pytest.approx([4.0, 4.0])
    assert train.marked == [("cora", 8)]
    assert found["schemes_gat_layer"][0].title == "training, 1 left out"
    assert found["plane"][0].title == "gat, layer, 1 left out"
    assert [place for panel in found["bars_gat_layer_cora"] for place in panel.places if "*" in place] == ["auto *"]
    assert not any(panel.marked for panel in found["bars_gat_layer_pubmed"])


def test_marks_are_explained(rows: list[Row]) -> None:
    pytest.importorskip("matplotlib")
    for name, title, panels in figures(grouped(rows)):
        made = drawn(panels, title)
        assert (made.get_supxlabel() == "") == (name == "bars_gat_layer_pubmed")
        assert made.get_supxlabel() == "" or " ".join(made.get_supxlabel().split()) == NOTE


def test_a_bar_never_exceeds_its_whole() -> None:
    (group,) = grouped([caching_row("cache_all", 2.0, 8, STEADY, forward_ms=2.5), caching_row("auto", 4.0, 8, STEADY)])
    found = bars(group)
    assert found.places == ["cache_all (whole)", "auto"]
    assert found.series == {"forward": [2.0, 1.0], "rest of the step": [0.0, 3.0]}


def test_means_of_batches() -> None:
    def row(library: str, ms: float, samples: list[float], group: int) -> Row:
        return {"library": library, "name": library, "status": "ok", "group": group} | timing(ms, samples).as_json(
            "step_wall_"
        )

    eager = ((2.0, STEADY), (8.0, STEADY), (99.0, NOISY))
    rows = [row("PyG", ms, samples, n) for n, (ms, samples) in enumerate(eager)]
    steady = runner.steady_ratios([*rows, *(row("ours", 1.0, STEADY, n) for n in range(3))])
    assert {name: (one.mean, one.left_out) for name, one in steady.items()} == {"ratio wall": (pytest.approx(4.0), 1)}


def test_what_sets_the_clock(tmp_path: Path) -> None:
    assert governor(tmp_path) == "unknown"
    for number, name in enumerate(("powersave", "performance", "powersave")):
        folder = tmp_path / f"cpu{number}" / "cpufreq"
        folder.mkdir(parents=True)
        (folder / "scaling_governor").write_text(f"{name}\n")
    assert governor(tmp_path) == "performance, powersave"
