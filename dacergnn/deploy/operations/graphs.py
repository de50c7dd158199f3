"""Steps of operations on graphs: those that sort edges, and programs that run on them."""

from __future__ import annotations

from typing import Any

import sympy
from torch import fx

from dacergnn.deploy.builder import NetworkBuilder
from dacergnn.deploy.network import (
    AddLoops,
    Array,
    CheckSizes,
    CopyEdgeRow,
    EdgeWeights,
    Graph,
    Input,
    JoinEdges,
    RelationPart,
    RunProgram,
    SortEdges,
)
from dacergnn.deploy.operations.table import ZERO, NodeTypes, arguments, handles, sizes_of
from dacergnn.deploy.places import label_of
from dacergnn.frontends.symbolic.call import Untranslatable
from dacergnn.modules.exported import compiled_of


def _label(array: Array, label: str) -> str:
    """Returns the name under which a user knows an array: that of an argument, else ``label``."""
    return array.owner.label if isinstance(array.owner, Input) else label


@handles("dacergnn::edges")
def _edges(builder: NetworkBuilder, node: fx.Node) -> Graph:
    a = arguments(node)
    edges = builder.needs_array(a["edge_index"])
    types = None if a["edge_type"] is None else builder.needs_array(a["edge_type"])
    num_src, num_dst = sizes_of([a["num_src"], a["num_dst"]])
    key = ("edges", edges, types, num_src, num_dst, a["num_types"])
    if key not in builder.made:
        sizes = num_src, num_dst, a["num_types"], 1
        graph = builder.made[key] = Graph(builder.name("g"), sizes, typed=False, edges=edges.shape[1])
        if not a["bipartite"] and num_src != num_dst:
            builder.steps.append(CheckSizes(sympy.Le(num_dst, num_src), "destinations that are the first sources"))
        builder.steps.append(SortEdges(graph, edges, types, _label(edges, label_of(node))))
    return builder.made[key]


def _graph(builder: NetworkBuilder, node: fx.Node, a: dict[str, Any]) -> Graph:
    """Returns the graph that an operator reads: that of earlier steps, or one that is an argument of the model."""
    edges = builder.get(a["edges"])
    if isinstance(edges, Graph):
        return edges
    if not isinstance(edges, Array):
        raise Untranslatable
    types = None if a.get("src_type") is None else builder.needs_array(a["src_type"])
    num_src, num_dst, num_types, node_types, _ = sizes_of(a["sizes"])
    key = ("given", edges, types)
    if key not in builder.made:
        count = edges.shape[1]
        ends = Array(builder.name("a"), edges.dtype, (sympy.Integer(2), count), edges, ZERO)
        own = Array(builder.name("a"), edges.dtype, (count,), edges, 2 * count)
        sizes = num_src, num_dst, int(num_types), int(node_types)
        graph = builder.made[key] = Graph(builder.name("g"), sizes, typed=types is not None, edges=count)
        builder.steps.append(SortEdges(graph, ends, own, label_of(node), types))
    return builder.made[key]


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
            RelationPart(part, numbers[i], (ends[2 * i], ends[2 * i + 1]), _label(part, label))
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
    key = ("loops", edges, count, *nodes)
    made = builder.array(node)
    if key not in builder.made:
        builder.made[key] = made
        label = _label(edges, label_of(node))
        step = AddLoops(made, edges, count, (nodes[0], nodes[1]), made.shape[1], label)
        builder.steps.append(step)
        return made
    known = builder.made[key]
    builder.same_size(made.shape[1], known.shape[1])
    return known


@handles("dacergnn::edge_weights")
def _edge_weights(builder: NetworkBuilder, node: fx.Node) -> Array:
    a = arguments(node)
    graph = _graph(builder, node, a)
    key = ("weights", graph, a["kind"], a["dtype"])
    if key not in builder.made:
        made = builder.made[key] = builder.array(node)
        builder.steps.append(EdgeWeights(made, graph, a["kind"]))
    return builder.made[key]


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


_EDGE_ROWS = ("src", "dst", "type", "position")


def edge_row(builder: NetworkBuilder, graph: Graph, row: int, node: Any) -> Array:
    key = ("edge row", graph, row)
    if key not in builder.made:
        made = builder.made[key] = builder.array(node)
        builder.steps.append(CopyEdgeRow(made, graph, _EDGE_ROWS[row]))
    return builder.made[key]
