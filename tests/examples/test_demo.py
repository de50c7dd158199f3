"""The demonstration; its parts run with PyG's own layers where compiled ones add nothing to the test."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from rich.console import Console

from dacergnn.datasets import Dataset, loaders
from dacergnn.errors import DacergnnError
from dacergnn.graph import HeteroGraph

pytest.importorskip("torch_geometric")
from examples.demo.__main__ import main
from examples.demo.screen import comparison, curves, introduction, next_steps, terminal_curve
from examples.demo.training import Run, peak


@pytest.fixture
def data() -> Dataset:
    """Nodes 0 and 1 send to themselves, and to 2, 3, 4 by relation 0 or 1, which is also the class of these."""
    edges = torch.tensor([[0, 1, 0, 1, 0, 1], [0, 1, 2, 3, 4, 2]])
    graph = HeteroGraph.from_arrays(edges, torch.tensor([0, 0, 0, 1, 0, 0]), num_nodes=5, num_edge_types=2)
    label = torch.tensor([-1, -1, 0, 1, 0])
    return Dataset("tiny", graph, label=label, train_idx=torch.tensor([2, 3]), test_idx=torch.tensor([4]))


def test_training_lowers_the_loss_and_finds_the_class(data: Dataset) -> None:
    run = Run("PyG", data)
    for _ in range(60):
        run.epoch()
    assert run.losses[-1] < 0.5 * run.losses[0]
    assert run.accuracy() == 1.0
    assert run.epoch_ms > 0


def test_a_graph_without_labels_is_refused(data: Dataset) -> None:
    with pytest.raises(DacergnnError, match=r"which aifb\.npz in DACERGNN_DATA lacks; unset DACERGNN_DATA"):
        Run("PyG", replace(data, label=None))


def test_working_memory_is_measured(data: Dataset) -> None:
    assert peak("PyG", data)["peak_mb"] >= -1.0


@pytest.fixture
def without_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine that has no graphs but the one of the package."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DACERGNN_DATA", raising=False)
    monkeypatch.setattr(loaders, "_download_folder", lambda: tmp_path / "downloads")


def test_training_on_the_graph_of_the_package_is_that_of_pyg(without_data: None) -> None:
    theirs, ours = (Run(name) for name in ("PyG", "dacergnn"))
    assert (ours.graph.size("E"), ours.graph.size("R"), ours.num_classes) == (48_810, 104, 4)
    assert not set(ours.train_idx.tolist()) & set(ours.test_idx.tolist())
    for run, epochs in ((theirs, 3), (ours, 20)):  # an epoch of PyG takes half a second
        for _ in range(epochs):
            run.epoch()
    assert ours.losses[:3] == pytest.approx(theirs.losses, rel=1e-5)
    assert ours.accuracy() > 0.85 > ours.chance


def test_the_last_commands_are_for_the_graph_and_the_width_that_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}")
    layer = "--model rgat --data aifb --features 16 --heads 2"
    assert [line.partition("[/]")[2].strip() for line in next_steps().splitlines()[1:]] == [
        f"dacergnn explain {layer}",
        f"dacergnn profile {layer}",
    ]


def runs_with(data: Dataset, difference: float) -> tuple[Run, Run]:
    runs = Run("PyG", data), Run("PyG", data)
    for run, second in zip(runs, (1.0, 1.0 + difference), strict=True):
        run.losses, run.seconds = [2.0, second], [0.1, 0.1]
    runs[1].name = "dacergnn"
    return runs


@pytest.mark.parametrize(
    ("difference", "expected"),
    [(1e-5, ["training loss: both curves, largest difference 1e-05"]),
     (0.5, ["PyG: training loss", "dacergnn: training loss", "Largest difference of the curves: 5e-01"])],
)  # fmt: skip
def test_equal_curves_are_drawn_once(difference: float, expected: list[str], data: Dataset) -> None:
    console = Console(record=True, width=80, file=io.StringIO())
    console.print(curves(*runs_with(data, difference), console.options))
    shown = console.export_text()
    assert [title for title in expected if title in shown] == expected
    assert shown.count("epochs 1 to 2") == max(len(expected) - 1, 1)


@pytest.mark.parametrize("width", [40, 80])
def test_the_screen_keeps_its_width(width: int, data: Dataset) -> None:
    console = Console(record=True, width=width, file=io.StringIO())
    runs = runs_with(data, 0.5)
    for shown in (introduction(runs[0]), curves(*runs, console.options), comparison(*runs, {"PyG": 2, "dacergnn": 1})):
        console.print(shown)
    assert max(map(len, console.export_text().splitlines())) <= width


def test_an_output_without_dots_is_told_the_losses(data: Dataset) -> None:
    console = Console(file=io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    assert curves(*runs_with(data, 0.5), console.options) == "Training loss: 2.00 to 1.5, largest difference 5e-01"


def test_terminal_curve_falls_from_the_first_line_to_the_last() -> None:
    lines = terminal_curve([3.0, 2.0, 1.0, 0.0], high=3.0, width=4, height=3).split("\n")
    assert [len(line) for line in lines] == [4, 4, 4]
    assert lines[0][0] != "\u2800"
    assert lines[0][3] == "\u2800"
    assert lines[2][3] != "\u2800"


@pytest.mark.check
def test_the_demonstration_runs(without_data: None, tmp_path: Path) -> None:
    arguments = ["--epochs", "2", "--out", str(tmp_path)]
    result = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    for expected in (
        "Compiled forward and backward in",
        "both curves, largest difference",
        "test accuracy",
        "time per epoch",
        "peak memory of an epoch*",
        f"SDFGs of conv2, step by step: {tmp_path}/sdfg/conv2/steps.html",
        f"What was compiled, with estimates: {tmp_path}/explain.txt",
    ):
        assert expected in result.output
    # Without a terminal there is no bar, and the last lines say what to do next.
    assert "2/2" not in result.output
    last = result.output.splitlines()[-3:]
    assert "model = dacergnn.optimize(model)" in last[0]
    assert (tmp_path / "loss.png").read_bytes()[1:4] == b"PNG"
    assert list((tmp_path / "sdfg").rglob("*.sdfg"))
    assert (tmp_path / "sdfg" / "conv2" / "steps.html").exists()
    assert "RGATConv" in (tmp_path / "explain.txt").read_text()
