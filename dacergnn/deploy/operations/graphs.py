"""Steps of operations on graphs: those that sort edges, and programs that run on them."""

from __future__ import annotations

from typing import Any

import sympy
from torch import fx

from dacergnn.deploy.builder import NetworkBuilder
from dacergnn.deploy.network import (
    AddLoops,
    Array,
    Graph,
    JoinEdges,
    RelationPart,
    RunProgram,
)
from dacergnn.deploy.operations.table import NodeTypes, arguments, handles, sizes_of
from dacergnn.deploy.parts import label_of_array
from dacergnn.deploy.places import label_of
from dacergnn.deploy.sizes import ZERO
from dacergnn.frontends.symbolic.expr import Untranslatable
from dacergnn.modules.exported import compiled_of


@handles("dacergnn::edges")
def _edges(builder: NetworkBuilder, node: fx.Node) -> Graph:
    a = arguments(node)
    edges = builder.needs_array(a["edge_index"])
    types = None if a["edge_type"] is None else builder.needs_array(a["edge_type"])
    num_src, num_dst = sizes_of([a["num_src"], a["num_dst"]])
    if not a["bipartite"] and num_src != num_dst:
        builder.check_sizes(sympy.Le(num_dst, num_src), "destinations that are the first sources")
    return builder.sorted_edges(edges, (num_src, num_dst, a["num_types"], 1), label_of(node), types)


def _graph(builder: NetworkBuilder, node: fx.Node, a: dict[str, Any]) -> Graph:
    """Returns the graph that an operator reads: that of earlier steps, or one that is an argument of the model."""
    edges = builder.get(a["edges"])
    if isinstance(edges, Graph):
        return edges
    if not isinstance(edges, Array):
        raise Untranslatable
    node_types = None if a.get("src_type") is None else builder.needs_array(a["src_type"])
    num_src, num_dst, num_types, types_of_nodes, _ = sizes_of(a["sizes"])
    count = edges.shape[1]
    ends = builder.new_array(edges.dtype, sympy.Integer(2), count, source=edges, start=ZERO)
    types = builder.new_array(edges.dtype, count, source=edges, start=2 * count)
    sizes = num_src, num_dst, int(num_types), int(types_of_nodes)
    return builder.sorted_edges(ends, sizes, label_of(node), types, node_types)


@handles("dacergnn::typed_edges")
def _typed_edges(builder: NetworkBuilder, node: fx.Node) -> Graph:
    a = arguments(node)
    edges = [builder.needs_array(part) for part in a["parts"]]
    counts, (num_dst,) = sizes_of(a["counts"]), sizes_of([a["num_dst"]])
    numbers, ends = a["numbers"], a["ends"]
    key = ("typed", *edges, *numbers, *ends, counts, num_dst, a["num_types"])
    if key not in builder.made:
        sizes = (sympy.Add(*counts), num_dst, a["num_types"], len(counts))
        total = sympy.Add(*[part.shape[1] for part in edges])
        graph = builder.made[key] = Graph(builder.name("g"), sizes, typed=True, edges=total)
        parts = [
            RelationPart(part, numbers[i], (ends[2 * i], ends[2 * i + 1]), label_of_array(part, label))
            for i, (part, label) in enumerate(zip(edges, a["labels"].split("\n"), strict=True))
        ]
        builder.steps.append(JoinEdges(graph, parts, counts))
    return builder.made[key]


@handles("dacergnn::node_types")
def _node_types(builder: NetworkBuilder, node: fx.Node) -> NodeTypes:
    return NodeTypes()


@handles("dacergnn::with_loops")
def _with_loops(builder: NetworkBuilder, node: fx.Node) -> Array:
    a = arguments(node)
    edges = builder.needs_array(a["edge_index"])
    count, *nodes = sizes_of([a["count"], a["num_src"], a["num_dst"]])
    made = builder.array(node)
    label = label_of_array(edges, label_of(node))
    builder.steps.append(AddLoops(made, edges, count, (nodes[0], nodes[1]), made.shape[1], label))
    return made


@handles("dacergnn::edge_weights")
def _edge_weights(builder: NetworkBuilder, node: fx.Node) -> Array:
    a = arguments(node)
    graph = _graph(builder, node, a)
    return builder.edge_weights(graph, a["kind"], a["dtype"])


@handles("dacergnn::program")
def _program(builder: NetworkBuilder, node: fx.Node) -> list[Array]:
    a = arguments(node)
    graph = _graph(builder, node, a)
    compiled, order = compiled_of(a["program"], config=builder.config)
    arrays = [builder.needs_array(array) for array in a["arrays"]]
    inputs = {name: arrays[place] for name, place in zip(compiled.inputs, order, strict=True)}
    made = [builder.array(value) for value in node.meta["val"]]
    builder.steps.append(RunProgram(compiled, graph, None, inputs, made, label_of(node)))
    return made
