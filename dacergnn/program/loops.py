"""Loops of the program form: the rows that they run over, and the paths of their variables."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass

from dacergnn.graph.spaces import FEATURE_SPACES, MAPS, PARTED, PARTS, kind
from dacergnn.library_nodes.diagnostics import fail, nearest
from dacergnn.library_nodes.parse import ExpressionParser

_ITERATORS = {
    "edges": "E",
    "nodes": "NS",
    "src_nodes": "NS",
    "dst_nodes": "ND",
    "src_pairs": "U",
    "dst_pairs": "V",
    "edge_types": "R",
    "node_types": "T",
    "once": "ONE",
    "typed_nodes": "RNS",
}
_OF_FEATURES = {
    "nonzeros": "Z",
    "columns": "F",
    "node_type_columns": "TF",
    "edge_type_columns": "RF",
    "nonzeros_of_src_pairs": "UZ",
    "nonzeros_of_dst_pairs": "VZ",
}
_ENDS = {"src": "S", "dst": "D"}
ITERATORS = (
    _ITERATORS
    | {f"{name}_{part}": space + part for part in PARTS for name, space in _ITERATORS.items() if space in PARTED}
    | {
        f"{end}_{name}": space + side
        for end, side in _ENDS.items()
        for name, space in _OF_FEATURES.items()
        if space + side in FEATURE_SPACES
    }
)
_NEIGHBOURS = {
    ("ND", "incoming_edges"): "dst",
    ("NS", "incoming_edges"): "dst",
    ("V", "incoming_edges"): "dstpair",
    ("NS", "outgoing_edges"): "src",
    ("U", "outgoing_edges"): "srcpair",
}


@dataclass
class LoopScope:
    """Describes the scope of a statement: row space of the innermost loop, loop variables and their paths, locals."""

    space: str
    entities: dict[str, str]
    spaces: dict[str, str]
    locals: dict[str, str]

    @property
    def variable(self) -> str:
        """Returns the variable of the innermost loop."""
        return next(v for v, path in self.entities.items() if path == "")

    def reached(self, path: str) -> str:
        """Returns the row space that a path leads to."""
        return MAPS[self.space, path] if path else self.space

    def owner_space(self, path: str) -> str:
        """Returns the row space of an array that is assigned along a path: the space of the path's loop variable."""
        variable = next((v for v, known in self.entities.items() if known == path), None)
        return self.spaces[variable] if variable else self.reached(path)


def enter(node: ast.For, outer: LoopScope | None) -> LoopScope:
    """Returns the scope of the loop that a statement opens inside ``outer``."""
    call = node.iter
    if not (
        isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name)
    ):
        fail(
            node.iter,
            f"loops run over g.{'(), g.'.join(_ITERATORS)}() or n.incoming_edges(), n.outgoing_edges()",
        )
    if not isinstance(node.target, ast.Name):
        fail(node.target, "a loop has one variable")
    owner, method, variable = call.func.value.id, call.func.attr, node.target.id
    if outer is not None:
        return _inner(call, outer, owner, method, variable)
    if method not in ITERATORS:
        guess = nearest(method, _ITERATORS, "g.{}()")
        fail(call, f"unknown iterator {method}(); the graph has: {', '.join(_ITERATORS)}{guess}")
    space = ITERATORS[method]
    return LoopScope(space, {variable: ""}, {variable: space}, {})


def _inner(call: ast.Call, outer: LoopScope, owner: str, method: str, variable: str) -> LoopScope:
    name, _, edges = method.partition("_edges")
    path = _NEIGHBOURS.get((kind(outer.spaces.get(owner, "")), f"{name}_edges"))
    if path is None or (edges and edges[1:] not in PARTS) or outer.entities.get(owner) != "":
        methods = ("incoming_edges", "outgoing_edges")
        guess = "" if method in methods else nearest(method, methods, f"{outer.variable}.{{}}()")
        fail(
            call,
            f"inner loops run over n.incoming_edges() of a destination or n.outgoing_edges() of a source{guess}",
        )
    space = "E" + edges[1:]
    return LoopScope(
        space, {variable: "", owner: path}, {variable: space, owner: outer.spaces[owner]}, dict(outer.locals)
    )


def walk(
    body: list[ast.stmt], statement: Callable[[ast.Assign | ast.AugAssign, LoopScope], None], outer: LoopScope
) -> None:
    """Visits the statements in a loop and in the loops inside it, in order."""
    for item in body:
        if isinstance(item, ast.For):
            walk(item.body, statement, enter(item, outer))
        elif isinstance(item, ast.Assign | ast.AugAssign):
            statement(item, outer)
        else:
            fail(item, 'loops hold assignments and loops over neighbours: e["y"] = e.src.x')


def assigned(node: ast.Assign | ast.AugAssign) -> ast.expr:
    """Returns the target that a statement assigns."""
    target = node.target if isinstance(node, ast.AugAssign) else node.targets[0]
    if isinstance(target, ast.Tuple | ast.List) or (isinstance(node, ast.Assign) and len(node.targets) != 1):
        fail(node, 'one value is assigned at a time: e["y"] = e.src.x')
    return target


def destination_among_sources(target: ast.AST, expressions: ExpressionParser) -> ast.Subscript | None:
    """Returns ``n["x"]`` for a target ``n.src["x"]`` of a destination n; None for other targets. The array is over
    the sources: only rows of destinations are assigned, and the others are 0."""
    if isinstance(target, ast.Subscript) and isinstance(target.value, ast.Attribute) and target.value.attr == "src":
        node = target.value.value
        path = expressions.entity(node)
        if path is not None and (MAPS[expressions.space, path] if path else expressions.space) == "ND":
            return ast.copy_location(ast.Subscript(node, target.slice, ast.Store()), target)
    return None
