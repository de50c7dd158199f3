"""Measures training steps on large graphs: peak memory, time of a step and of its layer, saved bytes.

python -m benchmarks large_graphs rgat mag~ [--device cuda]
"""

from __future__ import annotations

import resource

import click
import torch

from benchmarks.relational import ours
from benchmarks.relational.bound import bound
from benchmarks.relational.candidate import make_layer_step, make_step, unwrapped
from benchmarks.relational.parameters import make_parameters
from benchmarks.relational.problem import load_problem
from dacergnn import explain
from dacergnn.bench.measure import Timing, clock_of
from dacergnn.bench.memory import settle_device
from dacergnn.bench.rates import measure_rates
from dacergnn.bench.scatter import NOTE, marked
from dacergnn.cli.options import device_option


@click.command()
@click.argument("model", type=click.Choice(["rgcn", "rgat", "hgt"]))
@click.argument("data")
@click.option("--threads", default=2, show_default=True)
@device_option
def main(model: str, data: str, threads: int, device: str) -> None:
    """Four training steps of one layer, 64 features in and out, one head, and three without the loss."""
    torch.set_num_threads(threads)
    problem = load_problem(data, 64, 0).to(device)
    rates = measure_rates(problem.num_nodes, device=device)
    timed = clock_of(problem.x.device).time
    if device == "cuda":
        settle_device(problem.x.device)
    built = ours.candidate(model).build(problem, make_parameters(model, problem), unwrapped)
    step = make_step(built, problem, train=True)
    first, *seconds = [timed(step) for _ in range(4)]
    click.echo(f"{model} on {data}: {len(problem.src):,} edges, peak {peak(device)}")
    whole = Timing(seconds)
    click.echo(f"first step {first:.1f} s with compilation, then {shown(whole)} s")
    layer_step = make_layer_step(built, step())
    layer = Timing([timed(layer_step) for _ in range(3)])
    least = bound(model, "train", problem.sizes(), 64, rates).ms / 1e3
    ratio = marked(f"{layer.ms / 1e3 / least:.2f}", layer.scatters)
    click.echo(f"without the loss {shown(layer)} s, {ratio} times its bound of {least:.2f} s")
    if whole.scatters or layer.scatters:
        click.echo(NOTE)
    for line in str(explain(built.layer)).splitlines():
        if "saved for the backward" in line or "workspace" in line:
            click.echo(line.strip())


def shown(timing: Timing) -> str:
    """Returns seconds, with a mark if they scatter."""
    return marked(f"{timing.ms / 1e3:.2f}", timing.scatters)


def peak(device: str) -> str:
    """Returns the most memory so far, graph, features and parameters included."""
    if device == "cuda":
        return f"{torch.cuda.max_memory_allocated() / 1e9:.1f} GB of the device's memory"
    return f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.1f} GB of resident memory"
