"""Layers that exchange rows themselves equal those of one process, and exchange what takes the fewest bytes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from dacergnn import Config, parse
from dacergnn.distributed.exchange import Exchange
from dacergnn.errors import ProgramError
from dacergnn.graph.profile import TYPICAL
from dacergnn.modules import RGAT, RGCN
from dacergnn.modules.programs import compiled_program
from dacergnn.sdfg_passes.partial_sums import cut_sums
from tests.distributed.exchanging_worker import CONSTANT
from tests.distributed.test_distributed import ROOT, Found, check, found_by
from tests.support.use import lone_process

ROWS, VALUES, SUMS = "rows of sources", "values of sources", "partial sums"
EXCHANGED = {
    "RGCN": SUMS,
    "RGCN that widens": ROWS,
    "RGCN without root": SUMS,
    "RGAT": ROWS,
    "RGAT in ranges": ROWS,
    "HGT": ROWS,
    "GAT": VALUES,
    "mean": ROWS,
    "projected": SUMS,
    "by type of both ends": SUMS,
    "maximum": VALUES,
}


@pytest.fixture(scope="module")
def thirds(tmp_path_factory: pytest.TempPathFactory) -> list[Found]:
    """Returns what each of three processes found. They take most of a minute, as each makes all programs itself."""
    return found_by(3, tmp_path_factory.mktemp("thirds"), "exchanging", "RGAT", "RGAT alone")


@pytest.fixture(scope="module")
def found(thirds: list[Found]) -> dict[str, Any]:
    """Returns what the first of several processes found."""
    return thirds[0]["exchanging"]


def test_training_in_three_processes(thirds: list[Found]) -> None:
    """Checks processes whose nodes do not follow each other."""
    check(thirds, "RGAT")


def test_results_and_gradients_equal_those_of_one_process(found: dict[str, Any]) -> None:
    calls = {name: own for name, own in found.items() if "difference" in own}
    assert calls.keys() == {*[f"{name}, features" for name in EXCHANGED], *CONSTANT} - {"sources"}
    assert max(own["difference"] for own in calls.values()) < 1e-12


def test_the_fewest_bytes_are_exchanged(found: dict[str, Any]) -> None:
    for name, way in EXCHANGED.items():
        for own in [found[key] for key in (name, f"{name}, features") if key in found]:
            assert own["exchanged"] == f"processes exchange {way}, {own['received']} bytes in all"


def test_calls_that_cannot_be_exchanged_are_refused(found: dict[str, Any]) -> None:
    assert found["sources"]["error"] == '"h" has rows of NS; return rows of destinations.'
    errors = found["errors"]
    assert re.fullmatch(r"x has \d+ rows, but this process has \d+ own nodes\.", errors["rows"])
    assert errors["sparse"] == "sparse features are not exchanged; pass dense ones."
    assert "torch.func" in errors["functional"]
    assert "compute weights on the whole graph" in errors["degrees"]
    assert "has numbers of other processes' nodes" in errors["numbers"]
    assert "pass it to layers" in errors["kernels"]
    assert errors["widths"].startswith("this process calls RGCN with gradients of W, bias, root, but another one")
    assert errors["gradients"].startswith("this process calls RGCN with gradients of W, bias, root, x, but another one")


@pytest.mark.parametrize("name", ["owners", "edge_index"])
def test_processes_must_divide_the_graph_alike(name: str, thirds: list[Found]) -> None:
    for part in thirds:
        text = part["exchanging"]["errors"][name]
        assert text == f"{name} differs between the processes; divide the same graph by the same seed in all."


def test_types_are_those_of_the_whole_graph(found: dict[str, Any]) -> None:
    assert found["types"]["number"] == 4


def test_gradients_of_exchanged_rows_are_not_written_to(tmp_path: Path) -> None:
    """Checks rows to which something is added, which share the tensor of the gradient; a process reads its own row."""
    with lone_process("gloo", tmp_path):
        exchange = Exchange(torch.zeros(3, dtype=torch.int64), torch.tensor([1]), dist.group.WORLD)
        x, y = (torch.ones(count, requires_grad=True) for count in (3, 4))
        added = y * 3
        ((exchange(x) + added) * 2).sum().backward()
    torch.testing.assert_close([x.grad, y.grad], [torch.tensor([2.0, 4.0, 2.0]), torch.full((4,), 6.0)])


def program_of(layer: Any) -> Any:
    return compiled_program(layer.program(), torch.float32, torch.int32, Config(), TYPICAL).sdfg


def test_a_program_is_cut_at_its_sums() -> None:
    made = cut_sums(program_of(RGCN(16, 4, 3)))
    assert made.names == ("out",)
    assert made.sums.startswith("def rgcn_sums(g, x: NS[16], W: R[16, 4], norm: E):")
    assert made.rest is not None
    assert made.rest.startswith("def rgcn_rest(g, x: ND[16], root: ONE[16, 4], out: ND[4], bias: ONE[4]):")
    assert cut_sums(program_of(RGCN(16, 4, 3, root_weight=False, bias=False))).rest is None


def test_attention_has_no_partial_sums() -> None:
    with pytest.raises(ProgramError, match="depends on edges by more than sums over sources"):
        cut_sums(program_of(RGAT(16, 4, 3)))


def test_sums_that_read_rows_of_destinations_are_no_partial_sums() -> None:
    """The process that has a source has no rows of the destinations of other processes."""
    text = """def p(g, x: NS[4]):
    for n in g.dst_nodes():
        for e in n.incoming_edges():
            n["out"] += e.src.x * e.dst.x
    return out
"""
    with pytest.raises(ProgramError):
        cut_sums(parse(text))


@pytest.mark.check
def test_exchanged_bytes_are_measured() -> None:
    command = [sys.executable, "-m", "benchmarks", "exchanged_bytes", "--data", "aifb", "--processes", "2"]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=True).stdout
    rows, chosen = (int(part) for part in re.findall(r"(\d+) MB received", told))
    assert chosen < rows
    assert "processes exchange partial sums" in told
