"""Measures what it costs to write RGCN, RGAT and HGT oneself: every front end against the built-in layers.

All forms run the same kernels (`tests/frontends/test_same_operators.py`). DGL- and PyG-style forwards are recorded in
their first two calls; later calls run their program at once. Runs are interleaved in one process, which has one graph,
since functions keep the choices made for their first graph. Times are lower quartiles, so that other work on the
machine disturbs them less.

Run: python -m benchmarks front_ends [--data aifb] [--mode infer,train]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
import dgl
import torch
from torch import Tensor

from benchmarks.options import question
from benchmarks.relational.problem import load_problem
from dacergnn.bench.measure import Timing, interleave
from dacergnn.bench.scatter import marked, noted
from dacergnn.tables import Table
from examples.front_ends import CHANNELS, MODELS, ways

FORMS = ("built in", "program form", "DaCe", "DGL", "PyG")


def measure(model: str, data: str, mode: str, repeat: int, budget: float) -> dict[str, Timing]:
    """Times every form."""
    problem = load_problem(data, CHANNELS, 0)
    g = dgl.graph((problem.src, problem.dst), num_nodes=problem.num_nodes)
    g.ndata[dgl.NTYPE], g.edata[dgl.ETYPE] = problem.ntype, problem.etype
    x = problem.x.requires_grad_()
    found, parameters = ways(model, g, x)
    steps = {form: _step(found[form].call, [x, *parameters], mode == "train") for form in FORMS}
    return interleave(steps, repeat, budget)


def _step(call: Callable[[], Tensor], leaves: list[Tensor], train: bool) -> Callable[[], Any]:
    def training() -> None:
        for leaf in leaves:
            leaf.grad = None
        call().square().mean().backward()

    def inference() -> Tensor:
        with torch.no_grad():
            return call()

    return training if train else inference


@question(models=(), mode=(), repeat=3, budget=0.5)
def main(
    models: tuple[str, ...] = MODELS, data: str = "aifb", mode: tuple[str, ...] = ("infer", "train"),
    repeat: int = 60, budget: float = 10.0, threads: int = 2,
) -> None:  # fmt: skip
    """Measure every form of every case."""
    torch.set_num_threads(threads)
    headings = ("model", "data", "mode", "built in (ms)", *FORMS[1:])
    table = Table("Times over those of the built-in layer", headings, keys=3)
    for model in models:
        for one in mode:
            found = measure(model, data, one, repeat, budget)
            own, ms = found["built in"], {form: timing.percentile(0.25) for form, timing in found.items()}
            ratios = (
                marked(f"{ms[form] / ms['built in']:.2f}", own.scatters or found[form].scatters) for form in FORMS[1:]
            )
            table.add_row(model, data, one, marked(f"{ms['built in']:.2f}", own.scatters), *ratios)
    click.echo(noted(table))
