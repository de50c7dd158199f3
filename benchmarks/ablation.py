"""Measures what compaction (C) and linear operator reordering (R) gain, as in Hector's table 5, and our own passes.

The unoptimized layer is the one that Hector generates without C and R: products that gather, scale and scatter, and
fused traversals. Figures are speed-ups over it, from interleaved runs in one process.

Run: python benchmarks/ablation.py [--data aifb,mutag] [--device cuda] [--json out.json] [--plot out.png]
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import torch
from rich.console import Console
from rich.table import Table

from dacergnn.bench.candidate import make_step, unwrapped
from dacergnn.bench.device_option import device_option, rates_option
from dacergnn.bench.environment import environment, load
from dacergnn.bench.measure import clock_of, interleave
from dacergnn.bench.ours import configured
from dacergnn.bench.parameters import make_parameters
from dacergnn.bench.problem import Problem, load_problem
from dacergnn.bench.scatter import NOTE, Ratio, Steady, marked, with_left_out
from dacergnn.config import LEVELS, PASSES, Config, Rates

BASE = ("gemm_scale_fusion", "traversal_fusion")


def _without(name: str) -> Config:
    return Config(passes=tuple(p for p in PASSES if p != name))


CONFIGS: dict[str, Config] = {
    "unoptimized": Config("hector", BASE),
    "C": Config("hector", (*BASE, "compact_materialization")),
    "R": Config("hector", (*BASE, "linear_operator_reordering")),
    "C+R": Config("hector"),
    "no passes": Config("O0"),
    "C both sides": Config("O2", (*BASE, "compact_materialization")),
    "O2 - order": _without("aggregation_order"),
    "O2 - epilogues": _without("gemm_epilogue_fusion"),
    "O2 - narrow": _without("narrow_products"),
    "O2 - fusion": _without("traversal_fusion"),
    "O2": Config("O2", LEVELS["O2"]),
}
"""Hector's columns, then ours; "O2 - x" has all passes but one."""

Row = dict[str, Any]


def measure(model: str, problem: Problem, data: str, mode: str, budget: float, rates: Rates | None = None) -> Row:
    """Measures the milliseconds of every configuration, on the problem's device."""
    shared = make_parameters(model, problem)
    steps = {
        name: make_step(
            configured(model, name, replace(config, rates=rates)).build(problem, shared, unwrapped),
            problem,
            mode == "train",
        )
        for name, config in CONFIGS.items()
    }
    before = load()
    timings = interleave(steps, 15, budget, clock=clock_of(problem.x.device))
    times = {name: t.as_json() for name, t in timings.items()}
    loads = {"load_before": before, "load_after": load()}
    return {"model": model, "data": data, "mode": mode, "times": times, **loads}


def speedups(row: Row) -> dict[str, Ratio]:
    """Returns the speed-up of every configuration over the unoptimized one."""
    times: dict[str, Row] = row["times"]
    found = {name: Ratio.of(times["unoptimized"], time) for name, time in times.items()}
    return {name: ratio for name, ratio in found.items() if ratio is not None}


def means(rows: list[Row]) -> dict[str, Steady]:
    """Returns the speed-ups that geometric means are made of."""
    return {name: Steady.of(speedups(r)[name] for r in rows) for name in CONFIGS}


def table(rows: list[Row]) -> Table:
    """Returns a table with one row per case: the unoptimized time, then speed-ups."""
    result = Table(title="Speed-up over the unoptimized layer")
    for name in ("model", "data", "mode", "unoptimized (ms)", *(n for n in CONFIGS if n != "unoptimized")):
        result.add_column(name, justify="left" if name in ("model", "data", "mode") else "right")
    for row in rows:
        found = speedups(row)
        cells = [marked(f"{found[n].value:.2f}", found[n].scatters) for n in CONFIGS if n != "unoptimized"]
        base = marked(f"{row['times']['unoptimized']['ms']:.1f}", found["unoptimized"].scatters)
        result.add_row(row["model"], row["data"], row["mode"], base, *cells)
        result.caption = NOTE if any(ratio.scatters for ratio in found.values()) else result.caption
    for model in dict.fromkeys(r["model"] for r in rows):
        for mode in dict.fromkeys(r["mode"] for r in rows):
            part = [r for r in rows if (r["model"], r["mode"]) == (model, mode)]
            if part:
                mean = means(part)
                cells = [_mean(mean[n]) for n in CONFIGS if n != "unoptimized"]
                result.add_row(model, "geometric mean", mode, "", *cells, style="bold")
    return result


def _mean(steady: Steady) -> str:
    return with_left_out("-" if steady.mean is None else f"{steady.mean:.2f}", steady.left_out)


def plot(rows: list[Row], path: Path) -> None:
    """Draws bars of the geometric means, one group for each model and mode."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    groups = list(dict.fromkeys((r["model"], r["mode"]) for r in rows))
    names = [n for n in CONFIGS if n != "unoptimized"]
    found = [means([r for r in rows if (r["model"], r["mode"]) == g]) for g in groups]
    figure, axes = pyplot.subplots(figsize=(max(8, 2.2 * len(groups)), 4), layout="constrained")
    for k, name in enumerate(names):
        heights = [of[name].mean or 0.0 for of in found]
        axes.bar([g + k / (len(names) + 1) for g in range(len(groups))], heights, 1 / (len(names) + 1), label=name)
    left_out = sum(steady.left_out for of in found for steady in of.values())
    if left_out:
        figure.supxlabel(with_left_out(NOTE, left_out), fontsize="small")
    axes.axhline(1, color="grey", linewidth=0.8)
    axes.set_xticks([g + 0.4 for g in range(len(groups))], [f"{m}, {mode}" for m, mode in groups])
    axes.set_ylabel("speed-up over unoptimized")
    figure.legend(loc="outside upper center", ncols=len(names), fontsize="small")
    figure.savefig(path, dpi=120)


@click.command()
@click.option("--models", default="rgcn,rgat,hgt", show_default=True)
@click.option("--data", default="aifb,mutag,fb15k237,bgs~", show_default=True)
@click.option("--mode", default="infer,train", show_default=True)
@click.option("--budget", default=10.0, show_default=True, help="Seconds for a case.")
@click.option("--threads", default=2, show_default=True)
@device_option
@rates_option
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write the times here.")
@click.option("--plot", "plot_path", type=click.Path(path_type=Path), help="Draw the geometric means here.")
def main(
    models: str, data: str, mode: str, budget: float, threads: int, device: str, rates: Rates | None,
    json_path: Path | None, plot_path: Path | None,
) -> None:  # fmt: skip
    """Measure every configuration on every case."""
    torch.set_num_threads(threads)
    rows: list[Row] = []
    console = Console(width=200)
    for name in data.split(","):
        problem = load_problem(name, 64, 0).to(device)
        for model in models.split(","):
            for one in mode.split(","):
                rows.append(measure(model, problem, name, one, budget, rates))
                console.print(f"{model} on {name}, {one}: done")
    console.print(table(rows))
    if json_path is not None:
        json_path.write_text(json.dumps({"environment": environment(), "rows": rows}, indent=1) + "\n")
    if plot_path is not None:
        plot(rows, plot_path)


if __name__ == "__main__":
    main()
