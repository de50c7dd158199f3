"""The parser of the program form: from Python source to an inter-operator SDFG, one operator per statement."""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace
from typing import Any

import dace

from dacergnn.errors import ProgramError
from dacergnn.graph.spaces import MAPS, PARTED, PARTS, ROW_SPACES, SPACES, kind
from dacergnn.library_nodes.form import (
    Const,
    Expr,
    Op,
    Ref,
    Shape,
)
from dacergnn.library_nodes.node import Typeclass
from dacergnn.library_nodes.operators import op
from dacergnn.library_nodes.parse import ExpressionParser, fail, fold
from dacergnn.program.emission import Emission
from dacergnn.program.names import name_problem
from dacergnn.program.source import FlatProgram, Source, flatten
from dacergnn.program.verify import verify
from dacergnn.program.view import Program

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
ITERATORS = _ITERATORS | {
    f"{name}_{part}": space + part for part in PARTS for name, space in _ITERATORS.items() if space in PARTED
}
_NEIGHBOURS = {
    ("ND", "incoming_edges"): "dst",
    ("NS", "incoming_edges"): "dst",
    ("V", "incoming_edges"): "dstpair",
    ("NS", "outgoing_edges"): "src",
    ("U", "outgoing_edges"): "srcpair",
}
_RETURN_ORDER = ("ND", "NS", "E", "V", "U", "R", "T", "ONE", "RNS")
_AUGMENTED: dict[type[ast.AST], str] = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div"}


def parse(source: Source, *, dtype: Typeclass = dace.float32, **bindings: Any) -> dace.SDFG:
    """Parse a program into an inter-operator SDFG.

    Args:
        source: A function in program form (never executed), or text whose last function is the program.
        dtype: Element type of all arrays, float32 or float64.
        bindings: Array declarations (``x="NS[64]"``; None: not there) and compile-time constants by name.

    Raises:
        ProgramError: With line and column of what is not in the program form.
    """
    return _Parser(flatten(source, bindings), dtype).run()


@dataclass
class _Loop:
    """Where a statement stands: the row space of the innermost loop, loop variables and their paths, locals."""

    space: str
    entities: dict[str, str]
    spaces: dict[str, str]
    locals: dict[str, str]


