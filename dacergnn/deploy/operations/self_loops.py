"""Steps of functions that remove self loops from edges [2, E], and add one at each node."""

from __future__ import annotations

from dataclasses import dataclass

import sympy
import torch
from torch import fx

from dacergnn.deploy.builder import NetworkBuilder
from dacergnn.deploy.network import AddLoops, Array, Call
from dacergnn.deploy.operations.copies import gathered
from dacergnn.deploy.operations.table import arguments, handles
from dacergnn.deploy.parts import label_of_array
from dacergnn.deploy.places import label_of
from dacergnn.deploy.sizes import ZERO
from dacergnn.frontends.symbolic.expr import Untranslatable

_ANY = sympy.Integer(2**63 - 2)
"""A bound of nodes where later steps check the ends of edges."""


@dataclass(frozen=True)
class NotLoops:
    """Stands for a mask of the edges between different nodes."""

    edges: Array


@handles("aten::ne")
def _ne(builder: NetworkBuilder, node: fx.Node) -> NotLoops:
    ends = [builder.needs_array(operand) for operand in node.all_input_nodes]
    if len(ends) != 2 or ends[0].dtype.is_floating_point or ends[0].shape != ends[1].shape:
        raise Untranslatable
    src, dst = ends if ends[1].offset == ends[0].offset + ends[0].elements else reversed(ends)
    if src.owner is not dst.owner or dst.offset != src.offset + src.elements:
        raise Untranslatable
    return NotLoops(builder.joined([src, dst], label_of(node)))


@handles("aten::index")
def _index(builder: NetworkBuilder, node: fx.Node) -> Array:
    """Chooses the edges between different nodes, or rows."""
    a = arguments(node)
    *every, chosen = a["indices"]
    mask = builder.known.get(chosen)
    if not isinstance(mask, NotLoops):
        return gathered(builder, node)
    edges = builder.needs_array(a["self"])
    if every != [None] or (edges.owner, edges.offset, edges.shape) != (
        mask.edges.owner, mask.edges.offset, mask.edges.shape
    ):  # fmt: skip
        raise Untranslatable
    made = builder.array(node)
    label = label_of_array(edges, label_of(node))
    builder.steps.append(AddLoops(made, edges, ZERO, (_ANY, _ANY), made.shape[1], label))
    return made


@handles("aten::arange")
def _arange(builder: NetworkBuilder, node: fx.Node) -> Array:
    """Numbers nodes, such as the ends of one loop at each."""
    a, value = arguments(node), node.meta["val"]
    if value.dtype is not torch.int64 or a.get("start", 0) != 0 or a.get("step", 1) != 1:
        raise Untranslatable
    made = builder.array(node)
    builder.steps.append(Call("number_rows", [made], [made.elements], label_of(node)))
    return made


@handles("aten::repeat")
def _repeat(builder: NetworkBuilder, node: fx.Node) -> Array:
    a = arguments(node)
    known = builder.needs_array(a["self"])
    times, *others = a["repeats"]
    if known.dtype.is_floating_point or others != [1] or known.shape[0] != 1 or not isinstance(times, int):
        raise Untranslatable
    return builder.joined([builder.new_array(known.dtype, known.shape[1], source=known)] * times, label_of(node))
