"""Shows the models that functions of users make by commands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dacergnn import Rates
from dacergnn.cli.named_layers import model_of
from dacergnn.config import Config
from dacergnn.modules.sdfg_files import PAGE
from dacergnn.profiling import measure
from tests.cli.test_cli import run

pytest.importorskip("torch_geometric")

MODELS = """
import torch
from torch import nn
from torch_geometric.nn import GCNConv, HeteroConv, SAGEConv

TYPES = ("a", "r", "b"), ("b", "q", "a")

class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = GCNConv(6, 8), nn.LayerNorm(8), GCNConv(8, 4)

    def forward(self, x, edge_index):
        return self.last(self.norm(self.first(x, edge_index)).relu(), edge_index)

class Heterogeneous(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = HeteroConv({TYPES[0]: SAGEConv(6, 8), TYPES[1]: SAGEConv(6, 8)})
        self.last = HeteroConv({TYPES[0]: SAGEConv(8, 4), TYPES[1]: SAGEConv(8, 4)})

    def forward(self, x, edges):
        return self.last({kind: rows.relu() for kind, rows in self.first(x, edges).items()}, edges)["b"]

def network():
    return Network(), (torch.randn(9, 6), torch.randint(9, (2, 30)))

def heterogeneous():
    edges = {kind: torch.randint(9, (2, 30)) for kind in TYPES}
    return Heterogeneous(), ({"a": torch.randn(9, 6), "b": torch.randn(9, 6)}, edges)

def linear():
    return nn.Linear(6, 6), (torch.randn(9, 6),)
"""


@pytest.fixture(autouse=True)
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "models_of_commands.py").write_text(MODELS, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(measure, "LEAST_CALLS", 1)
    monkeypatch.setattr(measure, "MOST_CALLS", 1)
    monkeypatch.setattr(measure, "_rates", lambda *_: Rates(1e11, 1e10, 1e10, 1e9))


def test_a_model_that_runs_as_one(tmp_path: Path) -> None:
    source = "models_of_commands:network"
    assert "captured as 1 graph: 1 runs of programs" in run("explain", source).output
    measured = json.loads(run("profile", source, "--json").output)
    assert {operator["program"] for operator in measured["operators"]} == {"Network"}
    assert {operator["role"] for operator in measured["operators"]} == {"forward", "backward"}
    out = tmp_path / "sdfg"
    assert run("view", source, "--no-open", "--out", str(out)).exit_code == 0
    assert (out / PAGE).exists()


def test_a_model_of_several_programs_has_a_page_for_each(tmp_path: Path) -> None:
    result = run("view", "models_of_commands:heterogeneous", "--no-open", "--out", str(tmp_path / "sdfg"))
    assert result.exit_code == 0, result.output
    folders = {path.name for path in (tmp_path / "sdfg").iterdir()}
    assert folders == {"0_hetero", "1_hetero"}
    assert all((tmp_path / "sdfg" / name / PAGE).exists() for name in folders)


def test_a_model_without_programs_is_refused() -> None:
    with pytest.warns(UserWarning, match="optimize found nothing to replace"):
        result = run("view", "models_of_commands:linear", "--no-open")
    assert result.exit_code == 1
    assert "the call runs no compiled program; dacergnn explain models_of_commands:linear tells why" in result.output


def test_the_model_is_on_the_device_that_is_named() -> None:
    model, (x, _) = model_of("models_of_commands:network", Config(), "cpu")
    assert x.device.type == next(model.parameters()).device.type == "cpu"
