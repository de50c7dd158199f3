"""The functions of `dacergnn.ops` as texts in program form, one for each combination of operands."""

from __future__ import annotations

import textwrap

from dacergnn.errors import ProgramError
from dacergnn.library_nodes.form import Shape, size

Rows = tuple[str, Shape]
"""Row space and row shape of an array."""
_ENDS = ("src", "dst")
_LOOPS = {"E": ("e", "edges"), "NS": ("n", "src_nodes"), "ND": ("n", "dst_nodes")}
_NEIGHBOURS = {"dst": ("dst_nodes", "incoming_edges"), "src": ("src_nodes", "outgoing_edges")}
_REDUCTIONS = ("sum", "mean", "max", "min")


def gather(x: str, end: str) -> str:
    """Writes a gather of rows [E, ...] from rows of nodes, of their types or of edge types; ``x`` is the row space."""
    rows = {("R", "type"): "x[e.etype]"}
    for node in _ENDS:
        rows |= {("NS", node): f"e.{node}.x", ("ND", node): f"e.{node}.x", ("T", node): f"x[e.{node}.ntype]"}
    if (x, end) not in rows:
        ends = " or ".join(repr(e) for s, e in rows if s == x)
        raise ProgramError(
            f"gather: end is {end!r}; for x with {x} rows it is {ends}."
            if ends
            else f"gather: x has {x} rows; it needs rows over NS, ND, T or R."
        )
    return _function("gather", "g, x", ["for e in g.edges():", f'    e["rows"] = {rows[x, end]}', "return rows"])


def destinations(x: str) -> str:
    """Writes rows [ND, ...] of destinations from rows ``x`` of sources, which begin with them, or of node types."""
    value = "x[n.ntype]" if x == "T" else "n.x"
    return _function("destinations", "g, x", ["for n in g.dst_nodes():", f'    n["rows"] = {value}', "return rows"])


def typed_linear(x: Rows, w: Rows, end: str | None, heads: int | None) -> str:
    """Writes the product of rows of ``x`` with the matrix of their type in ``W``, divided over heads."""
    space, shape = x
    if end is not None:
        _check("end", end, _ENDS)
        row, variable, loop = f"e.{end}.x", "e", "edges"
    elif space in _LOOPS:
        variable, loop = _LOOPS[space]
        row = f"{variable}.x"
    else:
        raise ProgramError(f"typed_linear: x has {space} rows; it needs rows over E, NS or ND.")
    if end is not None and space not in ("NS", "ND"):
        raise ProgramError(f'typed_linear: end="{end}" gathers rows of nodes, but x has {space} rows; leave it out.')
    types = {("R", "e"): "e.etype", ("T", "n"): "n.ntype", ("T", "e"): f"e.{end}.ntype"}
    kind = types.get((w[0], variable))
    if kind is None or "None" in kind:
        raise ProgramError(
            f"typed_linear: W has {w[0]} rows and the product {'E' if variable == 'e' else space} rows; matrices are "
            "those of edge types (R) for edges, of node types (T) for nodes."
        )
    if len(shape) > 1 and len(w[1]) == 2:
        row = f"reshape({row}, {size(shape)})"
    product = f"linear({row}, W[{kind}])"
    if heads is not None:
        width = w[1][-1]
        if heads < 1 or width % heads:
            raise ProgramError(f"typed_linear: heads is {heads}; use a divisor of the {width} columns of W.")
        product = f"reshape({product}, {heads}, {width // heads})"
    lines = [f"for {variable} in g.{loop}():", f'    {variable}["y"] = {product}', "return y"]
    return _function("typed_linear", "g, x, W", lines)


def aggregate(message: str, weighted: bool, end: str, reduce: str) -> str:
    """Writes a reduction to rows of nodes from ``m`` of their edges, or of the nodes at the other ends."""
    _check("end", end, _ENDS)
    _check("reduce", reduce, _REDUCTIONS)
    nodes, edges = _NEIGHBOURS[end]
    value = "e.m" if message == "E" else f"e.{'src' if end == 'dst' else 'dst'}.m"
    if message not in ("E", "NS", "ND"):
        raise ProgramError(f"aggregate: the messages have {message} rows; they need rows over E, NS or ND.")
    value = f"e.w * {value}" if weighted else value
    parameters = "g, m, w" if weighted else "g, m"
    lines = [f"for n in g.{nodes}():", f"    for e in n.{edges}():"]
    if reduce in ("max", "min"):
        lines.append(f'        n["y"] = {reduce}(n["y"], {value})')
    else:
        lines.append(f'        n["y"] += {value}')
    if reduce == "mean":
        lines += ['        n["count"] += 1.0', '    n["y"] = n["y"] / max(n["count"], 1.0)']
    return _function("aggregate", parameters, [*lines, "return y"])


def edge_softmax(end: str) -> str:
    """Writes a softmax of ``score`` over the edges of each node, which subtracts the largest score first."""
    _check("end", end, _ENDS)
    nodes, edges = _NEIGHBOURS[end]
    lines = [
        f"for n in g.{nodes}():",
        f"    for e in n.{edges}():",
        '        n["largest"] = max(n["largest"], e.score)',
        "for e in g.edges():",
        f'    e["y"] = exp(e.score - detach(e.{end}["largest"]))',
        f'    e.{end}["total"] += e["y"]',
        "for e in g.edges():",
        f'    e["y"] = e["y"] / e.{end}["total"]',
        "return y",
    ]
    return _function("edge_softmax", "g, score", lines)


def traverse(body: str, parameters: tuple[str, ...]) -> str:
    """Writes a body of the user's own, which consists of loops and a return."""
    return _function("traverse", ", ".join(("g", *parameters)), textwrap.dedent(body).strip("\n").splitlines())


def _function(name: str, parameters: str, lines: list[str]) -> str:
    return f"def {name}({parameters}):\n" + "".join(f"    {line}\n" for line in lines)


def _check(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ProgramError(f"{name} is {value!r}; use one of {', '.join(map(repr, known))}.")
