"""Makes compiled layers by name on graphs by name."""

from __future__ import annotations

import torch
from torch import nn

from dacergnn import datasets, modules
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
