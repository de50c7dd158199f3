"""Defines `dacergnn demo`, which trains both classifiers and shows how they compare."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from rich.columns import Columns
from rich.console import Console
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from dacergnn.api import optimize
from dacergnn.demo.curves import save_picture, terminal_curve
from dacergnn.demo.memory import peak_in_process, working_bytes
from dacergnn.demo.task import Task, load_task, make_classifier, require_pyg
from dacergnn.demo.training import Run

PEER, OURS = "PyG", "dacergnn"


@click.command()
@click.option("--epochs", type=click.IntRange(min=1), default=50, show_default=True)
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=Path("demo_output"), show_default=True)
@click.option("--memory/--no-memory", default=True, help="Measure peak memory, in two more processes.")
@click.option("--measure", type=click.Choice([PEER, OURS]), hidden=True)
def demo(epochs: int, out: Path, memory: bool, measure: str | None) -> None:
    """Train a node classifier with PyG's layers and with compiled ones, and compare."""
    require_pyg()
    task = load_task()
    if measure is not None:
        click.echo(working_bytes(make_run(measure, task)))
        return
    console = Console()
    sizes = {space: task.graph.size(space) for space in ("NS", "E", "R")}
    console.print(
        f"AIFB ({task.origin}): {sizes['NS']:,} nodes, {sizes['E']:,} edges, {sizes['R']} edge types.\n"
        f"Two RGCN layers, {task.num_classes} classes, {len(task.train_idx)} training nodes."
    )
    with console.status("Compiling ..."):
        ours = make_run(OURS, task)
        # Gradients without a step compile the backward, and leave the parameters as they are for the training.
        Run(OURS, ours.model, task).loss_and_gradients()
    peer = make_run(PEER, task)
    train((peer, ours), epochs, console)
    out.mkdir(parents=True, exist_ok=True)
    draw((peer, ours), out, console)
    with console.status("Measuring peak memory ..."):
        peaks = {name: peak_in_process(name) for name in (PEER, OURS)} if memory else {}
    console.print(comparison(peer, ours, peaks))
    for folder in save_sdfgs(ours.model, out / "sdfg"):
        console.print(f"SDFGs, step by step: {folder}")


def make_run(name: str, task: Task) -> Run:
    """Returns a run with PyG's layers, or with the same layers compiled; both start from the same parameters."""
    model: Any = make_classifier(task)
    if name == OURS:
        model = optimize(model, task.graph)
    return Run(name, model, task)


def train(runs: tuple[Run, Run], epochs: int, console: Console) -> None:
    """Trains both in turns, epoch by epoch, so that other work of the machine slows both alike."""
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("", total=epochs)
        for _ in range(epochs):
            for run in runs:
                run.epoch()
            losses = "   ".join(f"{run.name} {run.losses[-1]:.4f}" for run in runs)
            progress.update(bar, advance=1, description=f"loss: {losses}")


def draw(runs: tuple[Run, Run], out: Path, console: Console) -> None:
    """Draws both loss curves on the same scale."""
    high = max(max(run.losses) for run in runs)
    console.print(Columns(Panel(terminal_curve(r.losses, 0.0, high), title=f"{r.name}: training loss") for r in runs))
    picture = out / "loss.png"
    if save_picture({run.name: run.losses for run in runs}, picture):
        console.print(f"Loss curves: {picture}")


def comparison(peer: Run, ours: Run, peaks: Mapping[str, int]) -> Table:
    """Returns a table of the two runs beside each other."""
    table = Table("", PEER, OURS, f"{PEER} / {OURS}", header_style="bold")
    table.add_row("test accuracy", *(f"{100 * run.accuracy():.1f} %" for run in (peer, ours)), "")
    table.add_row(
        "time per epoch",
        *(f"{run.epoch_ms:.1f} ms" for run in (peer, ours)),
        f"{peer.epoch_ms / ours.epoch_ms:.2f}x",
    )
    if peaks:
        theirs, own = peaks[PEER], peaks[OURS]
        table.add_row(
            "peak memory of an epoch*",
            f"{theirs / 1e6:.1f} MB",
            f"{own / 1e6:.1f} MB",
            f"{theirs / max(own, 1):.2f}x",
        )
        table.caption = "* beyond data, parameters and the optimizer's state"
    gap = max(abs(a - b) for a, b in zip(peer.losses, ours.losses, strict=True))
    table.add_row("largest difference of losses", "", f"{gap:.1e}", "")
    return table


def save_sdfgs(model: Any, folder: Path) -> list[Path]:
    """Saves the SDFGs of every compiled layer, and returns the folders, one per layer."""
    folders: list[Path] = []
    for name, layer in model.named_modules():
        if hasattr(layer, "save_sdfg"):
            folders.append(folder / name)
            layer.save_sdfg(folders[-1])
    return folders
