"""Whether training steps on large graphs fit into memory: peak of the process, time of a step, bytes saved.

python benchmarks/large_graphs.py rgat mag~
"""

from __future__ import annotations

import resource
import statistics
import time

import click
import torch

from dacergnn import explain
from dacergnn.bench import ours
from dacergnn.bench.candidate import make_step, unwrapped
from dacergnn.bench.parameters import make_parameters
from dacergnn.bench.problem import load_problem


@click.command()
@click.argument("model", type=click.Choice(["rgcn", "rgat", "hgt"]))
@click.argument("data")
@click.option("--threads", default=2, show_default=True)
def main(model: str, data: str, threads: int) -> None:
    """Four training steps of one layer, 64 features in and out, one head, at level O2."""
    torch.set_num_threads(threads)
    problem = load_problem(data, 64, 0)
    built = ours.candidate(model).build(problem, make_parameters(model, problem), unwrapped)
    step = make_step(built, problem, train=True)
    seconds: list[float] = []
    for _ in range(4):
        started = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - started)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    click.echo(f"{model} on {data}: {len(problem.src):,} edges, peak {peak:.1f} GB of resident memory")
    click.echo(f"first step {seconds[0]:.1f} s with compilation, then {statistics.median(seconds[1:]):.2f} s")
    for line in str(explain(built.layer)).splitlines():
        if "saved for the backward" in line or "workspace" in line:
            click.echo(line.strip())


if __name__ == "__main__":
    main()
