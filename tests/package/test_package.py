"""The package as a whole: what importing it does, its logs, and the cost model on a case counted by hand."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import dacergnn
from dacergnn import Config, HeteroGraph, parse
from dacergnn.cost import Cost, program_cost
from dacergnn.errors import DacergnnError
from dacergnn.logs import configure_logs

IMPORTS = """
import runpy, sys
import dacergnn
print([n for n in ("dgl", "torch_geometric", "click", "rich", "matplotlib") if n in sys.modules])
sys.argv[1:] = ["--help"]
runpy.run_module("dacergnn", run_name="__main__", alter_sys=True)
"""


def test_import_brings_in_no_graph_library_and_no_terminal_library_and_the_package_runs_as_a_module():
    run = subprocess.run([sys.executable, "-W", "ignore", "-c", IMPORTS], capture_output=True, text=True, check=True)
    assert run.stdout.startswith("[]\n"), run.stdout
    assert "forecast" in run.stdout


def test_types_are_for_users_too():
    """Type checkers read annotations of installed packages that have this file."""
    assert (Path(dacergnn.__file__).parent / "py.typed").is_file()


def test_logs_are_switched_on_by_area(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setenv("DACERGNN_LOGS", "passes,nonsense")
    root, area = logging.getLogger("dacergnn"), logging.getLogger("dacergnn.passes")
    handlers, level = root.handlers.copy(), area.level
    try:
        configure_logs()
        area.info("fired")
        assert "dacergnn.passes: fired" in capsys.readouterr().err
    finally:
        root.handlers, area.level = handlers, level
        area.setLevel(level)


def test_config_refuses_what_it_does_not_know():
    with pytest.raises(DacergnnError, match=r"there is no pass 'fuse_all'; passes: canonical_form, "):
        Config(passes=("fuse_all",))
    with pytest.raises(DacergnnError, match=r"implementation='gpu' is not one of cpu, cuda, cpu-scalar, pure\."):
        Config(implementation="gpu")
    with pytest.raises(DacergnnError, match=r"level='O3' is not one of O0, hector, O2\."):
        Config(level="O3")


def test_cost_counts_products_gathers_and_streams():
    text = """
def layer(g, x: NS[4], W: R[4, 8], s: E):
    for n in g.dst_nodes():
        for e in n.incoming_edges():
            n["y"] += e["s"] * linear(e.src.x, W[e.etype])
    for n in g.dst_nodes():
        n["z"] = relu(n["y"])
    return z
"""
    edges, nodes, types = 10, 5, 2
    graph = HeteroGraph.from_arrays(
        torch.randint(0, nodes, (2, edges)), torch.arange(edges) % types, num_nodes=nodes, num_edge_types=types
    )
    cost = program_cost(parse(text), graph.sizes)
    pairs = graph.size("V")  # edges of one (destination, type) pair are summed before the product
    product = pairs * 2 * 4 * 8 + edges * 2 * 4
    index = 4 * edges * 2  # source, destination
    streamed = 4 * (edges + types * 32 + nodes * 8) + index + 2 * 4 * nodes * 8
    assert cost == Cost(product + nodes * 8, streamed, edges * 4 * 4 + 3 * pairs * 4 * 8)
