"""The figures of the suite of caching strategies: their numbers, and that they are drawn."""

from __future__ import annotations

import builtins
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from benchmarks.caching.plot import KNOWN, MEAN, figures
from benchmarks.commands import main
from benchmarks.rows import grouped
from dacergnn.bench.picture import Panel, picture
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


def drawn(rows: list[Row]) -> dict[str, list[Panel]]:
    return {name: panels for name, _, panels in figures(grouped(rows))}


def test_all_figures_are_there(rows: list[Row]) -> None:
    stem = "gat_layer_input_gradient"
    found = drawn(rows)
    assert {*found} == {
        f"speedup_{stem}", f"format_csr_{stem}", f"schemes_{stem}", f"bars_{stem}_cora", f"bars_{stem}_pubmed", "plane",
    }  # fmt: skip
    _, train = found[f"speedup_{stem}"]
    assert train.series == {"cora": [10.0, 5.0], "pubmed": [None, 2.0], MEAN: pytest.approx([10.0, 10.0**0.5])}
    assert train.places == [8, 16]
    assert found[f"format_csr_{stem}"][1].series == {"cora": [1.5, 1.5], "pubmed": [None, 1.5], MEAN: [1.5, 1.5]}
    (schemes,) = found[f"schemes_{stem}"]
    assert schemes.places == ["cora", "pubmed", MEAN]
    assert schemes.series == {"cache_all": pytest.approx([1.5] * 3), "auto": pytest.approx([3.0] * 3)}
    (bar,) = found[f"bars_{stem}_pubmed"]
    assert bar.places == ["cache_all", "recompute_all", "auto", "pyg COO", "dgl eager"]
    assert bar.series == {"forward": [5.0, 7.5, 2.5, 10.0, 5.0], "rest of the step": [15.0, 22.5, 7.5, 30.0, 15.0]}
    assert f"schemes_{stem}" not in drawn([row for row in rows if row["name"] != "recompute_all"])


def test_the_plane_is_relative_to_saving_everything(rows: list[Row]) -> None:
    (panel,) = drawn(rows)["plane"]
    assert panel.series == {"cache_all": [(1, 1)], "recompute_all": [(0.25, 1.5)], "auto": [(0.5, 0.5)]}
    assert panel.faint["auto"] == [(0.5, 0.5)] * 3
    copies = [result(d, s, "papers", ms * 2, 8.0, same_as="cache_all") for (d, s), ms in TIMES.items()]
    assert [*drawn([*rows, *copies])["plane"][0].series] == ["cache_all", "recompute_all", "auto"]
    for row in rows:
        row["saved_bytes"] = 10 * row.pop("peak_mb") ** 2
    rows[1]["saved_bytes"] = 0
    memory = [points[0][0] for points in drawn(rows)["plane"][0].series.values()]
    assert memory == pytest.approx([1.0, 1 / 24, 0.25])


def test_all_figures_are_drawn(rows: list[Row], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    made = picture(drawn(rows)["speedup_gat_layer_input_gradient"], known=KNOWN)
    forward, train = made.axes
    legend = made.legends[0]
    colours = {
        text.get_text(): line.get_color() for text, line in zip(legend.get_texts(), legend.get_lines(), strict=True)
    }
    assert [*train.get_lines()[0].get_ydata()] == [10.0, 5.0]
    assert colours[MEAN] == "black"
    assert forward.get_lines()[0].get_color() == train.get_lines()[0].get_color() == colours["cora"]

    path = tmp_path / "results.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows[:8]))
    result = CliRunner().invoke(main, ["plot", str(path), "--out", str(tmp_path / "plots")])
    assert result.exit_code == 0, result.output
    names = {file.name for file in (tmp_path / "plots").iterdir()}
    assert {"bars_gat_layer_input_gradient_cora.png", "speedup_gat_layer_input_gradient.svg"} <= names
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
