"""Steps of operations on graphs: those that sort edges, and programs that run on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sympy
from torch import fx

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

if TYPE_CHECKING:
    from dacergnn.deploy.reader import Reader


def _label(array: Array, label: str) -> str:
    """Returns the name under which a user knows an array: that of an argument, else ``label``."""
    return array.owner.label if isinstance(array.owner, Input) else label


@handles("dacergnn::edges")
def _edges(reader: Reader, node: fx.Node) -> Graph:
    a = arguments(node)
    edges = reader.needs_array(a["edge_index"])
    types = None if a["edge_type"] is None else reader.needs_array(a["edge_type"])
    num_src, num_dst = sizes_of([a["num_src"], a["num_dst"]])
    key = ("edges", edges, types, num_src, num_dst, a["num_types"])
    if key not in reader.made:
        sizes = num_src, num_dst, a["num_types"], 1
        graph = reader.made[key] = Graph(reader.name("g"), sizes, typed=False, edges=edges.shape[1])
        if not a["bipartite"] and num_src != num_dst:
            reader.steps.append(CheckSizes(sympy.Le(num_dst, num_src), "destinations that are the first sources"))
        reader.steps.append(SortEdges(graph, edges, types, _label(edges, label_of(node))))
    return reader.made[key]


def _graph(reader: Reader, node: fx.Node, a: dict[str, Any]) -> Graph:
    """Returns the graph that an operator reads: that of earlier steps, or one that is an argument of the model."""
    edges = reader.get(a["edges"])
    if isinstance(edges, Graph):
        return edges
    if not isinstance(edges, Array):
        raise Untranslatable
    types = None if a.get("src_type") is None else reader.needs_array(a["src_type"])
    num_src, num_dst, num_types, node_types, _ = sizes_of(a["sizes"])
    key = ("given", edges, types)
    if key not in reader.made:
        count = edges.shape[1]
        ends = Array(reader.name("a"), edges.dtype, (sympy.Integer(2), count), edges, ZERO)
        own = Array(reader.name("a"), edges.dtype, (count,), edges, 2 * count)
        sizes = num_src, num_dst, int(num_types), int(node_types)
        graph = reader.made[key] = Graph(reader.name("g"), sizes, typed=types is not None, edges=count)
        reader.steps.append(SortEdges(graph, ends, own, label_of(node), types))
    return reader.made[key]


@handles("dacergnn::typed_edges")
def _typed_edges(reader: Reader, node: fx.Node) -> Graph:
    a = arguments(node)
    edges = [reader.needs_array(part) for part in a["parts"]]
    counts, (num_dst,) = sizes_of(a["counts"]), sizes_of([a["num_dst"]])
    numbers, ends = a["numbers"], a["ends"]
    key = ("typed", *edges, *numbers, *ends, counts, num_dst, a["num_types"])
    if key not in reader.made:
        sizes = (sympy.Add(*counts), num_dst, a["num_types"], len(counts))
        total = sympy.Add(*[part.shape[1] for part in edges])
        graph = reader.made[key] = Graph(reader.name("g"), sizes, typed=True, edges=total)
        parts = [
            RelationPart(part, numbers[i], (ends[2 * i], ends[2 * i + 1]), _label(part, label))
            for i, (part, label) in enumerate(zip(edges, a["labels"].split("\n"), strict=True))
        ]
        reader.steps.append(JoinEdges(graph, parts, counts))
    return reader.made[key]


@handles("dacergnn::node_types")
def _node_types(reader: Reader, node: fx.Node) -> NodeTypes:
    return NodeTypes()


@handles("dacergnn::with_loops")
def _with_loops(reader: Reader, node: fx.Node) -> Array:
    a = arguments(node)
    edges = reader.needs_array(a["edge_index"])
    count, *nodes = sizes_of([a["count"], a["num_src"], a["num_dst"]])
    key = ("loops", edges, count, *nodes)
    made = reader.array(node)
    if key not in reader.made:
        reader.made[key] = made
        label = _label(edges, label_of(node))
        step = AddLoops(made, edges, count, (nodes[0], nodes[1]), made.shape[1], label)
        reader.steps.append(step)
        return made
    known = reader.made[key]
    reader.same_size(made.shape[1], known.shape[1])
    return known


@handles("dacergnn::edge_weights")
def _edge_weights(reader: Reader, node: fx.Node) -> Array:
    a = arguments(node)
    graph = _graph(reader, node, a)
    key = ("weights", graph, a["kind"], a["dtype"])
    if key not in reader.made:
        made = reader.made[key] = reader.array(node)
        reader.steps.append(EdgeWeights(made, graph, a["kind"]))
    return reader.made[key]


@handles("dacergnn::program")
def _program(reader: Reader, node: fx.Node) -> list[Array]:
    a = arguments(node)
    graph = _graph(reader, node, a)
    compiled, order = compiled_of(a["program"], config=reader.config)
    arrays = [reader.needs_array(array) for array in a["arrays"]]
    inputs = {name: arrays[place] for name, place in zip(compiled.inputs, order, strict=True)}
    made = [reader.array(value) for value in node.meta["val"]]
    reader.steps.append(RunProgram(compiled, graph, None, inputs, made, label_of(node)))
    return made


_EDGE_ROWS = ("src", "dst", "type", "position")


def edge_row(reader: Reader, graph: Graph, row: int, node: Any) -> Array:
    key = ("edge row", graph, row)
    if key not in reader.made:
        made = reader.made[key] = reader.array(node)
        reader.steps.append(CopyEdgeRow(made, graph, _EDGE_ROWS[row]))
    return reader.made[key]
