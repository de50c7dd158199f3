"""Makes what the demonstration shows: the task, the loss curves, the comparison, and what to do next."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.columns import Columns
from rich.console import ConsoleOptions, Group, RenderableType
from rich.panel import Panel
from rich.table import Table

from dacergnn.bench.picture import new_figure
from examples.demo.training import HEADS, HIDDEN, NAME, OURS, PEER, Run

ROUNDING = 1e-4
"""Differences of losses that float32 explains, relative to the largest loss."""
DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Bit of each dot of a braille character, by row and column."""


def introduction(run: Run) -> str:
    """Returns sentences on the graph, the layers and the classes."""
    nodes, edges, types = (run.graph.size(space) for space in ("NS", "E", "R"))
    return (
        "AIFB, the people, projects and publications of a research institute:\n"
        f"{nodes:,} nodes, {edges:,} edges, {types} edge types.\n"
        f"{run.num_classes} classes, {len(run.train_idx):,} training nodes, {len(run.test_idx):,} test nodes "
        f"({100 * run.chance:.0f} % in the largest class).\n"
        f"Two layers of PyG's RGATConv, {HIDDEN} features in {HEADS} heads, on learned embeddings."
    )


def curves(peer: Run, ours: Run, options: ConsoleOptions) -> RenderableType:
    """Draws the training losses: one curve if both agree to rounding, else both on the same scale."""
    high = max(*peer.losses, *ours.losses)
    gap = max(abs(a - b) for a, b in zip(peer.losses, ours.losses, strict=True))
    if options.ascii_only:  # there are no dots to draw with
        return f"Training loss: {ours.losses[0]:.2f} to {ours.losses[-1]:.2g}, largest difference {gap:.0e}"

    def panel(losses: list[float], title: str, width: int) -> Panel:
        curve = terminal_curve(losses, high, max(min(width, options.max_width) - 4, 1))
        subtitle = f"epochs 1 to {len(losses)}, loss {losses[0]:.2f} to {losses[-1]:.2g}"
        return Panel(curve, title=title, subtitle=subtitle, expand=False)

    if gap <= ROUNDING * high:
        return panel(ours.losses, f"training loss: both curves, largest difference {gap:.0e}", 72)
    both = Columns(panel(run.losses, f"{run.name}: training loss", 38) for run in (peer, ours))
    return Group(both, f"Largest difference of the curves: {gap:.0e}")


def terminal_curve(values: Sequence[float], high: float, width: int = 40, height: int = 8) -> str:
    """Draws values as a curve of braille dots between 0 and `high`, in `height` lines of `width` characters."""
    cells = [[0] * width for _ in range(height)]
    columns, rows = 2 * width, 4 * height
    previous: int | None = None
    for column in range(columns):
        position = column * (len(values) - 1) / (columns - 1)
        before, part = int(position), position % 1
        value = values[before] + part * (values[min(before + 1, len(values) - 1)] - values[before])
        row = round((1.0 - min(max(value / high, 0.0), 1.0)) * (rows - 1))
        # The dots between this row and the last one are set, too, so that a steep curve stays connected.
        start, stop = sorted((row, row if previous is None else previous))
        for r in range(start, stop + 1):
            cells[r // 4][column // 2] |= DOTS[r % 4][column % 2]
        previous = row
    return "\n".join("".join(chr(0x2800 + cell) for cell in line) for line in cells)


def save_picture(runs: tuple[Run, Run], file: Path) -> None:
    """Draws the losses of both into a file."""
    figure = new_figure(6, 4)
    axes = figure.add_subplot(xlabel="epoch", ylabel="training loss")
    for run, style in zip(runs, ("-", "--"), strict=True):
        axes.plot(range(1, len(run.losses) + 1), run.losses, style, label=run.name)
    axes.legend()
    figure.savefig(file, dpi=150)


def comparison(peer: Run, ours: Run, peaks: Mapping[str, float]) -> Table:
    """Returns a table of the two runs beside each other, with peaks in MB."""
    table = Table("", PEER, OURS, f"{PEER} / {OURS}", header_style="bold")
    table.add_row("test accuracy", *(f"{100 * run.accuracy():.1f} %" for run in (peer, ours)), "")
    times = peer.epoch_ms, ours.epoch_ms
    table.add_row("time per epoch", *(f"{ms:.1f} ms" for ms in times), f"{times[0] / times[1]:.1f}x")
    if peaks:
        ratio = peaks[PEER] / max(peaks[OURS], 1e-6)
        table.add_row("peak memory of an epoch*", *(f"{peaks[name]:.1f} MB" for name in (PEER, OURS)), f"{ratio:.1f}x")
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
