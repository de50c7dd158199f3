"""DGL's operators on the edges of a graph, and products by type, in terms of recorded values.

Each takes DGL's own function after the recorder. Calls that have no form in a program, or that use a graph made during
the recorded call, run DGL's function on computed values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from dacergnn.errors import UnsupportedCallError
from dacergnn.frontends.dgl.edges import GraphEdges
from dacergnn.frontends.dgl.recorder import Recorder
from dacergnn.frontends.symbolic.call import Untranslatable
from dacergnn.frontends.symbolic.callers import caller_text
from dacergnn.frontends.symbolic.edges import EndIndex, end_index
from dacergnn.frontends.symbolic.expr import Expr
from dacergnn.frontends.symbolic.indexing import gathered, reduced
from dacergnn.frontends.symbolic.value import Value

_REDUCTIONS = {"sum": "+=", "max": "max=", "min": "min="}
_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div,
    "copy_lhs": lambda a, _: a, "copy_rhs": lambda _, b: b,
}  # fmt: skip
_ENDS = {"u": "src", "v": "dst"}


def unsupported(what: str) -> UnsupportedCallError:
    """Returns the error for a construct that no program expresses; it names the user's line."""
    return UnsupportedCallError(f"{what} has no form in a program ({caller_text()}).")


def end_values(recorder: Recorder, edges: GraphEdges, side: str, data: Any) -> Value:
    """Returns the rows [E, ...] of node values at one end of the edges."""
    try:
        return gathered(recorder.trace, recorder.value(data), edges, side)
    except Untranslatable:
        raise unsupported("a value per edge read at nodes") from None


def aggregate(recorder: Recorder, edges: GraphEdges, values: Any, reduction: str, side: str = "dst") -> Value:
    """Reduces edge values to nodes [N, ...] by "sum", "max" or "min"; nodes without edges hold zeros."""
    value = recorder.value(values)
    if value.node.rows is not None or value.node.expr.edges not in (None, edges):
        raise unsupported("a value of other edges")
    try:
        expr = reduced(value.node.expr, edges, side, _REDUCTIONS[reduction], value.dtype)
    except (Untranslatable, KeyError):
        raise unsupported(f"{reduction} of messages") from None
    return recorder.trace.record(expr, torch.Size((edges.rows[side] or 0, *value.shape[1:])), value.dtype)


def in_degrees(recorder: Recorder, edges: GraphEdges, dtype: torch.dtype) -> Value:
    """Returns the numbers [ND] of edges that lead to the destinations, at least one each."""
    expr = Expr("degree", (), ("dst", dtype))
    expr.edges = edges
    degrees = recorder.trace.record(expr, torch.Size((edges.rows["dst"] or 0,)), dtype)
    return degrees.clamp(min=1.0)  # pyright: ignore[reportReturnType]


def softmax(recorder: Recorder, edges: GraphEdges, logits: Any, side: str = "dst") -> Value:
    """Returns the softmax [E, ...] over all edges with the same end point."""
    logits = recorder.value(logits)
    largest = aggregate(recorder, edges, logits, "max", side).detach()
    grown: Any = torch.exp(logits - end_values(recorder, edges, side, largest))
    total = end_values(recorder, edges, side, aggregate(recorder, edges, grown, "sum", side))
    return grown / total


def _messages(recorder: Recorder, edges: GraphEdges, op: str, lhs: Any, rhs: Any, targets: tuple[str, str]) -> Any:
    def at(target: str, data: Any) -> Any:
        if data is None:
            return None
        return end_values(recorder, edges, _ENDS[target], data) if target in _ENDS else recorder.value(data)

    left, right = at(targets[0], lhs), at(targets[1], rhs)
    if op == "dot":
        return left * right if left.dim() == 1 else (left * right).sum(-1, keepdim=True)
    return _BINARY[op](left, right)


