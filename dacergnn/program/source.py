"""From a function or text to one flat syntax tree: constants bound, `if`s decided, called functions inlined."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dacergnn.errors import ProgramError
from dacergnn.library_nodes.parse import fail

Source = str | Callable[..., Any]
_CONSTANT = (bool, int, float, str, tuple, type(None))


@dataclass
class FlatProgram:
    """A program as a name, its declared arrays (name -> annotation), and its top-level loops and return."""

    name: str
    arrays: dict[str, ast.expr]
    body: list[ast.stmt]


def flatten(source: Source, bindings: Mapping[str, Any]) -> FlatProgram:
    """Resolve everything that is known at compile time.

    ``bindings`` holds array declarations like ``x="NS[64]"`` for the parameters of the program, None for
    a parameter that is not there, and constants by name.
    """
    functions, namespace = _functions(source)
    main = functions[next(reversed(functions))] if isinstance(source, str) else functions[source.__name__]
    parameters = [a.arg for a in main.args.args[1:]]
    arrays: dict[str, ast.expr] = {}
    for argument in main.args.args[1:]:
        declared = bindings.get(argument.arg, argument.annotation)
        if isinstance(declared, str):
            declared = ast.parse(declared, mode="eval").body
        if isinstance(declared, ast.expr):
            arrays[argument.arg] = declared
        elif argument.arg not in bindings:
            fail(
                argument,
                f'array "{argument.arg}" is not declared; '
                f'write it as {argument.arg}: NS[64] or pass {argument.arg}="NS[64]"',
            )
    absent: dict[str, Any] = {p: None for p in parameters if p not in arrays}
    constants = {k: v for k, v in bindings.items() if k not in parameters and isinstance(v, _CONSTANT)}
    present = dict.fromkeys(arrays, True)
    inliner = _Inliner(functions, namespace)
    body = inliner.block(main.body, {**constants, **absent}, present)
    return FlatProgram(main.name, arrays, body)


def _functions(source: Source) -> tuple[dict[str, ast.FunctionDef], Mapping[str, Any]]:
    namespace: Mapping[str, Any] = {}
    if isinstance(source, str):
        text = source
    else:
        text, namespace = textwrap.dedent(inspect.getsource(source)), source.__globals__
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise ProgramError(
            f"line {error.lineno}, column {error.offset}: not Python syntax ({error.msg})\n    {error.text}"
        ) from error
    functions = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef)}
    if not functions:
        raise ProgramError("the source holds no function; a program starts with def name(g, ...).")
    return functions, namespace


class _Bind(ast.NodeTransformer):
    """Replaces names of constants by their values."""

    def __init__(self, constants: Mapping[str, Any]) -> None:
        self.constants = constants

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if isinstance(node.ctx, ast.Load) and node.id in self.constants:
            return ast.copy_location(ast.Constant(self.constants[node.id]), node)
        return node


class _Inliner:
    def __init__(self, functions: dict[str, ast.FunctionDef], namespace: Mapping[str, Any]) -> None:
        self.functions = functions
        self.namespace = namespace

    def block(self, body: list[ast.stmt], constants: Mapping[str, Any], present: Mapping[str, bool]) -> list[ast.stmt]:
        """The statements with everything constant resolved."""
        result: list[ast.stmt] = []
        for node in body:
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                continue  # docstring
            if isinstance(node, ast.If):
                chosen = node.body if self._decide(node.test, constants, present) else node.orelse
                result += self.block(chosen, constants, present)
            elif (
                isinstance(node, ast.Expr)
                and isinstance(node.value, ast.Call)
                and isinstance(node.value.func, ast.Name)
            ):
                result += self._inline(node.value, node.value.func.id, constants, present)
            elif isinstance(node, ast.For):
                if node.orelse:
                    fail(node, "loops have no else")
                loop = ast.For(
                    node.target, node.iter, self.block(node.body, constants, present), [], lineno=node.lineno
                )
                result.append(ast.copy_location(loop, node))
            elif not isinstance(node, ast.Pass):
                copy = ast.parse(ast.unparse(node)).body[0] if constants else node
                result.append(_Bind(constants).visit(_relocate(copy, node)))
        return result

    def _decide(self, test: ast.expr, constants: Mapping[str, Any], present: Mapping[str, bool]) -> bool:
        names = {n.id for n in ast.walk(test) if isinstance(n, ast.Name)}
        unknown = names - constants.keys() - present.keys()
        if unknown:
            fail(
                test,
                f"conditions are decided at compile time, but {', '.join(sorted(unknown))} is not a constant",
            )
        code = compile(ast.fix_missing_locations(ast.Expression(test)), "<program>", "eval")
        return bool(eval(code, {"__builtins__": {"len": len}}, {**present, **constants}))

    def _inline(
        self, call: ast.Call, name: str, constants: Mapping[str, Any], present: Mapping[str, bool]
    ) -> list[ast.stmt]:
        function = self.functions.get(name)
        if function is None and callable(self.namespace.get(name)):
            function = _functions(self.namespace[name])[0][name]
        if function is None:
            fail(call, f"unknown function {name}(); define it beside the program")
        parameters = [a.arg for a in function.args.args[1:]]
        defaults = function.args.defaults[-len(parameters) :] if parameters else []
        values: list[ast.expr] = [_Bind(constants).visit(a) for a in call.args[1:]]
        values += defaults[len(defaults) - (len(parameters) - len(values)) :] if len(values) < len(parameters) else []
        if len(values) != len(parameters) or not all(isinstance(v, ast.Constant) for v in values):
            fail(call, f"{name}() takes the graph and {len(parameters)} constants: {', '.join(parameters)}")
        bound = {p: v.value for p, v in zip(parameters, values, strict=True) if isinstance(v, ast.Constant)}
        return self.block(function.body, bound, present)


def _relocate(copy: ast.stmt, original: ast.stmt) -> ast.stmt:
    """Give a re-parsed statement the line and columns of the original."""
    for new, old in zip(ast.walk(copy), ast.walk(original), strict=False):
        ast.copy_location(new, old)
    return copy
