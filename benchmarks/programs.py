"""Makes the programs of layers by name on graphs by name, which can be compiled by other plans."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from benchmarks.caching.candidates import compiled
from benchmarks.caching.task import Task
from benchmarks.caching.workload import load_workload
from dacergnn.cli.named_layers import called_program, compiled_layer
from dacergnn.config import Config
from dacergnn.graph import HeteroGraph
from dacergnn.plan import Plan
from dacergnn.program import Program
from dacergnn.sdfg_passes import Compilation, compile_program
from dacergnn.tuning.collect import INDEX

HOMOGENEOUS = ("gcn", "gat", "gatv2", "monet", "edgeconv", "sage", "gin")
"""PyG's layers without types; of a graph with relations, they take all edges alike."""


def library_layer(model: str, data: str, features: int, heads: int) -> nn.Module:
    """Returns PyG's layer of one of `HOMOGENEOUS`, compiled, after a run on a graph as `compiled_layer` makes it."""
    task = Task(model, data, "layer", features, max(features // heads, 1), heads, input_gradient=True)
    made = compiled(load_workload(task), Config())
    made.forward().sum().backward()
    return made.layer


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
