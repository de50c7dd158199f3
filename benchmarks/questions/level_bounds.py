"""Prints how far ahead of hector's plan the best one can be in training, by the bounds of both; see docs/results.md.

python -m benchmarks level_bounds
"""

from __future__ import annotations

from statistics import geometric_mean

import click

from benchmarks.options import question
from benchmarks.relational.bound import bounds
from benchmarks.relational.problem import load_problem
from benchmarks.relational.settings import MODELS
from dacergnn.bench import measure_rates


@question(data=())
def main(
    data: tuple[str, ...] = ("aifb", "mutag", "fb15k237", "wn18rr", "bgs~", "biokg~", "am~"),
    models: tuple[str, ...] = MODELS,
) -> None:  # fmt: skip
    ratios: list[float] = []
    for name in data:
        problem = load_problem(name)
        rates = measure_rates(problem.num_nodes)
        for model in models:
            found = bounds(model, "train", problem.sizes(), 64, rates)
            ratios.append(found["compact"].ms / min(bound.ms for bound in found.values()))
            click.echo(f"{model} on {name}: {ratios[-1]:.2f}")
    click.echo(f"geometric mean: {geometric_mean(ratios):.2f}")
