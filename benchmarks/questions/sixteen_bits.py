"""Measures layers in bfloat16 and float16 on the CPU against float32, in turns, and the memory of a training step.

Run: python -m benchmarks sixteen_bits [--data bgs~,biokg~,am~] [--repeat 9]
"""

from __future__ import annotations

import math
from collections.abc import Callable

import click
import torch
from torch import Tensor, nn

from benchmarks.options import question
from benchmarks.relational.settings import MODELS
from dacergnn import HeteroGraph, datasets
from dacergnn.bench.measure import interleave
from dacergnn.bench.memory import peak_growth, return_freed
from dacergnn.bench.scatter import Ratio, Steady, marked, noted, ratio_cell, with_left_out
from dacergnn.cli.named_layers import native_layer
from dacergnn.runtime.pool import POOL
from dacergnn.tables import Table

TYPES = (torch.float32, torch.bfloat16, torch.float16)
WIDTH = 64


def calls(graph: HeteroGraph, layer: nn.Module, dtype: torch.dtype) -> dict[str, Callable[[], object]]:
    """Returns an inference and a training step of a layer in a type."""
    layer = layer.to(dtype)
    x = torch.randn(graph.size("NS"), WIDTH).to(dtype).requires_grad_()
    seed = torch.randn(graph.size("ND"), WIDTH).to(dtype)

    def infer() -> Tensor:
        with torch.no_grad():
            return layer(x, graph)

    def train() -> None:
        x.grad = None
        layer(x, graph).backward(seed)

    return {"inference": infer, "training": train}


def peak(layer: nn.Module, train: Callable[[], object], rows: int, dtype: torch.dtype) -> float:
    """Returns the MiB that a training step needs at most: parameters, features and their gradients included."""
    POOL.clear()  # or memory that is kept from the last step would not count
    layer.zero_grad(set_to_none=True)
    growth, _ = peak_growth(train)
    held = sum(p.nbytes for p in layer.parameters()) + 2 * rows * WIDTH * dtype.itemsize
    return (growth + held) / 2**20


@question(data=(), repeat=3)
def main(data: tuple[str, ...] = ("bgs~", "biokg~", "am~"), repeat: int = 9) -> None:
    """Measures every layer on every graph."""
    return_freed()
    names = [str(dtype).removeprefix("torch.") for dtype in TYPES[1:]]
    table = Table("Speed-up over float32", ("graph", "layer", "mode", "float32 (ms)", *names), keys=3)
    memory = Table("Peak memory of a step over float32", ("graph", "layer", "float32 (MiB)", *names), keys=2)
    ratios: dict[torch.dtype, list[Ratio]] = {dtype: [] for dtype in TYPES[1:]}
    for name in data:
        graph = datasets.load(name).graph
        for kind in MODELS:
            own = {dtype: native_layer(kind, graph, WIDTH, 1) for dtype in TYPES}
            made = {dtype: calls(graph, layer, dtype) for dtype, layer in own.items()}
            for mode in ("inference", "training"):
                steps = {dtype: made[dtype][mode] for dtype in TYPES}
                for step in steps.values():
                    step()  # compiles
                found = interleave(steps, repeat, math.inf)
                base = found[torch.float32]
                for dtype, values in ratios.items():
                    values.append(Ratio(base.ms / found[dtype].ms, base.scatters or found[dtype].scatters))
                shown = [ratio_cell(values[-1]) for values in ratios.values()]
                table.add_row(name, kind.upper(), mode, marked(f"{base.ms:.1f}", base.scatters), *shown)
            peaks = [peak(own[dtype], made[dtype]["training"], graph.size("NS"), dtype) for dtype in TYPES]
            memory.add_row(name, kind.upper(), f"{peaks[0]:.0f}", *(f"{value / peaks[0]:.2f}" for value in peaks[1:]))
    steady = [Steady.of(values) for values in ratios.values()]
    means = (with_left_out("-" if s.mean is None else f"{s.mean:.2f}", s.left_out) for s in steady)
    table.add_row("geometric mean", "", "", "", *means)
    click.echo(f"{noted(table)}\n\n{memory}")