class _Parser:
    def __init__(self, flat: FlatProgram, dtype: Typeclass) -> None:
        self.flat = flat
        self.dtype = dtype
        self.program = Program.empty(flat.name)
        self.emission = Emission(self.program, dtype)
        self.arrays: dict[tuple[str, str], str] = {}  # (row space, name in the source) -> current array

    def run(self) -> dace.SDFG:
        for name, annotation in self.flat.arrays.items():
            space, shape = self._declaration(name, annotation)
            self.arrays[space, name] = self.program.add_input(name, space, shape, self.dtype)
        returned = False
        for node in self.flat.body:
            if isinstance(node, ast.For):
                self._loop(node, None)
            elif isinstance(node, ast.Return):
                self._return(node)
                returned = True
            else:
                fail(node, "a program consists of loops over edges, nodes or pairs, and a return")
        if not returned:
            raise ProgramError(
                f'program "{self.flat.name}" returns nothing; end it with return and the names of its results.'
            )
        self.program.drop_unused()
        verify(self.program.sdfg)
        return self.program.sdfg

    def _declaration(self, name: str, node: ast.expr) -> tuple[str, Shape]:
        self._check_name(node, name)
        space, dims = (node.value, node.slice) if isinstance(node, ast.Subscript) else (node, ast.Tuple([], ast.Load()))
        if not isinstance(space, ast.Name) or space.id not in ROW_SPACES:
            fail(
                node,
                f'"{name}" is declared as a row space with a row shape, as in NS[64]; row spaces: {", ".join(SPACES)}',
            )
        items = dims.elts if isinstance(dims, ast.Tuple) else [dims]
        shape: list[int] = []
        for item in items:
            if not isinstance(item, ast.Constant) or not isinstance(item.value, int) or item.value < 1:
                fail(node, f'the row shape of "{name}" consists of positive integers')
            shape.append(item.value)
        return space.id, tuple(shape)

    def _check_name(self, node: ast.AST, name: str) -> None:
        problem = name_problem(name)
        if problem is not None:
            fail(node, problem)

    def _loop(self, node: ast.For, outer: _Loop | None) -> None:
        call = node.iter
        if not (
            isinstance(call, ast.Call)
            and isinstance(call.func, ast.Attribute)
            and isinstance(call.func.value, ast.Name)
        ):
            fail(
                node.iter,
                f"loops run over g.{'(), g.'.join(_ITERATORS)}() or n.incoming_edges(), n.outgoing_edges()",
            )
        if not isinstance(node.target, ast.Name):
            fail(node.target, "a loop has one variable")
        owner, method, variable = call.func.value.id, call.func.attr, node.target.id
        if outer is None:
            if method not in ITERATORS:
                fail(call, f"unknown iterator {method}(); the graph has: {', '.join(_ITERATORS)}")
            space = ITERATORS[method]
            loop = _Loop(space, {variable: ""}, {variable: space}, {})
        else:
            method, _, edges = method.partition("_edges")
            path = _NEIGHBOURS.get((kind(outer.spaces.get(owner, "")), f"{method}_edges"))
            if path is None or (edges and edges[1:] not in PARTS) or outer.entities.get(owner) != "":
                fail(
                    call,
                    "inner loops run over n.incoming_edges() of a destination or n.outgoing_edges() of a source",
                )
            loop = _Loop(
                "E" + edges[1:],
                {variable: "", owner: path},
                {variable: "E" + edges[1:], owner: outer.spaces[owner]},
                dict(outer.locals),
            )
        for item in node.body:
            if isinstance(item, ast.For):
                self._loop(item, loop)
            elif isinstance(item, ast.Assign | ast.AugAssign):
                self._statement(item, loop)
            else:
                fail(item, "loops hold assignments and loops over neighbours")

    def _expressions(self, loop: _Loop) -> ExpressionParser:
        def name(text: str, node: ast.AST) -> Expr:
            if text in loop.locals:
                return Ref(text, loop.entities[loop.locals[text]])
            if ("ONE", text) in self.arrays:
                return Ref(text, "one")
            return fail(node, f'"{text}" is neither a local of this loop, nor a constant, nor an array of one row')

        return ExpressionParser(loop.space, loop.entities, name)

    def _statement(self, node: ast.Assign | ast.AugAssign, loop: _Loop) -> None:
        if isinstance(node, ast.Assign) and len(node.targets) != 1:
            fail(node, "one value is assigned at a time")
        expressions = self._expressions(loop)
        target_node = node.target if isinstance(node, ast.AugAssign) else node.targets[0]
        extremum = _extremum(target_node, node)
        own = _destination_among_sources(target_node, expressions)
        target_node = own or target_node
        if isinstance(target_node, ast.Name) and (extremum is not None or isinstance(node, ast.AugAssign)):
            owner = loop.locals.get(target_node.id)
            target = Ref(target_node.id, "one" if owner is None else loop.entities[owner])
        elif isinstance(target_node, ast.Name):
            variable = next(v for v, path in loop.entities.items() if path == "")
            loop.locals[target_node.id] = variable
            target = Ref(target_node.id, "")
        else:
            reference = expressions.parse(target_node)
            if not isinstance(reference, Ref) or reference.view is not None or reference.transposed:
                fail(target_node, 'not a row value that can be assigned, as e["att"] or n["sum"] are')
            target = reference
        self._check_name(target_node, target.name)
        reduced = extremum if target.path else None
        value = self._folded(expressions.parse(node.value if reduced is None else reduced[1]), node)
        operation = "="
        if isinstance(node, ast.AugAssign):
            kind = _AUGMENTED.get(type(node.op))
            if kind is None:
                fail(node, "assignments are =, +=, -=, *= and /=")
            if kind != "add" and target.path:
                fail(node, "reductions over neighbours are written +=, or as a maximum: n[x] = max(n[x], ...)")
            operation = "+=" if kind == "add" else "="
            value = value if kind == "add" else Op(kind, (target, value))
        elif reduced is not None:
            operation = f"{reduced[0]}="
        elif isinstance(value, Op) and value.name in ("max", "min") and target.path and value.args[0] == target:
            operation, value = f"{value.name}=", value.args[1]
        elif target.path:
            fail(
                node,
                "a row that several edges share is assigned by a reduction: +=, or n[x] = max(n[x], ...)",
            )
        try:
            self._assign(
                loop.space,
                target,
                operation,
                self._resolve(value, loop.space, node),
                "NS" if own is not None else self._target_space(target, loop),
            )
        except ProgramError as error:
            if str(error).startswith("line "):
                raise
            fail(node, str(error))

    def _folded(self, expr: Expr, node: ast.AST) -> Expr:
        try:
            return fold(expr)
        except ProgramError as error:
            return fail(node, str(error))

    # Names to arrays

    def _reached(self, space: str, path: str) -> str:
        return MAPS[space, path] if path else space

    def _find(self, name: str, space: str, path: str) -> str | None:
        """The array that a name means; destinations are a prefix of the sources, so NS arrays serve both."""
        reached = self._reached(space, path)
        return self.arrays.get((reached, name)) or (self.arrays.get(("NS", name)) if reached == "ND" else None)

    def _resolve(self, expr: Expr, space: str, node: ast.AST) -> Expr:
        if isinstance(expr, Ref):
            array = self._find(expr.name, space, expr.path)
            if array is None:
                return fail(
                    node,
                    f'"{expr.name}" has no value over {self._reached(space, expr.path)} here; '
                    "assign it first, or declare it as an input",
                )
            return replace(expr, name=array)
        if isinstance(expr, Op):
            return replace(expr, args=tuple(self._resolve(a, space, node) for a in expr.args))
        return expr

    def _target_space(self, target: Ref, loop: _Loop) -> str:
        """Row space of the assigned array: that of the loop variable it belongs to."""
        variable = next((v for v, path in loop.entities.items() if path == target.path), None)
        return loop.spaces[variable] if variable else self._reached(loop.space, target.path)

    # Statements to operators

    def _assign(self, space: str, target: Ref, operation: str, value: Expr, owner: str) -> None:
        key = (owner, target.name)
        previous = self.arrays.get(key)
        if previous is not None and operation in ("+=", "max=", "min=") and self._is_start(previous, operation):
            self._discard(previous)
            previous = None
        if target.path == "" and space == owner:
            combined = value if operation == "=" or previous is None else op("add", Ref(previous), value)
            self.arrays[key] = self.emission.emit(space, "", "=", combined, target.name, owner)
            return
        if operation in ("max=", "min=") and not isinstance(value, Ref):
            # Its gradient compares values with the result, so they must be the same bits.
            value = self.emission.temporary(value, space)
        result = self.emission.emit(space, target.path, operation if target.path else "=", value, target.name, owner)
        if previous is not None and operation != "=":
            kind = "add" if operation == "+=" else operation[:-1]
            result = self.emission.emit(owner, "", "=", op(kind, Ref(previous), Ref(result)), target.name, owner)
        self.arrays[key] = result

    def _is_start(self, array: str, operation: str) -> bool:
        """Whether an array holds the value that a reduction starts from anyway."""
        producer = self.program.producer(array)
        if producer is None:
            return False
        value = producer.statements[-1].expr
        return isinstance(value, Const) and (value.value == 0 if operation == "+=" else abs(value.value) > 1e29)

    def _discard(self, array: str) -> None:
        """Drop an initial value that nobody read, so that its name is free."""
        producer = self.program.producer(array)
        if producer is not None and not self.program.consumers(array):
            self.program.remove(producer)
            self.program.sdfg.remove_data(array)

    def _return(self, node: ast.Return) -> None:
        items = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
        for item in items:
            if not isinstance(item, ast.Name):
                fail(node, "return names the results: return out, or return out, att")
            space = next((s for s in _RETURN_ORDER if (s, item.id) in self.arrays), None)
            if space is None:
                fail(node, f'"{item.id}" was never assigned')
            array = self.arrays[space, item.id]
            if not self.program.sdfg.arrays[array].transient:
                array = self.emission.emit(space, "", "=", Ref(array), item.id, space)
            self.program.mark_output(array)


def _destination_among_sources(target: ast.AST, expressions: ExpressionParser) -> ast.Subscript | None:
    """``n["x"]`` of a target ``n.src["x"]`` that belongs to a destination n: an array over the sources, of which
    only the rows of destinations are assigned, the others being 0."""
    if isinstance(target, ast.Subscript) and isinstance(target.value, ast.Attribute) and target.value.attr == "src":
        node = target.value.value
        path = expressions.entity(node)
        if path is not None and (MAPS.get((expressions.space, path)) if path else expressions.space) == "ND":
            return ast.copy_location(ast.Subscript(node, target.slice, ast.Store()), target)
    return None


def _extremum(target: ast.AST, node: ast.Assign | ast.AugAssign) -> tuple[str, ast.expr] | None:
    """("max" or "min", x) of ``target = max(target, x)``."""
    call = node.value
    if isinstance(node, ast.AugAssign) or not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        return None
    if call.func.id not in ("max", "min") or len(call.args) != 2 or ast.unparse(call.args[0]) != ast.unparse(target):
        return None
    return call.func.id, call.args[1]
