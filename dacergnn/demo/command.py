"""Defines `dacergnn demo`, which trains both classifiers and shows how they compare."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from dacergnn.api import explain, optimize
from dacergnn.demo.curves import save_picture
from dacergnn.demo.memory import peak_in_process, working_bytes
from dacergnn.demo.screen import OURS, PEER, comparison, curves, introduction, next_steps
from dacergnn.demo.task import Task, load_task, make_classifier, require_pyg
from dacergnn.demo.training import Run
from dacergnn.modules.sdfg_files import PAGE
from dacergnn.modules.warming import warmup


@click.command()
@click.option("--epochs", type=click.IntRange(min=1), default=20, show_default=True)
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=Path("demo_output"), show_default=True)
@click.option("--memory/--no-memory", default=True, help="Measure peak memory, in two more processes.")
@click.option("--measure", type=click.Choice([PEER, OURS]), hidden=True)
def demo(epochs: int, out: Path, memory: bool, measure: str | None) -> None:
    """Train a node classifier with PyG's layers and with compiled ones, and compare."""
    require_pyg()
    if measure is not None:
        click.echo(working_bytes(make_run(measure, load_task())))
        return
    compare(epochs, out, Console(highlight=False), memory=memory)


def compare(epochs: int, out: Path, console: Console, *, memory: bool = True) -> None:
    """Trains both classifiers, and shows on a console how they compare; pictures and SDFGs go to ``out``."""
    task = load_task()
    console.print(introduction(task))
    start = time.perf_counter()
    ours = make_run(OURS, task)
    warmup(ours.model, task.edge_index, task.edge_type)
    console.print(
        f"Compiled forward and backward in {time.perf_counter() - start:.1f} s; the build is kept for later runs."
    )
    peer = make_run(PEER, task)
    train((peer, ours), epochs, console)
    with console.status("Measuring peak memory ..."):
        peaks = {name: peak_in_process(name) for name in (PEER, OURS)} if memory else {}
    out.mkdir(parents=True, exist_ok=True)
    console.print(curves(peer, ours, console.options))
    console.print(comparison(peer, ours, peaks))
    console.print("PyG's layer makes a weight matrix for each edge, the compiled one for each type.\n")
    if save_picture({run.name: run.losses for run in (peer, ours)}, out / "loss.png"):
        console.print(f"Loss curves: {out / 'loss.png'}", soft_wrap=True)
    for name in save_sdfgs(ours.model, out / "sdfg"):
        console.print(f"SDFGs of {name}, step by step: {out / 'sdfg' / name / PAGE}", soft_wrap=True)
    (out / "explain.txt").write_text(f"{explain(ours.model)}\n", encoding="utf-8")
    console.print(f"What was compiled, with estimates: {out / 'explain.txt'}", soft_wrap=True)
    console.print("\n" + next_steps(), soft_wrap=True)


def make_run(name: str, task: Task) -> Run:
    """Returns a run with PyG's layers, or with the same layers compiled; both start from the same parameters."""
    model: Any = make_classifier(task)
    if name == OURS:
        model = optimize(model, task.graph)
    return Run(name, model, task)


def train(runs: tuple[Run, Run], epochs: int, console: Console) -> None:
    """Trains both in turns, epoch by epoch, so that other work of the machine slows both alike."""
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    start = time.perf_counter()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("", total=epochs)
        for _ in range(epochs):
            for run in runs:
                run.epoch()
            losses = "   ".join(f"{run.name} {run.losses[-1]:.4f}" for run in runs)
            progress.update(bar, advance=1, description=f"loss: {losses}")
    console.print(f"Trained both, epoch by epoch in turns, in {time.perf_counter() - start:.1f} s.")


def save_sdfgs(model: Any, folder: Path) -> list[str]:
    """Saves the SDFGs of every compiled layer, each in a folder of its name, and returns the names."""
    names: list[str] = []
    for name, layer in model.named_modules():
        if hasattr(layer, "save_sdfg"):
            names.append(name)
            layer.save_sdfg(folder / name)
    return names
