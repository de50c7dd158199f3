"""Defines `benchmarks model regret` and `searches`, which measure the plans that are chosen for layers on graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from hashlib import sha256
from itertools import product
from pathlib import Path
from statistics import fmean, geometric_mean, median
from typing import Any

import click
import torch

from benchmarks.learned_model import regret as regrets
from benchmarks.learned_model.figures import draw_regrets
from benchmarks.learned_model.searches import SEARCHES, compare
from benchmarks.options import question
from benchmarks.programs import HOMOGENEOUS, program_of
from benchmarks.relational.settings import check
from benchmarks.suite import Tell, results, run_cases, terminal
from dacergnn.bench.measure import MODES
from dacergnn.cli.layers import MODELS
from dacergnn.graph import HeteroGraph
from dacergnn.json_lines import Row
from dacergnn.tables import Table
from dacergnn.tuning.model_file import SHIPPED
from dacergnn.tuning.tuned import shipped

CHOICES = {"default": "off", "model": "model", "fast": "fast", "measure": "measure"}
"""Field of `Regret` that has the seconds of a choice -> the value of `Config.tune` that makes this choice."""


def cases_of(models: Sequence[str], data: Sequence[str], mode: Sequence[str], **settings: int) -> list[Row]:
    """Returns the fields of each case."""
    for name, values, known in (("models", models, (*MODELS, *HOMOGENEOUS)), ("mode", mode, MODES)):
        check(name, values, known)
    return [{"layer": m, "data": d, "mode": way, **settings} for m, d, way in product(models, data, mode)]


def _program(case: Row, tell: Tell) -> tuple[Any, int, HeteroGraph]:
    tell(f"{case['layer']} on {case['data']}, {case['mode']}")
    return program_of(case["layer"], case["data"], case["features"], case["heads"], case["mode"])


@question(models=(), data=(), mode=(), builds=2, evaluations=4)
def regret(
    models: tuple[str, ...] = MODELS, data: tuple[str, ...] = ("aifb", "mutag", "fb15k237", "wn18rr"),
    mode: tuple[str, ...] = MODES, features: int = 64, heads: int = 1, builds: int = 24, evaluations: int = 60,
    threads: int = 2, plots: Path | None = None, path: Path | None = None,
) -> None:  # fmt: skip
    """Measure how far chosen plans are from the fastest of many, for layers on graphs.

    The machine should have nothing else to do.

    Args:
        models: Layers of relations, and of those without, between commas.
        features: In and out.
        builds: Plans to build in a case, besides those that are chosen.
        evaluations: Plans that a search sees.
        plots: Draw all cases into this folder.
    """
    torch.set_num_threads(threads)
    shared: Row = {"threads": threads, "judged": sha256(SHIPPED.read_bytes()).hexdigest()}
    cases = cases_of(models, data, mode, features=features, heads=heads, builds=builds, evaluations=evaluations)
    model = replace(shipped(), threads=threads)  # which features are computed for

    def measure(case: Row, tell: Tell) -> list[Row]:
        found = regrets.regret(*_program(case, tell), model, builds=builds, evaluations=evaluations)
        return [{**case, **shared, **asdict(found)}]

    rows = run_cases(cases, measure, path=path, fields=lambda case: [case | shared], console=terminal())
    every = [row for row in results(path) if shared.items() <= row.items()] or rows
    click.echo(_table(every))
    if plots is not None:
        click.echo(draw_regrets(every, CHOICES, plots))


def _table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Returns a table of cases, and of the means and the largest of their regrets.

    The last row has the most by which a choice is slower than "off".
    """
    headings = ("layer", "graph", "mode", "plans", "fastest ms", *(f'"{w}"' for w in CHOICES.values()), "choosing ms",
               "ranked right", "pairs")  # fmt: skip
    table = Table("Time of chosen plans over the fastest that was measured", headings, keys=3)
    regrets = {choice: [row[choice] / row["best"] for row in rows] for choice in CHOICES}
    for n, row in enumerate(rows):
        own = (f"{regrets[choice][n]:.3f}" for choice in CHOICES)
        scores = row["scores"]
        table.add_row(
            f"{row['layer']} {row['features']}, {row['heads']} heads", row["data"], row["mode"], str(row["plans"]),
            f"{1e3 * row['best']:.3f}", *own, f"{1e3 * row['choosing']:.0f}", f"{scores['ranked']:.1%}",
            str(scores["pairs"]),
        )  # fmt: skip
    for name, summary in (("mean", fmean), ("median", median), ("95th percentile", _high), ("largest", max)):
        table.add_row(name, "", "", "", "", *(f"{summary(values):.3f}" for values in regrets.values()))
    over = (max(row[choice] / row["default"] for row in rows) for choice in CHOICES)
    table.add_row('largest over "off"', "", "", "", "", *(f"{ratio:.3f}" for ratio in over))
    return table


def _high(values: Sequence[float]) -> float:
    """Returns the value below which 95 % of the values are."""
    return sorted(values)[min(round(0.95 * len(values)), len(values) - 1)]


@question(models=(), data=(), mode=())
def searches(
    models: tuple[str, ...] = MODELS, data: tuple[str, ...] = ("aifb", "mutag"), mode: tuple[str, ...] = MODES,
    features: int = 64, heads: int = 1, threads: int = 2, path: Path | None = None,
) -> None:  # fmt: skip
    """Compare ways to search for plans by the model, in equal time: a beam, random plans, an evolution of plans."""
    torch.set_num_threads(threads)
    model = replace(shipped(), threads=threads)
    cases = cases_of(models, data, mode, features=features, heads=heads, threads=threads)

    def measure(case: Row, tell: Tell) -> list[Row]:
        found = compare(*_program(case, tell), model)
        return [{**case, "search": name, **asdict(one)} for name, one in found.items()]

    rows = run_cases(
        cases, measure, path=path, console=terminal(), fields=lambda case: [case | {"search": n} for n in SEARCHES]
    )
    title = "Plans found: measured time over that of the default (predicted; programs compiled)"
    table = Table(title, ("layer", "graph", "mode", *SEARCHES), keys=3)
    for found in (rows[start : start + len(SEARCHES)] for start in range(0, len(rows), len(SEARCHES))):
        cells = (f"{row['measured']:.3f} ({row['predicted']:.3f}; {row['programs']})" for row in found)
        table.add_row(*(found[0][name] for name in ("layer", "data", "mode")), *cells)
    means = (geometric_mean(row["measured"] for row in rows if row["search"] == name) for name in SEARCHES)
    table.add_row("geometric mean", "", "", *(f"{mean:.3f}" for mean in means))
    click.echo(table)
