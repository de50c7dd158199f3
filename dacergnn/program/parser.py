"""The parser of the program form: from Python source to an inter-operator SDFG, one operator per statement."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import dace

from dacergnn.errors import ProgramError
from dacergnn.graph.spaces import MAPS, ROW_SPACES, TYPE_PATHS
from dacergnn.library_nodes.diagnostics import fail, nearest
from dacergnn.library_nodes.form import Const, Expr, Op, Ref
from dacergnn.library_nodes.node import Typeclass
from dacergnn.library_nodes.operators import op
from dacergnn.library_nodes.parse import ExpressionParser, fold
from dacergnn.library_nodes.place import Place
from dacergnn.library_nodes.shapes import shape_of
from dacergnn.program.declarations import declaration
from dacergnn.program.emission import Emission
from dacergnn.program.flatten import FlatProgram, flatten
from dacergnn.program.loops import LoopScope, assigned, destination_among_sources, enter, walk
from dacergnn.program.names import name_problem
from dacergnn.program.source import Source
from dacergnn.program.verify import verify
from dacergnn.program.view import Program

_RETURN_ORDER = tuple(dict.fromkeys(("ND", "NS", "E", "V", "U", *ROW_SPACES)))
_AUGMENTED: dict[type[ast.AST], str] = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div"}


def parse(source: Source, *, dtype: Typeclass = dace.float32, **bindings: Any) -> dace.SDFG:
    """Parses a program into an inter-operator SDFG.

    Args:
        source: A function in program form (never executed), or text whose last function is the program.
        dtype: Element type of all arrays, float32 or float64.
        bindings: Array declarations (``x="NS[64]"``; None: not there) and compile-time constants by name.

    Raises:
        ProgramError: Something is not in the program form; the error names its line and column.
    """
    return parse_flat(flatten(source, bindings), dtype)


def parse_flat(flat: FlatProgram, dtype: Typeclass) -> dace.SDFG:
    """Parses a program that has been flattened."""
    return _Parser(flat, dtype).run()


class _Parser:
    def __init__(self, flat: FlatProgram, dtype: Typeclass) -> None:
        self.flat = flat
        self.dtype = dtype
        self.program = Program.empty(flat.name)
        self.emission = Emission(self.program, dtype)
        self.arrays: dict[tuple[str, str], str] = {}  # (row space, name in the source) -> current array

    def run(self) -> dace.SDFG:
        for name, parameter in self.flat.undeclared.items():
            fail(parameter, f'array "{name}" is not declared; write it as {name}: NS[64] or pass {name}="NS[64]"')
        for name, annotation in self.flat.arrays.items():
            space, shape = declaration(name, annotation)
            self._check_name(annotation, name)
            try:
                array = self.arrays[space, name] = self.program.add_input(name, space, shape, self.dtype)
            except ProgramError as error:
                fail(annotation, str(error))
            self.program.locate(array, Place.of(annotation))
        returned = False
        for node in self.flat.body:
            if isinstance(node, ast.For):
                walk(node.body, self._statement, enter(node, None))
            elif isinstance(node, ast.Return):
                self._return(node)
                returned = True
            else:
                fail(node, "a program consists of loops over edges, nodes or pairs, and a return: for e in g.edges():")
        if not returned:
            message = f'program "{self.flat.name}" returns nothing; end it with the names of its results: return out'
            fail(self.flat.definition, message)
        self.program.drop_unused()
        verify(self.program.sdfg)
        return self.program.sdfg

    def _check_name(self, node: ast.AST, name: str) -> None:
        problem = name_problem(name)
        if problem is not None:
            fail(node, problem)

    def _expressions(self, loop: LoopScope) -> ExpressionParser:
        def name(text: str, node: ast.AST) -> Expr:
            if text in loop.locals:
                return Ref(text, loop.entities[loop.locals[text]])
            if ("ONE", text) in self.arrays:
                return Ref(text, "one")
            return fail(
                node,
                f'"{text}" is neither a local of this loop, nor a constant, nor an array of one row'
                f"{self._elsewhere(text, 'ONE', list(loop.locals))}",
            )

        return ExpressionParser(loop.space, loop.entities, name)

    def _statement(self, node: ast.Assign | ast.AugAssign, loop: LoopScope) -> None:
        self.emission.place = Place.of(node)
        target_node = assigned(node)
        expressions = self._expressions(loop)
        extremum = _extremum(target_node, node)
        own = destination_among_sources(target_node, expressions)
        target_node = own or target_node
        if isinstance(target_node, ast.Name) and (extremum is not None or isinstance(node, ast.AugAssign)):
            owner = loop.locals.get(target_node.id)
            target = Ref(target_node.id, "one" if owner is None else loop.entities[owner])
        elif isinstance(target_node, ast.Name):
            loop.locals[target_node.id] = loop.variable
            target = Ref(target_node.id, "")
        else:
            reference = expressions.parse(target_node)
            if not isinstance(reference, Ref) or reference.view is not None or reference.transposed:
                fail(target_node, 'not a row value that can be assigned, as e["att"] or n["sum"] are')
            target = reference
        self._check_name(target_node, target.name)
        expressions.seen.clear()
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
                self._products(self._resolve(value, loop.space, expressions)),
                "NS" if own is not None else loop.owner_space(target.path),
            )
        except ProgramError as error:
            if error.location:
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
        """Returns the array that a name means; destinations are a prefix of the sources, so NS arrays serve both."""
        reached = self._reached(space, path)
        return self.arrays.get((reached, name)) or (self.arrays.get(("NS", name)) if reached == "ND" else None)

    def _resolve(self, expr: Expr, space: str, expressions: ExpressionParser) -> Expr:
        if isinstance(expr, Ref):
            array = self._find(expr.name, space, expr.path)
            if array is None:
                place = next((n for r, n in expressions.seen if (r.name, r.path) == (expr.name, expr.path)), None)
                reached = self._reached(space, expr.path)
                message = f'"{expr.name}" has no value over {reached} here; assign it first, or declare it as an input'
                message += self._elsewhere(expr.name, reached)
                raise ProgramError(message) if place is None else fail(place, message)
            return replace(expr, name=array)
        if isinstance(expr, Op):
            return replace(expr, args=tuple(self._resolve(a, space, expressions) for a in expr.args))
        return expr

    def _elsewhere(self, name: str, space: str, others: Sequence[str] = ()) -> str:
        """Returns a hint for errors: the rows where a name has a value, or else a name that is like it."""
        spaces = [s for s, known in self.arrays if known == name]
        known = [n for s, n in self.arrays if s == space or (s, space) == ("NS", "ND")]
        return f"; it has rows {', '.join(spaces)}" if spaces else nearest(name, [*known, *others], '"{}"')

    def _products(self, expr: Expr) -> Expr:
        """Returns the expression with rows times sliced matrices as products, if the source is written like that."""
        if not isinstance(expr, Op) or not self.flat.papers:
            return expr
        args = tuple(self._products(a) for a in expr.args)
        expr = replace(expr, args=args)
        weight = args[-1]
        if expr.name == "mul" and isinstance(weight, Ref) and weight.path in TYPE_PATHS and weight.path != "one":
            row, matrix = (shape_of(a, self.program.shape) for a in args)
            if len(row) == 1 and len(matrix) == 2 and row[0] == matrix[0]:
                return Op("linear", args)
        return expr

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
        """Tells whether an array holds the value that a reduction starts from anyway."""
        producer = self.program.producer(array)
        if producer is None:
            return False
        value = producer.statements[-1].expr
        return isinstance(value, Const) and (value.value == 0 if operation == "+=" else abs(value.value) > 1e29)

    def _discard(self, array: str) -> None:
        """Drops an initial value that nobody read, so that its name is free."""
        producer = self.program.producer(array)
        if producer is not None and not self.program.consumers(array):
            self.program.remove(producer)
            self.program.sdfg.remove_data(array)

    def _return(self, node: ast.Return) -> None:
        self.emission.place = Place.of(node)
        items = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
        for item in items:
            if not isinstance(item, ast.Name):
                fail(node, "return names the results: return out, or return out, att")
            space = next((s for s in _RETURN_ORDER if (s, item.id) in self.arrays), None)
            if space is None:
                guess = nearest(item.id, [n for _, n in self.arrays], '"{}"')
                fail(item, f'"{item.id}" was never assigned{guess}')
            array = self.arrays[space, item.id]
            if not self.program.sdfg.arrays[array].transient:
                array = self.emission.emit(space, "", "=", Ref(array), item.id, space)
            self.program.mark_output(array)


def _extremum(target: ast.AST, node: ast.Assign | ast.AugAssign) -> tuple[str, ast.expr] | None:
    """Returns ("max" or "min", x) of ``target = max(target, x)``; None for other statements."""
    call = node.value
    if isinstance(node, ast.AugAssign) or not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        return None
    if call.func.id not in ("max", "min") or len(call.args) != 2 or ast.unparse(call.args[0]) != ast.unparse(target):
        return None
    return call.func.id, call.args[1]
