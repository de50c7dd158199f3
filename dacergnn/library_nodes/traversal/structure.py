"""Builds the structure of a nest: the statements that its kernel runs, their loops, and storage of their results."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from dacergnn.graph.spaces import MAPS
from dacergnn.library_nodes.form import Ref, Statement, size
from dacergnn.library_nodes.plan import Arrays, Rows
from dacergnn.library_nodes.traversal.formats import FORMATS, OTHER_END, Format
from dacergnn.library_nodes.traversal.nest import Levels, Loop, loops, simplest
from dacergnn.library_nodes.traversal.plan import Body
from dacergnn.library_nodes.traversal.storage import Home, homes_of, is_narrow, narrow_maps


@dataclass(frozen=True, eq=False)
class Structure:
    """Describes the parts of a nest before its loops are planned.

    In compressed columns, ``columns`` are the levels of the first loop, which runs over all edges.
    """

    adjacency: str
    levels: Levels
    statements: Sequence[Statement]
    arrays: Arrays
    loops: Sequence[Loop]
    homes: Mapping[str, Home]
    columns: Levels | None = None


def structure_of(body: Body, adjacency: str, *, by_edges: bool = False) -> Structure:
    """Returns the structure of a nest over compressed rows, or over a format that replaces them."""
    form = FORMATS[adjacency]
    body = replace(body, statements=tuple(simplest(body.mapping, body.statements)))
    levels = Levels.of(body.mapping, body.statements)
    statements, arrays, terms = _divided(body, levels, form, by_edges)
    flat = narrow_maps(levels, statements, arrays.shapes) if form.flattens else []
    summed = _sums(levels, statements, arrays, flat) if by_edges else ()
    top_loops = loops(levels, statements, flat, summed)
    homes = homes_of(top_loops, statements, arrays.shapes, [*body.local_arrays, *terms], rounds=arrays.rounds)
    return Structure(adjacency, levels, statements, arrays, top_loops, homes)


def _divided(
    body: Body, levels: Levels, form: Format, by_edges: bool
) -> tuple[tuple[Statement, ...], Arrays, list[str]]:
    """Returns the statements with some reductions divided, and the arrays with those added for this, and their names.

    A reduction of computed narrow values becomes a map, which vectorizes, and a reduction of its result.
    """
    statements, arrays = body.statements, body.arrays
    if not (by_edges or (form.flattens and len(statements) > 1)):
        return statements, arrays, []
    maps = [replace(s, target=Ref(s.target.name), op="=") if s.target.path else s for s in statements]
    narrow = narrow_maps(levels, maps, arrays.shapes)
    parts: list[Statement] = []
    terms: dict[str, Rows] = {}
    for statement in statements:
        name, term = statement.target.name, f"{statement.target.name}_term"
        if term not in arrays and statement.target.path and name in narrow and not isinstance(statement.expr, Ref):
            terms[term] = arrays[name]  # which has the same row shape
            parts += [
                Statement(statement.space, Ref(term), "=", statement.expr),
                replace(statement, expr=Ref(term)),
            ]
        else:
            parts.append(statement)
    return tuple(parts), arrays.with_rows(terms), [*terms]


def _sums(levels: Levels, statements: Sequence[Statement], arrays: Arrays, flat: Collection[str]) -> list[str]:
    """Returns the targets of reductions into outermost rows whose operands are ready for all rows of a tile."""
    written = {s.target.name for s in statements}
    return [
        s.target.name
        for s in statements
        if s.space == levels.spaces[-1]
        and levels.up(s.space, levels.spaces[0]) == s.target.path != ""
        and isinstance(s.expr, Ref)
        and (s.expr.name in flat or (s.expr.path == "" and s.expr.name not in written))
        and size(arrays.shapes(s.expr)) == size(arrays.shapes(s.target))  # no broadcast
        and is_narrow(s, arrays.shapes)
    ]


def by_columns(body: Body) -> Structure:
    """Returns a nest of one loop over all edges in compressed columns, then one over the rows of the targets.

    Each thread visits all edges and takes those that lead to its range of targets. So no row is written by two
    threads, and every sum has the order of the columns.
    """
    statements = simplest(body.mapping, body.statements)
    levels = Levels.of(body.mapping, statements)
    targets, inner = levels.spaces
    path = levels.up(inner, targets) or ""
    columns = Levels((MAPS[inner, OTHER_END[path]], inner))
    edges = Loop(inner, tuple(s for s in statements if s.space == inner))
    rows = Loop(targets, tuple(s for s in statements if s.space != inner))
    homes: dict[str, Home] = {}
    for statement in statements:
        name, summed = statement.target.name, statement.target.path != ""
        loop = rows if summed or statement.space == targets else edges
        width = size(body.arrays.shapes(statement.target))
        homes[name] = Home(loop.space, width, loop, None, name not in body.local_arrays, summed)
    top_loops = [Loop(columns.spaces[0], (edges,)), *([rows] if rows.items else [])]
    return Structure("csc", levels, statements, body.arrays, top_loops, homes, columns)
