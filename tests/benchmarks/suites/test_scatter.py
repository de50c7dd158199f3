"""Times that scatter: they keep a mark, and are in no mean; and parts that were measured apart from their whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.batches import runner
from benchmarks.caching.plot import series
from benchmarks.caching.plot.series import MEAN, Bar
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
    pytest.importorskip("matplotlib")
    from benchmarks.caching.plot.draw import figures

    cora, _, mean = series.speedups(grouped(rows), "train_ms")
    assert (cora.values, cora.scattering) == (pytest.approx((99.0, 4.0)), (8,))
    assert (mean.label, mean.values, mean.left_out) == (MEAN, pytest.approx((4.0, 4.0)), 1)
    assert series.gains(grouped(rows))["auto"][MEAN].left_out == 1
    assert [(p.label, p.left_out) for p in series.plane(grouped(rows))][-1] == ("auto", 1)
    drawn = dict(figures(grouped(rows)))
    for name in ("speedup_gat_layer", "schemes_gat_layer", "plane", "bars_gat_layer_cora"):
        assert " ".join(drawn[name].get_supxlabel().split()) == NOTE, name
    forward, train = drawn["speedup_gat_layer"].axes
    assert (forward.get_title(), train.get_title()) == ("forward", "forward and backward, 1 left out")
    assert forward.get_ylabel() == "fastest library / ours"
    assert drawn["bars_gat_layer_pubmed"].get_supxlabel() == ""


def test_a_bar_never_exceeds_its_whole() -> None:
    pytest.importorskip("matplotlib")
    from benchmarks.caching.plot.draw import figures

    found = grouped([caching_row("cache_all", 2.0, 8, STEADY, forward_ms=2.5), caching_row("auto", 4.0, 8, STEADY)])
    whole, divided = series.bars(found)
    assert whole == Bar("cache_all", 8, 2.0, 0.0)
    assert (whole.undivided, divided.undivided) == (True, False)
    drawn = dict(figures(found))["bars_gat_layer_cora"]
    tops = sorted(patch.get_y() + patch.get_height() for patch in drawn.axes[0].patches)
    assert tops == pytest.approx([1.0, 2.0, 2.0, 4.0])
    assert "hatched: the forward, measured apart," in " ".join(drawn.get_supxlabel().split())


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
