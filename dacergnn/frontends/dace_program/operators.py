"""The functions of `dacergnn.ops` as texts in program form, one for each combination of operands."""

from __future__ import annotations

import textwrap

from dacergnn.errors import ProgramError

_ENDS = ("src", "dst")
_LOOPS = {"E": ("e", "edges"), "NS": ("n", "src_nodes"), "ND": ("n", "dst_nodes")}
_NEIGHBOURS = {"dst": ("dst_nodes", "incoming_edges"), "src": ("src_nodes", "outgoing_edges")}
_REDUCTIONS = ("sum", "mean", "max", "min")


def gather(end: str) -> str:
    """[E, ...] from rows ``x`` of nodes."""
    _check("end", end, _ENDS)
    return _function("gather", "g, x", ["for e in g.edges():", f'    e["rows"] = e.{end}.x', "return rows"])


def destinations() -> str:
    """[ND, ...] from rows ``x`` of sources, of which destinations are the first."""
    return _function("destinations", "g, x", ["for n in g.dst_nodes():", '    n["rows"] = n.x', "return rows"])


def typed_linear(x: str, w: str, end: str | None) -> str:
    """Rows of ``x`` (row space x) times the matrix of their type in ``W`` (row space w)."""
    if end is not None:
        _check("end", end, _ENDS)
        row, variable, loop = f"e.{end}.x", "e", "edges"
    elif x in _LOOPS:
        variable, loop = _LOOPS[x]
        row = f"{variable}.x"
    else:
        raise ProgramError(f"typed_linear: x has {x} rows; it needs rows over E, NS or ND.")
    if end is not None and x not in ("NS", "ND"):
        raise ProgramError(f'typed_linear: end="{end}" gathers rows of nodes, but x has {x} rows; leave it out.')
    types = {("R", "e"): "e.etype", ("T", "n"): "n.ntype", ("T", "e"): f"e.{end}.ntype"}
    kind = types.get((w, variable))
    if kind is None or "None" in kind:
        raise ProgramError(
            f"typed_linear: W has {w} rows and the product {'E' if variable == 'e' else x} rows; matrices are those of "
            "edge types (R) for edges, of node types (T) for nodes."
        )
    product = f'    {variable}["y"] = linear({row}, W[{kind}])'
    return _function("typed_linear", "g, x, W", [f"for {variable} in g.{loop}():", product, "return y"])


def aggregate(message: str, weighted: bool, end: str, reduce: str) -> str:
    """Rows of nodes from ``m`` of their edges, or of the nodes at the other ends, by a reduction."""
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
    """``score`` of the edges, normalized over those of one node; the largest is subtracted first."""
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
    """A body of the user's own: loops, and a return."""
    return _function("traverse", ", ".join(("g", *parameters)), textwrap.dedent(body).strip("\n").splitlines())


def _function(name: str, parameters: str, lines: list[str]) -> str:
    return f"def {name}({parameters}):\n" + "".join(f"    {line}\n" for line in lines)


def _check(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ProgramError(f"{name} is {value!r}; use one of {', '.join(map(repr, known))}.")
