"""The script that runs PyG's own tests with compiled layers, on a checkout with one small file of tests."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "peer_suite.py"

TESTS = """
import os
import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch_geometric.nn import SAGEConv

x, edge_index = torch.randn(4, 8), torch.tensor([[0, 1, 2], [1, 2, 3]])
layer = SAGEConv(8, 8)

def test_result():
    assert str(layer) == "SAGEConv(8, 8, aggr=mean)"
    layer(x, edge_index)

def test_names():
    assert type(layer) is SAGEConv

def test_reason():
    with FakeTensorMode(allow_non_fake_inputs=True):
        layer(x, edge_index)

def test_wrong():
    assert False, "in all ways"

@pytest.mark.skip
def test_skipped():
    pass

def test_end():
    if type(layer) is not SAGEConv:
        os._exit(1)
"""


@pytest.mark.check
def test_tests_calls_and_reasons_are_counted_in_each_way(tmp_path: Path) -> None:
    folder, results = tmp_path / "test" / "nn" / "conv", tmp_path / "results.json"
    folder.mkdir(parents=True)
    (folder / "test_small.py").write_text(TESTS)
    command = [sys.executable, str(SCRIPT), str(tmp_path), "--json", str(results)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    without, constructors, calls = json.loads(results.read_text())["test/nn/conv/test_small.py"].values()
    expected = {
        "test_result": "passed",
        "test_names": "passed",
        "test_reason": "passed",
        "test_wrong": "AssertionError: in all ways",
        "test_skipped": "skipped",
        "test_end": "passed",
    }
    assert _tests(without) == _tests(calls) == expected
    named = "AssertionError: assert <class 'torch_geometric.nn.conv.sage_conv.SAGEConv'> is SAGEConv"
    assert _tests(constructors) == {**expected, "test_names": named, "test_end": "the process ended here"}
    assert without["calls"] == 0
    for outcome in (constructors, calls):
        assert outcome["calls"] == 2
        assert sum(outcome["fallbacks"].values()) == 1
        assert next(iter(outcome["fallbacks"])).startswith("SAGEConv: tensors of FakeTensorMode")
    assert "test_small.py::test_end (constructors): the process ended here" in run.stdout
    assert "2 (50.0%)" in run.stdout


def test_a_folder_without_tests_is_refused(tmp_path: Path) -> None:
    run = subprocess.run([sys.executable, str(SCRIPT), str(tmp_path)], capture_output=True, text=True)
    assert run.returncode == 2
    assert "holds no such file of tests; name a checkout of PyG's or of DGL's repository." in run.stderr


def _tests(outcome: dict[str, dict[str, str]]) -> dict[str, str]:
    return {name.partition("::")[2]: what for name, what in outcome["tests"].items()}
