"""The text and the JSON of `explain`."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

import dacergnn
from dacergnn import HeteroGraph
from dacergnn.modules import RGAT, RGCN
from dacergnn.report import LayerReport, Report


@pytest.fixture(autouse=True)
def columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


@pytest.fixture(scope="module")
def graph() -> HeteroGraph:
    return dacergnn.datasets.synthetic("aifb", 0.02).graph


@pytest.fixture(scope="module")
def model(graph: HeteroGraph) -> nn.Module:
    layers = nn.ModuleList([RGAT(6, 5, graph.size("R")), RGCN(5, 4, graph.size("R"))])
    x = torch.randn(graph.size("NS"), 6)
    with torch.no_grad():
        layers[0](x, graph)
    layers[1](layers[0](x, graph), graph)
    return layers


def test_ten_lines_of_eighty_columns(model: nn.Module) -> None:
    lines = str(dacergnn.explain(model)).splitlines()
    assert len(lines) <= 10
    assert all(len(line) <= 80 for line in lines)
    assert lines[0] == "0: RGAT compiled for training"
    assert lines[1].startswith("  time ")
    assert " us -> " in lines[1]
    assert ", memory " in lines[1]
    assert lines[2].startswith("  operators: ")
    assert " fused" in lines[2]
    assert lines[3].startswith("  saved for the backward: ")
    assert lines[-1] == "Before -> after the passes: estimates of the cost model; profile measures."


def test_more_layers_take_a_line_each(model: nn.Module) -> None:
    report = dacergnn.explain(model)
    many = Report([*report.layers] * 4, {"head": "option x"})
    lines = [line for line in str(many).splitlines() if not line.startswith("    ")]
    assert len(lines) == 8 + 1 + 2
    assert lines[0].startswith("0: RGAT compiled: time ")
    assert lines[-3].startswith("RGAT: saved for the backward: ")
    assert lines[-2] == "head: left as it is; option x"


def test_very_many_layers_are_named_each_with_its_time(model: nn.Module) -> None:
    first, _ = dacergnn.explain(model).layers
    uncalled = [LayerReport(f"y{i}", f"Layer{i}", []) for i in range(12)]
    text = " ".join(str(Report([*(replace(first, name=f"x{i}") for i in range(40)), *uncalled], {})).split())
    for i in range(40):
        assert f"x{i}: RGAT compiled: time " in text
    assert "y11: Layer11 has not been called yet" in text
    assert first.largest is not None
    assert text.count(f"({', '.join(first.largest.saved)})") == 1


@pytest.mark.parametrize("times", [1, 8])
@pytest.mark.parametrize("caching", ["cache_all", "recompute_all", "papers"])
def test_names_of_arrays_are_never_folded_away(graph: HeteroGraph, caching: str, times: int) -> None:
    layer = RGAT(6, 5, graph.size("R"), config=dacergnn.Config(caching=caching))
    x = torch.randn(graph.size("NS"), 6)
    layer(x, graph)
    (report,) = dacergnn.explain(layer).layers
    assert report.largest is not None
    names = {name.rpartition("/")[2] for name in report.largest.questions if name.startswith("cache_or_recompute/")}
    assert names >= {"att", "hs"} - ({"att"} if caching == "cache_all" else set())
    assert names <= set(str(Report([report] * times, {})).replace(",", " ").replace("(", " ").replace(")", " ").split())
    dacergnn.Config(**{"recompute" if caching == "cache_all" else "cache": tuple(names)})  # as docs/caching.md tells


@pytest.mark.parametrize("width", [60, 132])
def test_the_terminal_width_is_honoured(model: nn.Module, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    for verbose in (False, True):
        lines = str(dacergnn.explain(model, verbose=verbose)).splitlines()
        assert all(len(line) <= width or " " not in line.strip() for line in lines)
    assert max(map(len, lines)) > 60 - 20


def test_verbose_has_everything_by_names_that_users_know(model: nn.Module) -> None:
    text = " ".join(str(dacergnn.explain(model, verbose=True)).split())
    for part in ("build for inference", "build for gradients of x,", "fired", "MFLOP", "graph encodings", "options:"):
        assert part in text
    assert "torch." not in text


def test_the_passes_save_time_by_estimate(model: nn.Module) -> None:
    for layer in dacergnn.explain(model).layers:
        build = layer.largest
        assert build is not None
        assert build.as_written is not None
        assert 0 < build.compiled.seconds < build.as_written.seconds
        assert 0 < build.compiled.bytes < build.as_written.bytes
        assert build.compiled.bytes == build.saved_bytes + build.workspace_bytes
    (inference,) = (build for build in dacergnn.explain(model).layers[0].builds if not build.gradients)
    assert inference.as_written is None


def test_without_passes_nothing_is_saved(graph: HeteroGraph) -> None:
    layer = RGAT(6, 5, graph.size("R"), config=dacergnn.Config(level="O0"))
    layer(torch.randn(graph.size("NS"), 6), graph)
    build = dacergnn.explain(layer).layers[0].largest
    assert build is not None
    assert build.as_written is not None
    assert build.compiled.seconds == build.as_written.seconds


def test_json(model: nn.Module) -> None:
    report = dacergnn.explain(model)
    found: dict[str, Any] = json.loads(report.to_json())
    assert [layer["layer"] for layer in found["layers"]] == ["RGAT", "RGCN"]
    build = found["layers"][0]["builds"][1]
    expected = report.layers[0].builds[1]
    assert build["compiled"] == {"seconds": expected.compiled.seconds, "bytes": expected.compiled.bytes}
    assert build["gradients"] == expected.gradients
    assert found["refused"] == {}
