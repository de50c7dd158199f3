"""Measures training steps on large graphs: peak of the process, time of a step and of its layer, saved bytes.

python benchmarks/large_graphs.py rgat mag~
"""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Callable

import click
import torch

from dacergnn import explain
from dacergnn.bench import ours
from dacergnn.bench.bound import bound
from dacergnn.bench.candidate import make_layer_step, make_step, unwrapped
from dacergnn.bench.parameters import make_parameters
from dacergnn.bench.problem import load_problem
from dacergnn.bench.rates import measure_rates


@click.command()
@click.argument("model", type=click.Choice(["rgcn", "rgat", "hgt"]))
@click.argument("data")
@click.option("--threads", default=2, show_default=True)
def main(model: str, data: str, threads: int) -> None:
    """Four training steps of one layer, 64 features in and out, one head, and three without the loss."""
    torch.set_num_threads(threads)
    problem = load_problem(data, 64, 0)
    rates = measure_rates(problem.num_nodes)
    built = ours.candidate(model).build(problem, make_parameters(model, problem), unwrapped)
    step = make_step(built, problem, train=True)
    first, *seconds = [timed(step) for _ in range(4)]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    click.echo(f"{model} on {data}: {len(problem.src):,} edges, peak {peak:.1f} GB of resident memory")
    click.echo(f"first step {first:.1f} s with compilation, then {statistics.median(seconds):.2f} s")
    layer_step = make_layer_step(built, step())
    layer = statistics.median(timed(layer_step) for _ in range(3))
    least = bound(model, "train", problem.sizes(), 64, rates).ms / 1e3
    click.echo(f"without the loss {layer:.2f} s, {layer / least:.2f} times its bound of {least:.2f} s")
    for line in str(explain(built.layer)).splitlines():
        if "saved for the backward" in line or "workspace" in line:
            click.echo(line.strip())


def timed(step: Callable[[], object]) -> float:
    """Returns the seconds of a call."""
    started = time.perf_counter()
    step()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
