"""Makes compiled layers by name on graphs by name, and compiled models of functions of users."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from dacergnn import datasets, modules, optimize
from dacergnn.bench.calls import training_step
from dacergnn.bench.subject import Subject
from dacergnn.config import Config
from dacergnn.graph import HeteroGraph
from dacergnn.modules.compiled import CompiledProgram
from dacergnn.modules.compiled_parts import compiled_parts
from dacergnn.modules.programs import measured
from dacergnn.plan import Plan


def compiled_layer(
    model: str, data: str, features: int, heads: int, plan: Plan | None = None, device: str = "cpu"
) -> nn.Module:
    """Returns the native layer `model` after a run on graph `data`, forward and backward, so that both are compiled.

    The backward computes gradients of the features, too, as in a layer that follows another one.
    """
    graph = datasets.resolve(data).graph.to(device)
    layer = native_layer(model, graph, features, heads, Config(plan=plan)).to(device)
    layer(torch.randn(graph.size("NS"), features, device=device, requires_grad=True), graph).sum().backward()
    return layer


def compiled_model(
    source: str, model: str, data: str, features: int, heads: int, plan: Plan | None = None
) -> nn.Module:
    """Returns the compiled model of MODULE:FUNCTION, or of "" the layer that `compiled_layer` returns, after a run."""
    if not source:
        return compiled_layer(model, data, features, heads, plan)
    made, arguments = model_of(source, Config(plan=plan))
    training_step(made, arguments)()
    return made


def model_of(source: str, config: Config, device: str = "cpu") -> tuple[nn.Module, tuple[Any, ...]]:
    """Returns the compiled model of MODULE:FUNCTION, and the arguments of a call."""
    made, arguments = Subject(source, device=device).made()
    return optimize(made, config=config), arguments


def programs_of(model: nn.Module) -> list[CompiledProgram]:
    """Returns the programs that the parts of a model have run."""
    found = [p for part in compiled_parts(model) for p in part.part.compiled_programs.values() if p.variants]
    return [*dict.fromkeys(found)]


def called_program(layer: nn.Module, mode: str) -> tuple[CompiledProgram, list[str], HeteroGraph]:
    """Returns the program of a layer's last call, the inputs that ``mode`` needs gradients of, and the graph."""
    call = compiled_parts(layer)[0].part.last_call
    assert call is not None, "the layer has run"
    program, graph = call
    wrt = [program.inputs[slot] for slot in program.variants[-1].slots] if mode == "train" else []
    return program, wrt, measured(program, graph)


def native_layer(model: str, graph: HeteroGraph, features: int, heads: int, config: Config | None = None) -> nn.Module:
    """Returns an instance of `dacergnn.modules.RGCN`, `RGAT` or `HGT` for the types of `graph`."""
    relations = graph.size("R")
    if model == "rgcn":
        return modules.RGCN(features, features, relations, config=config)
    if model == "rgat":
        return modules.RGAT(features, features, relations, heads=heads, config=config)
    return modules.HGT(features, graph.size("T"), relations, heads=heads, config=config)
