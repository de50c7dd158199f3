"""The figures of the suite of caching strategies: their numbers, and that they are drawn."""

from __future__ import annotations

import builtins
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from benchmarks.caching.plot import series
from benchmarks.caching.plot.series import MEAN, Bar, Curve, Point
from benchmarks.commands import main
from benchmarks.rows import grouped
from dacergnn.json_lines import Row

TIMES = {("cora", 8): 2.0, ("cora", 16): 4.0, ("pubmed", 16): 10.0}
"""Of "auto" by data set and size."""


def result(data: str, size: int, name: str, ms: float, mb: float, library: str = "ours", **more: Any) -> Row:
    ours = library == "ours"
    return {
        "model": "gat", "data": data, "network": "layer", "features": 64, "hidden": size, "heads": 8,
        "input_gradient": True, "library": library, "name": name, "caching": name if ours else None,
        "cache": [], "recompute": [], "adjacency": "auto" if ours else None, "order": "auto" if ours else None,
        "status": "ok", "group": f"{data} {size}", "forward_ms": ms / 4, "train_ms": ms, "peak_mb": mb, **more,
    }  # fmt: skip


@pytest.fixture
def rows() -> list[Row]:
    found: list[Row] = []
    for (data, size), ms in TIMES.items():
        found += [
            result(data, size, "cache_all", ms * 2, 8.0),
            result(data, size, "recompute_all", ms * 3, 2.0),
            result(data, size, "auto", ms, 4.0),
            result(data, size, "cache_all, coo", ms * 6, 8.0, caching="cache_all", adjacency="coo"),
            result(data, size, "cache_all, csr", ms * 4, 8.0, caching="cache_all", adjacency="csr"),
            result(data, size, "COO", 40.0, 16.0, "pyg"),
            result(data, size, "eager", 20.0, 32.0, "dgl"),
            result(data, size, "EdgeIndex", 1.0, 1.0, "pyg", status="failed"),
        ]
    return found


def test_speedups_are_against_the_fastest_that_ran(rows: list[Row]) -> None:
    assert series.speedups(grouped(rows), "train_ms") == [
        Curve("cora", (8, 16), (10.0, 5.0)),
        Curve("pubmed", (16,), (2.0,)),
        Curve(MEAN, (8, 16), pytest.approx((10.0, 10.0**0.5))),  # type: ignore[arg-type]
    ]


def test_the_plane_is_relative_to_saving_everything(rows: list[Row]) -> None:
    one = (1.0, 1.0)
    assert series.plane(grouped(rows)) == [
        Point("cache_all", 1.0, 1.0, one, one),
        Point("recompute_all", 0.25, 1.5, (0.25, 0.25), (1.5, 1.5)),
        Point("auto", 0.5, 0.5, (0.5, 0.5), (0.5, 0.5)),
    ]
    copies = [result(d, s, "papers", ms * 2, 8.0, same_as="cache_all") for (d, s), ms in TIMES.items()]
    assert [point.label for point in series.plane(grouped([*rows, *copies]))] == ["cache_all", "recompute_all", "auto"]
    for row in rows:
        row["saved_bytes"] = 10 * row.pop("peak_mb") ** 2
    rows[1]["saved_bytes"] = 0
    assert [point.memory for point in series.plane(grouped(rows))] == pytest.approx([1.0, 1 / 24, 0.25])


def test_bars_are_forward_and_what_is_left(rows: list[Row]) -> None:
    assert series.bars(grouped(row for row in rows if row["data"] == "pubmed")) == [
        Bar("cache_all", 16, 5.0, 15.0),
        Bar("recompute_all", 16, 7.5, 22.5),
        Bar("auto", 16, 2.5, 7.5),
        Bar("pyg COO", 16, 10.0, 30.0),
        Bar("dgl eager", 16, 5.0, 15.0),
    ]


def test_gains_are_over_saving_nothing(rows: list[Row]) -> None:
    gains = series.gains(grouped(rows))
    means = {label: {place: steady.mean for place, steady in found.items()} for label, found in gains.items()}
    assert means == {
        "cache_all": pytest.approx({"cora": 1.5, "pubmed": 1.5, MEAN: 1.5}),
        "auto": pytest.approx({"cora": 3.0, "pubmed": 3.0, MEAN: 3.0}),
    }
    assert series.gains(grouped([row for row in rows if row["name"] != "recompute_all"])) == {}


def test_formats_are_over_coordinates(rows: list[Row]) -> None:
    found = grouped(rows)
    assert series.format_names(found) == ["csr"]
    assert [curve.values for curve in series.formats(found, "csr", "train_ms")] == [(1.5, 1.5), (1.5,), (1.5, 1.5)]


def test_all_figures_are_drawn(rows: list[Row], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from benchmarks.caching.plot.draw import figures

    drawn = dict(figures(grouped(rows)))
    assert {*drawn} == {
        "speedup_gat_layer_input_gradient", "format_csr_gat_layer_input_gradient",
        "schemes_gat_layer_input_gradient", "bars_gat_layer_input_gradient_cora",
        "bars_gat_layer_input_gradient_pubmed", "plane",
    }  # fmt: skip
    forward, train = drawn["speedup_gat_layer_input_gradient"].axes
    lines = {line.get_label(): line for line in train.get_lines()}
    assert [*lines["cora"].get_ydata()] == [10.0, 5.0]
    assert lines[MEAN].get_color() == "black"
    assert forward.get_lines()[0].get_color() == lines["cora"].get_color()
    small, large = drawn["bars_gat_layer_input_gradient_cora"].axes
    heights = [patch.get_y() + patch.get_height() for patch in large.patches]
    assert (small.get_title(), max(heights)) == ("hidden size 8", 40.0)
    (plane,) = [axes for axes in drawn["plane"].axes if axes.get_visible()]
    assert (0.5, 0.5) in [(*line.get_xdata(), *line.get_ydata()) for line in plane.get_lines()]

    path = tmp_path / "results.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows[:8]))
    result = CliRunner().invoke(main, ["plot", str(path), "--out", str(tmp_path / "plots")])
    assert result.exit_code == 0, result.output
    names = {file.name for file in (tmp_path / "plots").iterdir()}
    assert {"plane.png", "plane.svg", "speedup_gat_layer_input_gradient.svg"} <= names
    assert len(names) == 2 * len(result.output.splitlines())
    path.write_text(json.dumps(rows[7]) + "\n")
    result = CliRunner().invoke(main, ["plot", str(path), "--out", str(tmp_path / "plots")])
    assert (result.exit_code, "none of its cases is timed" in result.output) == (1, True)


def test_a_missing_matplotlib_is_said(rows: list[Row], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    genuine = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "matplotlib.figure":
            raise ImportError("No module named 'matplotlib'")
        return genuine(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    path = tmp_path / "results.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows[:8]))
    result = CliRunner().invoke(main, ["plot", str(path), "--out", str(tmp_path)])
    assert result.exit_code == 1
    assert "plot needs matplotlib" in result.output
    assert "pip install 'dacergnn[plot]'" in result.output
