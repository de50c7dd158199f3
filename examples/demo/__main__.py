"""Trains a node classifier with PyG's layers and with compiled ones, and compares: `python -m examples.demo`."""

from __future__ import annotations

import time
from pathlib import Path

import click
import torch
from rich.console import Console

from dacergnn import explain, warmup
from dacergnn.bench.process import ask
from dacergnn.cli.bars import progress_bar
from dacergnn.modules.sdfg_files import PAGE
from examples.demo.screen import comparison, curves, introduction, next_steps, save_picture
from examples.demo.training import OURS, PEER, Run


@click.command()
@click.option("--epochs", type=click.IntRange(min=1), default=20, show_default=True)
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=Path("demo_output"), show_default=True)
@click.option("--memory/--no-memory", default=True, help="Measure peak memory, in two more processes.")
def main(epochs: int, out: Path, memory: bool) -> None:
    """Train a node classifier with PyG's layers and with compiled ones, and compare."""
    compare(epochs, out, Console(highlight=False), memory=memory)


def compare(epochs: int, out: Path, console: Console, *, memory: bool = True) -> None:
    """Trains both classifiers, and shows on a console how they compare; pictures and SDFGs go to ``out``."""
    peer, ours = Run(PEER), Run(OURS)
    console.print(introduction(peer))
    start = time.perf_counter()
    warmup(ours.model, *ours.edges)
    console.print(
        f"Compiled forward and backward in {time.perf_counter() - start:.1f} s; the build is kept for later runs."
    )
    train((peer, ours), epochs, console)
    with console.status("Measuring peak memory ..."):
        peaks = {name: peak_in_process(name) for name in (PEER, OURS)} if memory else {}
    out.mkdir(parents=True, exist_ok=True)
    console.print(curves(peer, ours, console.options))
    console.print(comparison(peer, ours, peaks))
    console.print("PyG's layer makes a weight matrix for each edge, the compiled one for each type.\n")
    save_picture((peer, ours), out / "loss.png")
    console.print(f"Loss curves: {out / 'loss.png'}", soft_wrap=True)
    for name in ("conv1", "conv2"):
        getattr(ours.model, name).save_sdfg(out / "sdfg" / name)
        console.print(f"SDFGs of {name}, step by step: {out / 'sdfg' / name / PAGE}", soft_wrap=True)
    (out / "explain.txt").write_text(f"{explain(ours.model)}\n", encoding="utf-8")
    console.print(f"What was compiled, with estimates: {out / 'explain.txt'}", soft_wrap=True)
    console.print("\n" + next_steps(), soft_wrap=True)


def train(runs: tuple[Run, Run], epochs: int, console: Console) -> None:
    """Trains both in turns, epoch by epoch, so that other work of the machine slows both alike."""
    start = time.perf_counter()
    with progress_bar(console) as bar:
        task = bar.add_task("", total=epochs)
        for _ in range(epochs):
            for run in runs:
                run.epoch()
            losses = "   ".join(f"{run.name} {run.losses[-1]:.4f}" for run in runs)
            bar.update(task, advance=1, description=f"loss: {losses}")
    console.print(f"Trained both, epoch by epoch in turns, in {time.perf_counter() - start:.1f} s.")


def peak_in_process(name: str) -> float:
    """Returns the peak of a training in MB, measured in a process of its own."""
    threads = torch.get_num_threads()
    answer = ask("examples.demo.training.peak", name, limit_s=600.0, threads=threads, limit_bytes=64 << 30)
    if "error" in answer:
        raise click.ClickException(f"peak memory of {name}: {answer['error']}")
    return answer["peak_mb"]


if __name__ == "__main__":
    main()
