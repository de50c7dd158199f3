"""Makes layers and graphs by name, for the commands that show what the compiler makes of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from dacergnn.bench.data_option import data_option
from dacergnn.config import Config
from dacergnn.plan import Plan

if TYPE_CHECKING:
    from torch import nn

    from dacergnn.graph import HeteroGraph
    from dacergnn.modules.compiled import CompiledProgram

MODELS = ("rgcn", "rgat", "hgt")

Decorated = Callable[..., Any]


def layer_options(command: Decorated) -> Decorated:
    """Adds the options that choose a layer and a graph to a command."""
    options = (
        click.option("--model", "--layer", "model", type=click.Choice(MODELS), default="rgat", show_default=True),
        data_option("aifb", aliases=("--graph",)),
        click.option("--features", type=click.IntRange(min=1), default=64, show_default=True, help="In and out."),
        click.option("--heads", type=click.IntRange(min=1), default=1, show_default=True),
    )
    for option in reversed(options):
        command = option(command)
    return command


def read_plan(_: click.Context, __: click.Parameter, value: str | None) -> Plan | None:
    """Returns the plan in a file that an option names."""
    return None if value is None else Plan.load(value)


plan_option = click.option(
    "--plan", callback=read_plan, metavar="FILE", help="Plan to compile by, as `dacergnn tune run --out` writes it."
)


def compiled_layer(
    model: str, data: str, features: int, heads: int, plan: Plan | None = None, device: str = "cpu"
) -> nn.Module:
    """Returns the native layer `model` after a run on graph `data`, forward and backward, so that both are compiled.

    The backward computes gradients of the features, too, as in a layer that follows another one.
    """
    import torch

    from dacergnn import datasets

    graph = datasets.resolve(data).graph.to(device)
    layer = native_layer(model, graph, features, heads, Config(plan=plan)).to(device)
    layer(torch.randn(graph.size("NS"), features, device=device, requires_grad=True), graph).sum().backward()
    return layer


def called_program(layer: Any, mode: str) -> tuple[CompiledProgram, list[str], HeteroGraph]:
    """Returns the program of a layer's last call, the inputs that ``mode`` needs gradients of, and the graph."""
    compiled, graph = layer.last_call
    wrt = [compiled.inputs[slot] for slot in compiled.variants[-1].slots] if mode == "train" else []
    return compiled, wrt, graph


def native_layer(model: str, graph: HeteroGraph, features: int, heads: int, config: Config | None = None) -> nn.Module:
    """Returns an instance of `dacergnn.modules.RGCN`, `RGAT` or `HGT` for the types of `graph`."""
    from dacergnn import modules

    relations = graph.size("R")
    if model == "rgcn":
        return modules.RGCN(features, features, relations, config=config)
    if model == "rgat":
        return modules.RGAT(features, features, relations, heads=heads, config=config)
    return modules.HGT(features, graph.size("T"), relations, heads=heads, config=config)