def gspmm(recorder: Recorder, original: Any, index: Any, op: str, reduce_op: str, lhs: Any, rhs: Any) -> Any:
    """Reduces messages of sources and edges at destinations."""
    edges = recorder.edges(index)
    if edges is None:
        return in_dgl(recorder, original, index, op, reduce_op, lhs, rhs)
    values = aggregate(recorder, edges, _messages(recorder, edges, op, lhs, rhs, ("u", "e")), reduce_op)
    reached = edges.reached if reduce_op != "sum" and not recorder.fills_zeros else None
    if reached is None or edges.all_reached:
        return values
    empty = -torch.inf if reduce_op == "max" else torch.inf
    return torch.where(reached.view(-1, *[1] * (values.dim() - 1)), values, empty)


def gsddmm(
    recorder: Recorder, original: Any, index: Any, op: str, lhs: Any, rhs: Any,
    lhs_target: str = "u", rhs_target: str = "v",
) -> Any:  # fmt: skip
    """Computes values of edges from values of their ends and of the edges themselves."""
    edges = recorder.edges(index)
    if edges is None:
        return in_dgl(recorder, original, index, op, lhs, rhs, lhs_target, rhs_target)
    return _messages(recorder, edges, op, lhs, rhs, (lhs_target, rhs_target))


def edge_softmax(
    recorder: Recorder, original: Any, index: Any, logits: Any, eids: Any = "__ALL__", norm_by: str = "dst"
) -> Any:
    """Computes the softmax over the edges of each node; leaves a softmax over some edges only to DGL."""
    edges = recorder.edges(index)
    if edges is None or not (isinstance(eids, str) and eids == "__ALL__"):
        return in_dgl(recorder, original, index, logits, eids, norm_by)
    return softmax(recorder, edges, logits, norm_by)


def replace_inf_with_zero(recorder: Recorder, original: Any, x: Any) -> Any:
    """Replaces infinities as DGL does; recorded rows that no message reaches are zero already."""
    return x if type(x) is Value and x.node.expr.edges is not None else in_dgl(recorder, original, x)


def gather_mm(recorder: Recorder, original: Any, a: Any, b: Any, idx_a: Any = None, idx_b: Any = None) -> Any:
    """Multiplies rows with the matrices that their types choose."""
    index = _types(recorder, a, idx_b) if idx_a is None else None
    if index is None:
        return in_dgl(recorder, original, a, b, idx_a, idx_b)
    return torch.bmm(recorder.value(a).unsqueeze(1), b[index]).squeeze(1)


def segment_mm(recorder: Recorder, original: Any, a: Any, b: Any, seglen_a: Any) -> Any:
    """Multiplies segments of consecutive rows with one matrix each."""
    lengths = seglen_a.cpu().long()
    types = torch.repeat_interleave(torch.arange(b.shape[0]), lengths).to(b.device)
    index = _types(recorder, a, types) if types.shape[0] == a.shape[0] else None
    if index is None:
        return in_dgl(recorder, original, a, b, seglen_a)
    return torch.bmm(recorder.value(a).unsqueeze(1), b[index]).squeeze(1)


def _types(recorder: Recorder, rows: Any, types: Any) -> EndIndex | None:
    """Returns ``types`` as types of the edges or nodes that the rows belong to; None if that is not clear."""
    if isinstance(types, EndIndex):
        return types
    if type(rows) is not Value or not isinstance(types, Tensor) or types.dim() != 1:
        return None
    edges = rows.node.expr.edges or recorder.only
    if not isinstance(edges, GraphEdges):
        return None
    fits = {"etype": edges.count, "ntype": edges.sizes[0]}
    sides = [side for side, count in fits.items() if count == types.shape[0]]
    if rows.node.expr.on_edges:
        sides = ["etype"]
    return end_index(edges, sides[0], types) if len(sides) == 1 else None


def in_dgl(recorder: Recorder, original: Any, *args: Any, **kwargs: Any) -> Any:
    """Runs DGL's own function on computed values."""
    recorder.trace.once(f"{original.__name__} runs in DGL")
    return original(*recorder.trace.results(args), **recorder.trace.results(kwargs))


def in_memory(recorder: Recorder, original: Any, data: Any) -> Any:
    """Returns the memory of a tensor for DGL's C code; a recorded value is computed for that."""
    return in_dgl(recorder, original, data) if isinstance(data, Value) else original(data)
