"""Makes our own candidates of the benchmark: PyG's layers put through dacergnn.optimize."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from benchmarks.relational.candidate import Built, Candidate, Wrap
from benchmarks.relational.parameters import Parameters
from benchmarks.relational.peers import library_module
from benchmarks.relational.problem import Problem
from dacergnn.api import optimize
from dacergnn.config import Config
from dacergnn.graph import HeteroGraph


def typed_graph(problem: Problem) -> HeteroGraph:
    """Returns the problem's graph under the type names that the layers use."""
    names = ["__".join((f"t{s}", f"r{r}", f"t{d}")) for r, (s, d) in enumerate(problem.relations)]
    return HeteroGraph.from_arrays(
        torch.stack([problem.src, problem.dst]),
        problem.etype,
        num_nodes=problem.num_nodes,
        num_edge_types=problem.num_etypes,
        node_type=problem.ntype,
        num_node_types=problem.num_ntypes,
        edge_type_names=names,
        node_type_names=[f"t{i}" for i in range(problem.num_ntypes)],
    )


def candidate(model: str, name: str = "O2", config: Config | None = None) -> Candidate:
    """Returns a model's layer that is compiled with ``config``, and is called ``name`` in tables."""

    def build(problem: Problem, shared: Parameters, wrap: Wrap) -> Built:
        original = next(c for c in library_module("pyg").ALL if c.model == model)
        graph = typed_graph(problem)
        compiled: list[Any] = []

        def replace_layer(layer: Any) -> Any:
            compiled.append(optimize(layer, graph, config=config, on_unsupported="error"))
            return wrap(compiled[0])

        return replace(original.build(problem, shared, replace_layer), layer=compiled[0])

    # No estimate keeps ours from a run: a layer in fused loops has no row for each edge.
    return Candidate(name, "ours", model, build, model, lambda problem, train: 0, config=config)
