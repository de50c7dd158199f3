"""Inlines constants and helper functions into programs, and decides their `if`s."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import Any, NoReturn

from dacergnn.library_nodes.diagnostics import fail, located, nearest
from dacergnn.library_nodes.parse import KNOWN_OPERATORS
from dacergnn.program.aggregation import AGGREGATIONS, expand
from dacergnn.program.depth import check_depth
from dacergnn.program.source import CONSTANT, Function, copied_tree, read


@dataclass(frozen=True)
class Scope:
    """Describes the names in a function: expressions that stand for its parameters, arrays, and names that Python sees.

    ``callers`` are the functions that led here, the innermost last.
    """

    function: Function
    bound: Mapping[str, ast.expr]
    present: Iterable[str]
    own: frozenset[str]
    callers: tuple[str, ...]

    @classmethod
    def of(cls, main: Function, constants: Mapping[str, Any], present: Iterable[str]) -> Scope:
        """Returns the scope of a program with these constants and arrays."""
        bound: dict[str, ast.expr] = {k: ast.Constant(v) for k, v in constants.items()}
        return cls(main, bound, present, _assigned(main.node) | frozenset(present), (main.node.name,))

    def enter(self, call: ast.Call, function: Function, arguments: Mapping[str, ast.expr]) -> Scope:
        """Returns the scope of a function that is called from here."""
        name = function.node.name
        if name in self.callers:
            fail(call, f"{name}() calls itself; functions are inlined, which has to come to an end")
        absent = {k: v for k, v in self.bound.items() if isinstance(v, ast.Constant) and v.value is None}
        own = _assigned(function.node) | frozenset(self.present)
        return Scope(function, {**absent, **arguments}, self.present, own, (*self.callers, name))

    def lookup(self, name: str) -> ast.expr | None:
        """Returns the argument or constant that a name stands for; None for rows, arrays and functions."""
        if name in self.bound:
            return self.bound[name]
        value: Any = self.function.names.get(name, self) if name not in self.own else self
        return ast.Constant(value) if type(value) in CONSTANT else None

    def helper(self, name: str) -> Function | None:
        """Returns the function of that name; None if there is none."""
        value = self.function.names.get(name)
        value = getattr(value, "__wrapped__", value)
        if not isinstance(value, FunctionType) or value.__module__.partition(".")[0] == "torch":
            return value if isinstance(value, Function) else None
        return read(value)


def annotation(declared: object, parameter: ast.arg, scope: Scope) -> ast.expr | None:
    """Returns the declaration of an array, text or syntax, with constants bound; None if it tells no row space."""
    if isinstance(declared, ast.Constant):
        declared = declared.value
    if isinstance(declared, str):
        try:
            declared = located(ast.parse(declared, mode="eval").body, parameter, everywhere=True)
        except (SyntaxError, RecursionError, MemoryError, ValueError):
            fail(parameter, f'"{parameter.arg}" is declared as {declared!r}; write a row space and a row shape: NS[64]')
    if isinstance(declared, ast.expr):
        check_depth(declared)
    if not isinstance(declared, ast.expr) or "Tensor" in ast.unparse(declared):
        return None
    bound = copied_tree(declared)
    if isinstance(bound, ast.Subscript):
        bound.slice = _Bind(scope).visit(bound.slice)
        dims = bound.slice.elts if isinstance(bound.slice, ast.Tuple) else [bound.slice]
        values = [_value(d, {}) if not _names(d) else None for d in dims]
        if all(isinstance(v, int) for v in values):
            items: list[ast.expr] = [ast.Constant(v) for v in values]
            bound.slice = located(items[0] if len(items) == 1 else ast.Tuple(items, ast.Load()), declared)
    return bound


class Inliner:
    """Flattens the bodies of a program and of the functions that it calls."""

    def __init__(self, main: Function) -> None:
        self._used = _mentioned(main.node)

    def block(self, body: list[ast.stmt], scope: Scope) -> list[ast.stmt]:
        """Returns the statements with everything constant resolved."""
        result: list[ast.stmt] = []
        for node in body:
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                continue  # docstring
            if isinstance(node, ast.If):
                result += self.block(node.body if self._decide(node.test, scope) else node.orelse, scope)
            elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
                result += self._call(node.value, scope)
            elif isinstance(node, ast.For):
                if node.orelse:
                    fail(node, "loops have no else")
                loop = copy.copy(node)
                loop.iter = _Bind(scope).visit(copied_tree(node.iter))
                loop.body = self.block(node.body, scope)
                result.append(loop)
            elif not isinstance(node, ast.Pass):
                bound = _Bind(scope).visit(copied_tree(node))
                check_depth(bound)
                result += expand(bound, self._fresh)
        return result

    def _decide(self, test: ast.expr, scope: Scope) -> bool:
        values: dict[str, Any] = dict.fromkeys(scope.present, True)
        for name in _names(test):
            value = scope.lookup(name)
            if isinstance(value, ast.Constant):
                values[name] = value.value
        unknown = _names(test) - values.keys() - {"len"}
        if unknown:
            fail(
                test,
                f"conditions are decided at compile time, but {', '.join(sorted(unknown))} is not a constant; "
                "a condition on rows is a factor: (e.s > 0.0) * e.src.x",
            )
        return bool(_value(test, values))

    def _call(self, call: ast.Call, scope: Scope) -> list[ast.stmt]:
        """Returns the statements of a function that is called as a statement."""
        name = call.func.id if isinstance(call.func, ast.Name) else ""
        function = scope.helper(name)
        if function is None:
            _unknown(call, scope)
        self._used |= _mentioned(function.node)
        parameters = [a.arg for a in function.node.args.args[1:]]
        expected = f"{name}() takes the graph and {', '.join(parameters) or 'nothing else'}, which are constants"
        bound_call = copied_tree(call)
        _Bind(scope).arguments(bound_call)
        arguments = _arguments(bound_call, function, 1, expected)
        if not all(isinstance(v, ast.Constant) for v in arguments.values()):
            fail(call, expected)
        return self.block(function.node.body, scope.enter(call, function, arguments))

    def _fresh(self, name: str) -> str:
        """Returns a name that the program does not mention."""
        candidate, count = name, 1
        while candidate in self._used:
            count += 1
            candidate = f"{name}_{count}"
        self._used.add(candidate)
        return candidate


class _Bind(ast.NodeTransformer):
    """Replaces names by what they stand for, and calls of functions that return one expression by this expression."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    def visit_Name(self, node: ast.Name) -> ast.AST:
        replacement = self.scope.lookup(node.id) if isinstance(node.ctx, ast.Load) else None
        return node if replacement is None else located(copied_tree(replacement), node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        value, key = node.value, node.slice
        if isinstance(value, ast.Constant) and isinstance(value.value, tuple) and isinstance(key, ast.Constant):
            return located(ast.Constant(_value(node, {})), node)
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        test, present = self.visit(node.test), dict.fromkeys(self.scope.present, True)
        if _names(test) - present.keys():
            return node  # a condition on rows, which the parser refuses
        return self.visit(node.body if _value(test, present) else node.orelse)

    def arguments(self, call: ast.Call) -> None:
        """Binds names in the arguments of a call."""
        call.args = [self.visit(a) for a in call.args]
        for keyword in call.keywords:
            keyword.value = self.visit(keyword.value)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        self.arguments(node)
        function = self.scope.helper(name)
        if name in KNOWN_OPERATORS or name in AGGREGATIONS:
            if function is not None and function.names.get("__name__") == self.scope.function.names.get("__name__"):
                fail(node, f"{name}() is an operator of the program form; call the function beside it by another name")
            return node
        if function is None:
            return node
        body = [s for s in function.node.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
        value = body[0].value if len(body) == 1 and isinstance(body[0], ast.Return) else None
        if value is None:
            fail(node, f"{name}() is used as a value, so it consists of one return: return leakyrelu(x, 0.2)")
        parameters = [a.arg for a in function.node.args.args]
        expected = f"{name}() takes {len(parameters)} arguments: {', '.join(parameters)}"
        arguments = _arguments(node, function, 0, expected)
        inlined = _Bind(self.scope.enter(node, function, arguments)).visit(copied_tree(value))
        check_depth(inlined)  # before an enclosing function makes it deeper
        return inlined


def _arguments(call: ast.Call, function: Function, skipped: int, expected: str) -> dict[str, ast.expr]:
    """Returns a function's parameters after the first ``skipped`` ones, with their arguments in a call."""
    parameters = [a.arg for a in function.node.args.args][skipped:]
    defaults = function.node.args.defaults
    arguments: dict[str, ast.expr] = dict(zip(parameters[::-1], defaults[::-1], strict=False))
    positional = call.args[skipped:]
    arguments.update(zip(parameters, positional, strict=False))
    arguments.update({k.arg: k.value for k in call.keywords if k.arg is not None})
    if len(positional) > len(parameters) or arguments.keys() != set(parameters):
        fail(call, expected)
    return arguments


def _unknown(call: ast.Call, scope: Scope) -> NoReturn:
    text = ast.unparse(call.func)
    if text in KNOWN_OPERATORS:
        fail(call, f'{text}() gives a value; assign it to a row: e["y"] = {text}(...)')
    known = [n for n, v in scope.function.names.items() if isinstance(v, Function | FunctionType)]
    fail(call, f"unknown function {text}(); define it beside the program{nearest(text, known, '{}()')}")


def _value(node: ast.expr, names: Mapping[str, Any]) -> Any:
    """Returns the value of an expression of constants."""
    code = compile(ast.fix_missing_locations(ast.Expression(node)), "<program>", "eval")
    try:
        return eval(code, {"__builtins__": {"len": len}}, dict(names))
    except Exception as error:
        fail(node, f"this has no value at compile time: {error}")


def _names(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def _assigned(node: ast.FunctionDef) -> frozenset[str]:
    """Returns the names that a function assigns, which are local to it, as in Python."""
    return frozenset(n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))


def _mentioned(node: ast.AST) -> set[str]:
    """Returns all words in a syntax tree that may name an array or a local."""
    names = _names(node)
    for item in ast.walk(node):
        if isinstance(item, ast.Attribute):
            names.add(item.attr)
        elif isinstance(item, ast.Constant) and isinstance(item.value, str):
            names.add(item.value)
        elif isinstance(item, ast.arg):
            names.add(item.arg)
    return names
