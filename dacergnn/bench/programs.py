"""Makes compiled layers by name on graphs by name, and their programs, which can be compiled by other plans."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from dacergnn import datasets, modules
from dacergnn.bench.caching.candidates import compiled
from dacergnn.bench.caching.task import Task
from dacergnn.bench.caching.workload import load_workload
from dacergnn.config import Config
from dacergnn.graph import HeteroGraph
from dacergnn.modules.compiled import CompiledProgram
from dacergnn.modules.compiled_parts import compiled_parts
from dacergnn.modules.programs import measured
from dacergnn.plan import Plan
from dacergnn.program import Program
from dacergnn.sdfg_passes import Compilation, compile_program
from dacergnn.tuning.collect import INDEX

HOMOGENEOUS = ("gcn", "gat", "gatv2", "monet", "edgeconv", "sage", "gin")
"""PyG's layers without types; of a graph with relations, they take all edges alike."""


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


def library_layer(model: str, data: str, features: int, heads: int) -> nn.Module:
    """Returns PyG's layer of one of `HOMOGENEOUS`, compiled, after a run on a graph as `compiled_layer` makes it."""
    task = Task(model, data, "layer", features, max(features // heads, 1), heads, input_gradient=True)
    made = compiled(load_workload(task), Config())
    made.forward().sum().backward()
    return made.layer


def called_program(layer: nn.Module, mode: str) -> tuple[CompiledProgram, list[str], HeteroGraph]:
    """Returns the program of a layer's last call, the inputs that ``mode`` needs gradients of, and the graph."""
    call = compiled_parts(layer)[0].part.last_call
    assert call is not None, "the layer has run"
    program, graph = call
    wrt = [program.inputs[slot] for slot in program.variants[-1].slots] if mode == "train" else []
    return program, wrt, measured(program, graph)


def program_of(
    model: str, data: str, features: int, heads: int, mode: str
) -> tuple[Callable[[Plan], Compilation], int, HeteroGraph]:
    """Returns a function that compiles a layer's program by a plan, the number of its results, and the graph.

    In training, no gradient of the features is computed, as in a first layer.
    """
    make = library_layer if model in HOMOGENEOUS else compiled_layer
    program, wrt, graph = called_program(make(model, data, features, heads), mode)
    learned = [name for name in wrt if name != "x"]

    def run(plan: Plan) -> Compilation:
        return compile_program(program.sdfg, learned, Config(), INDEX, program.profile, tuned=plan, keep=False)

    return run, len(Program(program.sdfg).outputs), graph


def native_layer(model: str, graph: HeteroGraph, features: int, heads: int, config: Config | None = None) -> nn.Module:
    """Returns an instance of `dacergnn.modules.RGCN`, `RGAT` or `HGT` for the types of `graph`."""
    relations = graph.size("R")
    if model == "rgcn":
        return modules.RGCN(features, features, relations, config=config)
    if model == "rgat":
        return modules.RGAT(features, features, relations, heads=heads, config=config)
    return modules.HGT(features, graph.size("T"), relations, heads=heads, config=config)
