"""Keeps wide rows inside of the product that multiplies them or that they come from.

A row is wide if it has several times as many values as all else that a loop over its edges touches, such as a sum of
outer products. A product multiplies few rows at a time, so that these stay in the cache. Before::

    for n in g.dst_nodes(): for e in n.incoming_edges():
        n["sums"] += outer_prod(e.src["x"], e["h"])
    for n in g.dst_nodes():
        n["out"] = linear(reshape(n["sums"], K * D), A)

    for n in g.dst_nodes():
        n["g"] = linear(n["grad_out"], A.T)
    for n in g.src_nodes(): for e in n.outgoing_edges():
        n["grad_x"] += dot_prd(reshape(e.dst["g"], K, D), to_heads(e["h"], K))

After, two SegmentGemm, in which ``sums`` and ``g`` are local, and a loop over rows that are narrow::

    for n in g.dst_nodes():
        for e in n.incoming_edges():
            n["sums"] += outer_prod(e.src["x"], e["h"])
        n["out"] = linear(reshape(n["sums"], K * D), A)

    for n in g.dst_nodes():
        n["g"] = linear(n["grad_out"], A.T)
        for e in n.incoming_edges():
            e["message"] = dot_prd(reshape(n["g"], K, D), to_heads(e["h"], K))
    for n in g.src_nodes(): for e in n.outgoing_edges():
        n["grad_x"] += e["message"]

Saves: N K D values of memory, written once and read once, and E K D values that loops in another order gather. Where a
row has very many edges, which several threads should share, wide rows are kept in memory as before. A plan answers
"sums: keep or in_product".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from dacergnn.cost import has_hubs
from dacergnn.graph.spaces import TYPE_PATHS, kind
from dacergnn.library_nodes import GraphOperator, SegmentGemm, Traversal
from dacergnn.library_nodes.form import Ref, Statement, size
from dacergnn.library_nodes.traversal.nest import Levels
from dacergnn.program import Program
from dacergnn.program.view import StatementGroup
from dacergnn.sdfg_passes.context import Context
from dacergnn.sdfg_passes.questions import KEEP
from dacergnn.target import find

WIDE = 4
"""Tells how many times as many values as other rows of its statements a wide row has."""


def keep_wide_rows(program: Program, context: Context) -> int:
    """Makes wide rows local to products wherever they can be; returns their number."""
    if not find(context.implementation).makes_rows:
        return 0
    names = [name for operator in program.operators for name in operator.written_arrays]
    return sum(_make(program, context, name) or _spread(program, context, name) for name in names)


def _make(program: Program, context: Context, name: str) -> bool:
    """Lets the product that multiplies the rows of a sum over edges make them."""
    producer, readers = program.producer(name), program.consumers(name)
    if not isinstance(producer, Traversal) or len(producer.statements) != 1 or len(readers) != 1:
        return False
    sums, reader = producer.statements[0], readers[0]
    product = reader.statements[0]
    gemm = product.gemm
    space = program.space(name)
    if gemm is None or gemm.kind not in ("linear", "outer_prod") or gemm.scale is not None or product.space != space:
        return False
    reads = [ref for s in reader.statements for ref in s.reads if ref.name == name]
    if [replace(ref, view=None) for ref in reads] != [Ref(name)] or gemm.x.name != name:
        return False
    if sums.op != "+=" or (product.target.path and product.target.path not in TYPE_PATHS):
        return False  # products of other targets are added up out of order
    if not _are_wide(program, name, [sums], space) or not _is_asked_for(context, name, sums, space):
        return False
    group = StatementGroup((sums, *reader.statements), space, (name, *reader.locals))
    _regroup(program, [producer], {reader: group})
    return True


def _spread(program: Program, context: Context, name: str) -> bool:
    """Lets a product compute values of edges from its rows."""
    producer, readers = program.producer(name), program.consumers(name)
    if not isinstance(producer, SegmentGemm) or len(producer.statements) != 1 or not readers:
        return False
    product = producer.statements[0]
    if product.gemm is None or product.gemm.kind != "linear" or product.gemm.scale is not None or product.target.path:
        return False
    if not all(isinstance(o, Traversal) and len(o.statements) == 1 for o in readers):
        return False
    statements = [o.statements[0] for o in readers]
    if not _are_wide(program, name, statements, product.space) or _waits(program, producer, readers):
        return False
    if not _is_asked_for(context, name, statements[0], product.space):
        return False
    values: list[Statement] = []
    exchanged: dict[GraphOperator, StatementGroup] = {}
    for operator, statement in zip(readers, statements, strict=True):
        if not statement.target.path:
            values.append(statement)
            continue
        target = statement.target
        desc = program.sdfg.arrays[target.name]
        value = program.add_array("message", statement.space, program.shape(target), desc.dtype)
        values.append(replace(statement, target=Ref(value), op="="))
        exchanged[operator] = StatementGroup((replace(statement, expr=Ref(value)),), statement.space, ())
    merged = [o for o in readers if o not in exchanged]
    exchanged[producer] = StatementGroup((product, *values), product.space, (name,))
    _regroup(program, merged, exchanged)
    return True


def _are_wide(program: Program, name: str, statements: Sequence[Statement], space: str) -> bool:
    """Returns whether statements of edges touch an array at their own end point alone, and other rows are narrow."""
    edges = statements[0].space
    path = Levels((space, edges)).up(edges, space)
    if not path or kind(edges) != "E" or any(s.space != edges or s.is_gemm for s in statements):
        return False
    if not program.sdfg.arrays[name].transient or program.space(name) != space:
        return False
    refs = [ref for s in statements for ref in (*s.reads, s.target)]
    if any(ref.path != path for ref in refs if ref.name == name):
        return False
    others = [size(program.shape(ref)) for ref in refs if ref.name != name]
    return size(program.shape(name)) >= WIDE * max(others, default=1)


def _is_asked_for(context: Context, name: str, statement: Statement, space: str) -> bool:
    """Decides whether wide rows stay in a product, which one thread makes or hands on row by row."""
    profile, edges = context.profile, statement.space
    path = Levels((space, edges)).up(edges, space) or ""
    hubs = has_hubs(profile.sizes, profile.longest, context.implementation, edges, space, path)
    return context.questions.ask(name, (KEEP, "in_product"), KEEP if hubs else "in_product") != KEEP


def _waits(program: Program, producer: GraphOperator, readers: Sequence[GraphOperator]) -> bool:
    """Returns whether a reader waits for another one, by way of operators that would not be in the same loop."""
    written = {n for o in readers for n in o.written_arrays}
    after = set[str]()
    for operator in program.operators:
        if (
            operator not in readers
            and operator is not producer
            and not (written | after).isdisjoint(operator.read_arrays)
        ):
            after.update(operator.written_arrays)
    return any(not (written | after).isdisjoint(o.read_arrays) for o in readers)


def _regroup(
    program: Program,
    merged: Collection[GraphOperator],
    exchanged: Mapping[GraphOperator, StatementGroup],
) -> None:
    """Takes operators out that are merged into others, and puts groups in the place of others."""
    program.regroup([exchanged.get(o, o) for o in program.operators if o not in merged])
