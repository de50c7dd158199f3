"""Measures the operators of RGCN, RGAT and HGT on a CUDA device one by one, beside the forecast of their kernels.

    python -m benchmarks gpu_profile --data aifb,am --json profile.jsonl --markdown profile.md

Every case (a model on a synthetic graph of full size, in inference or training) writes a line of JSON when it is done.
A run that is ended early keeps what it has, and a later call with the same file measures the cases that are missing in
it. The tables end with the worst ten operators of all cases.
"""

from __future__ import annotations

import json
import math
import time
import warnings
from functools import lru_cache
from itertools import product
from pathlib import Path

import click
import torch

import dacergnn
from benchmarks.options import question
from benchmarks.relational.settings import MODELS
from benchmarks.suite import Tell, run_cases, terminal
from dacergnn.cli.named_layers import native_layer
from dacergnn.graph import HeteroGraph
from dacergnn.json_lines import Row
from dacergnn.tables import Table

Case = tuple[str, str, str, int]
KEYS = ("data", "model", "mode", "hidden")
"""Names of the fields of a case."""
WORST = 10
"""Operators in the table of the worst."""
WORDS = ("", "case", "operator", "kernels", "limit")
HEAD = (*WORDS, "lost ms", "measured ms", "forecast ms", "bound ms")


@question(data=(), models=(), mode=())
def main(
    data: tuple[str, ...] = ("aifb~", "mag~", "am~", "fb15k~"), models: tuple[str, ...] = MODELS,
    mode: tuple[str, ...] = ("train",), hidden: int = 64, device: str = "cuda", time_limit: float = math.inf,
    path: Path | None = None, markdown: Path | None = None,
) -> None:  # fmt: skip
    """Profile the operators of one layer with one head on a CUDA device.

    Args:
        mode: infer, train, or both.
        hidden: Features in and out.
        time_limit: Seconds for everything; no case is begun later.
        markdown: Write tables here.
    """
    if device == "cuda" and not torch.cuda.is_available():
        raise click.UsageError("torch finds no CUDA device here; `dacergnn forecast` needs none.")
    warnings.simplefilter("ignore")  # the libraries warn about their own internals

    def profiled(case: Case, tell: Tell) -> list[Row]:
        name, model, how, _ = case
        tell(f"{model} on {name}, {how}")
        named = dict(zip(KEYS, case, strict=True))
        return [named | measured(model, graph_on(name, device), how, hidden)]

    cases = [
        (name if "~" in name else f"{name}~", model, how, hidden) for name, model, how in product(data, models, mode)
    ]
    lines = run_cases(
        cases,
        profiled,
        path=path,
        fields=lambda case: [dict(zip(KEYS, case, strict=True))],
        complete=lambda line: not line["note"],
        deadline=time.monotonic() + time_limit,
        console=terminal(),
    )
    if markdown is not None:
        markdown.write_text(page(lines))
    click.echo(page(lines))


@lru_cache(maxsize=1)
def graph_on(name: str, device: str) -> HeteroGraph:
    """Returns a graph on a device; only the last one is kept there."""
    return dacergnn.datasets.resolve(name).graph.to(device)


def measured(model: str, graph: HeteroGraph, mode: str, hidden: int) -> Row:
    """Returns the profile of a layer on a graph; if there is none, a note says why."""
    try:
        layer = native_layer(model, graph, hidden, 1).to(graph.device)
        x = torch.randn(graph.size("NS"), hidden, device=graph.device, requires_grad=mode == "train")
        with torch.set_grad_enabled(mode == "train"):
            profile = dacergnn.profile(layer, x, graph)
    except Exception as error:  # the other cases are to be measured, whatever happens to this one
        return {"note": f"{type(error).__name__}: {error}", "text": "", "profile": {}}
    return {"note": "", "text": str(profile), "profile": json.loads(profile.to_json())}


def page(lines: list[Row]) -> str:
    """Returns the tables of all cases, and that of the worst operators."""
    parts = [f"## {case(line)}\n\n```\n{line['text'] or line['note']}\n```\n" for line in lines]
    return "\n".join([*parts, f"## The worst {WORST} operators\n", worst(lines).markdown(), ""])


def worst(lines: list[Row]) -> Table:
    """Returns a table of the operators of all cases that take the most time above their bounds."""
    found = [(case(line), one) for line in lines for one in operators(line["profile"])]
    found.sort(key=lambda entry: entry[1]["bound_ms"] - entry[1]["measured_ms"])
    table = Table("", HEAD, words=WORDS)
    for place, (name, one) in enumerate(found[:WORST], 1):
        kernels = ", ".join(dict.fromkeys(kernel["name"] for kernel in one["kernels"]))
        limits = ", ".join(dict.fromkeys(kernel["limit"] for kernel in one["kernels"]))
        times = (one["measured_ms"] - one["bound_ms"], one["measured_ms"], one["ms"], one["bound_ms"])
        results = f"{', '.join(one['results'])} ({one['role']})"
        table.add_row(str(place), name, results, kernels, limits, *map(ms, times))
    return table


def operators(profile: Row) -> list[Row]:
    """Returns the operators of a profile, with their kernels if there is a forecast of these."""
    if "forecast" in profile:
        return profile["forecast"]["operators"]
    return [{**one, "measured_ms": one["ms"], "ms": None, "kernels": []} for one in profile.get("operators", ())]


def ms(time: float | None) -> str:
    return "" if time is None else f"{time:.3f}"


def case(line: Row) -> str:
    """Returns the name of a case."""
    return f"{line['model']} {line['data']} {line['mode']}"
