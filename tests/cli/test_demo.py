"""The demonstration; its parts run with PyG's own layers where compiled ones add nothing to the test."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from rich.console import Console

from dacergnn import datasets
from dacergnn.cli import main
from dacergnn.datasets import loaders
from dacergnn.demo.command import make_run, save_sdfgs
from dacergnn.demo.curves import save_picture, terminal_curve
from dacergnn.demo.memory import working_bytes
from dacergnn.demo.screen import comparison, curves, introduction, next_steps
from dacergnn.demo.task import Task, load_task, make_classifier, make_task
from dacergnn.demo.training import Run
from dacergnn.errors import DacergnnError
from dacergnn.graph import HeteroGraph


@pytest.fixture
def task() -> Task:
    """Nodes 0 and 1 send to themselves, and to 2, 3, 4 by relation 0 or 1, which is also the class of these."""
    edges = torch.tensor([[0, 1, 0, 1, 0, 1], [0, 1, 2, 3, 4, 2]])
    graph = HeteroGraph.from_arrays(edges, torch.tensor([0, 0, 0, 1, 0, 0]), num_nodes=5, num_edge_types=2)
    label = torch.tensor([-1, -1, 0, 1, 0])
    return make_task(graph, label, torch.tensor([2, 3]), torch.tensor([4]))


def test_training_lowers_the_loss_and_finds_the_class(task: Task) -> None:
    run = Run("PyG", make_classifier(task), task)
    for _ in range(60):
        run.epoch()
    assert run.losses[-1] < 0.5 * run.losses[0]
    assert run.accuracy() == 1.0
    assert run.epoch_ms > 0


def test_working_memory_is_measured(task: Task) -> None:
    assert working_bytes(Run("PyG", make_classifier(task), task)) >= -(1 << 20)


def test_equal_seeds_give_equal_models(task: Task) -> None:
    first, second = (make_classifier(task)(task.edge_index, task.edge_type) for _ in range(2))
    assert torch.equal(first, second)


@pytest.fixture
def without_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine that has no graphs but the one of the package."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DACERGNN_DATA", raising=False)
    monkeypatch.setattr(loaders, "_download_folder", lambda: tmp_path / "downloads")


def test_training_on_the_graph_of_the_package_is_that_of_pyg(without_data: None) -> None:
    task = load_task()
    assert (task.graph.size("E"), task.graph.size("R"), task.num_classes) == (48_810, 104, 4)
    assert not set(task.train_idx.tolist()) & set(task.test_idx.tolist())
    theirs, ours = (make_run(name, task) for name in ("PyG", "dacergnn"))
    for run, epochs in ((theirs, 3), (ours, 20)):  # an epoch of PyG takes half a second
        for _ in range(epochs):
            run.epoch()
    assert ours.losses[:3] == pytest.approx(theirs.losses, rel=1e-5)
    assert ours.accuracy() > 0.85 > task.chance


def test_a_graph_without_labels_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with np.load(datasets.PACKAGED / "aifb.npz") as arrays:
        np.savez(tmp_path / "aifb.npz", **{name: arrays[name] for name in arrays if name != "label"})
    monkeypatch.setenv("DACERGNN_DATA", str(tmp_path))
    with pytest.raises(DacergnnError, match=r"which aifb\.npz in DACERGNN_DATA lacks; unset DACERGNN_DATA"):
        load_task()


def test_the_last_commands_are_for_the_graph_and_the_width_that_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}")
    layer = "--model rgat --data aifb --features 16 --heads 2"
    assert [line.partition("[/]")[2].strip() for line in next_steps().splitlines()[1:]] == [
        f"dacergnn explain {layer}",
        f"dacergnn profile {layer}",
    ]


def runs_with(task: Task, difference: float) -> tuple[Run, Run]:
    model = make_classifier(task)
    theirs, ours = (Run(name, model, task, [2.0, 1.0], [0.1, 0.1]) for name in ("PyG", "dacergnn"))
    ours.losses[1] += difference
    return theirs, ours


@pytest.mark.parametrize(
    ("difference", "expected"),
    [(1e-5, ["training loss: both curves, largest difference 1e-05"]),
     (0.5, ["PyG: training loss", "dacergnn: training loss", "Largest difference of the curves: 5e-01"])],
)  # fmt: skip
def test_equal_curves_are_drawn_once(difference: float, expected: list[str], task: Task) -> None:
    console = Console(record=True, width=80, file=io.StringIO())
    console.print(curves(*runs_with(task, difference), console.options))
    shown = console.export_text()
    assert [title for title in expected if title in shown] == expected
    assert shown.count("epochs 1 to 2") == max(len(expected) - 1, 1)


@pytest.mark.parametrize("width", [40, 80])
def test_the_screen_keeps_its_width(width: int, task: Task) -> None:
    console = Console(record=True, width=width, file=io.StringIO())
    runs = runs_with(task, 0.5)
    for shown in (introduction(task), curves(*runs, console.options), comparison(*runs, {"PyG": 2, "dacergnn": 1})):
        console.print(shown)
    assert max(map(len, console.export_text().splitlines())) <= width


def test_an_output_without_dots_is_told_the_losses(task: Task) -> None:
    console = Console(file=io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    assert curves(*runs_with(task, 0.5), console.options) == "Training loss: 2.00 to 1.5, largest difference 5e-01"


def test_terminal_curve_falls_from_the_first_line_to_the_last() -> None:
    lines = terminal_curve([3.0, 2.0, 1.0, 0.0], low=0.0, high=3.0, width=4, height=3).split("\n")
    assert [len(line) for line in lines] == [4, 4, 4]
    assert lines[0][0] != "\u2800"
    assert lines[0][3] == "\u2800"
    assert lines[2][3] != "\u2800"
    assert terminal_curve([1.0], low=1.0, high=1.0, width=2, height=1) == "\u28c0\u28c0"


def test_picture_of_the_curves(tmp_path: Path) -> None:
    assert save_picture({"a": [2.0, 1.0], "b": [2.0, 1.5]}, tmp_path / "loss.png")
    assert (tmp_path / "loss.png").read_bytes()[1:4] == b"PNG"


def test_sdfgs_are_saved_layer_by_layer(tmp_path: Path) -> None:
    class Layer(torch.nn.Module):
        def save_sdfg(self, folder: Path) -> None:
            folder.mkdir(parents=True)

    assert save_sdfgs(torch.nn.ModuleDict({"a": Layer(), "b": torch.nn.ReLU()}), tmp_path) == ["a"]


def test_without_pyg_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch_geometric.nn", None)
    result = CliRunner().invoke(main, ["demo"])
    assert result.exit_code == 1
    assert "Error: The demonstration trains PyG's layers, but torch_geometric cannot be imported" in result.output
    assert result.output.endswith("install it with pip install 'dacergnn[pyg]'.\n")


@pytest.mark.check
def test_the_demonstration_runs(without_data: None, tmp_path: Path) -> None:
    arguments = ["demo", "--epochs", "2", "--no-memory", "--out", str(tmp_path)]
    result = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    for expected in (
        "Compiled forward and backward in",
        "both curves, largest difference",
        "test accuracy",
        "time per epoch",
        f"SDFGs of conv2, step by step: {tmp_path}/sdfg/conv2/steps.html",
        f"What was compiled, with estimates: {tmp_path}/explain.txt",
    ):
        assert expected in result.output
    # Without a terminal there is no bar, and the last lines say what to do next.
    assert "2/2" not in result.output
    last = result.output.splitlines()[-3:]
    assert "model = dacergnn.optimize(model)" in last[0]
    assert (tmp_path / "loss.png").exists()
    assert list((tmp_path / "sdfg").rglob("*.sdfg"))
    assert (tmp_path / "sdfg" / "conv2" / "steps.html").exists()
    assert "RGATConv" in (tmp_path / "explain.txt").read_text()
