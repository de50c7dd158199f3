"""Makes what the demonstration shows: the task, the loss curves, the comparison, and what to do next."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping

from rich.columns import Columns
from rich.console import ConsoleOptions, Group, RenderableType
from rich.panel import Panel
from rich.table import Table

from dacergnn.demo.curves import terminal_curve
from dacergnn.demo.task import HEADS, HIDDEN, NAME, Task
from dacergnn.demo.training import Run

PEER, OURS = "PyG", "dacergnn"
ROUNDING = 1e-4
"""Differences of losses that float32 explains, relative to the largest loss."""


def introduction(task: Task) -> str:
    """Returns sentences on the graph, the layers and the classes."""
    nodes, edges, types = (task.graph.size(space) for space in ("NS", "E", "R"))
    return (
        "AIFB, the people, projects and publications of a research institute:\n"
        f"{nodes:,} nodes, {edges:,} edges, {types} edge types.\n"
        f"{task.num_classes} classes, {len(task.train_idx):,} training nodes, {len(task.test_idx):,} test nodes "
        f"({100 * task.chance:.0f} % in the largest class).\n"
        f"Two layers of PyG's RGATConv, {HIDDEN} features in {HEADS} heads, on learned embeddings."
    )


def curves(peer: Run, ours: Run, options: ConsoleOptions) -> RenderableType:
    """Draws the training losses: one curve if both agree to rounding, else both on the same scale."""
    high = max(*peer.losses, *ours.losses)
    gap = max(abs(a - b) for a, b in zip(peer.losses, ours.losses, strict=True))
    if options.ascii_only:  # there are no dots to draw with
        return f"Training loss: {ours.losses[0]:.2f} to {ours.losses[-1]:.2g}, largest difference {gap:.0e}"

    def panel(losses: list[float], title: str, width: int) -> Panel:
        curve = terminal_curve(losses, 0.0, high, max(min(width, options.max_width) - 4, 1))
        subtitle = f"epochs 1 to {len(losses)}, loss {losses[0]:.2f} to {losses[-1]:.2g}"
        return Panel(curve, title=title, subtitle=subtitle, expand=False)

    if gap <= ROUNDING * high:
        return panel(ours.losses, f"training loss: both curves, largest difference {gap:.0e}", 72)
    both = Columns(panel(run.losses, f"{run.name}: training loss", 38) for run in (peer, ours))
    return Group(both, f"Largest difference of the curves: {gap:.0e}")


def comparison(peer: Run, ours: Run, peaks: Mapping[str, int]) -> Table:
    """Returns a table of the two runs beside each other."""
    table = Table("", PEER, OURS, f"{PEER} / {OURS}", header_style="bold")
    table.add_row("test accuracy", *(f"{100 * run.accuracy():.1f} %" for run in (peer, ours)), "")
    table.add_row(
        "time per epoch",
        *(f"{run.epoch_ms:.1f} ms" for run in (peer, ours)),
        f"{peer.epoch_ms / ours.epoch_ms:.1f}x",
    )
    if peaks:
        theirs, own = peaks[PEER], peaks[OURS]
        table.add_row(
            "peak memory of an epoch*",
            f"{theirs / 1e6:.1f} MB",
            f"{own / 1e6:.1f} MB",
            f"{theirs / max(own, 1):.1f}x",
        )
        table.caption = "* beyond data, parameters and the optimizer's state"
    return table


def next_steps() -> str:
    """Returns three lines: how to compile a model of one's own, and commands for a layer like those that ran."""
    # A shell finds the command by its name only where the environment is activated.
    command = "dacergnn" if shutil.which("dacergnn") else f"{os.path.relpath(sys.executable)} -m dacergnn"
    layer = f"--model rgat --data {NAME} --features {HIDDEN // HEADS} --heads {HEADS}"
    return (
        "[bold]Your model:[/]   model = dacergnn.optimize(model)"
        f"\n[bold]Such a layer:[/] {command} explain {layer}"
        f"\n[bold]Its times:[/]    {command} profile {layer}"
    )
