"""Turns a function or text into one flat syntax tree: binds constants, decides `if`s, inlines called functions."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dacergnn.program.inline import Inliner, Scope, annotation
from dacergnn.program.source import CONSTANT, Source, read


@dataclass
class FlatProgram:
    """Holds a program as its arrays, its top-level loops and its return.

    Args:
        definition: The function as it was written.
        arrays: Declared arrays, name -> annotation.
        undeclared: Parameters that are neither declared nor bound.
        papers: Whether a row times a sliced matrix, ``e.src.x * W[e.etype]``, is their matrix product, as papers
            write it. This holds for functions that people write, not for text that compilers print.
    """

    definition: ast.FunctionDef
    arrays: dict[str, ast.expr]
    body: list[ast.stmt]
    undeclared: dict[str, ast.arg] = field(default_factory=dict[str, ast.arg])
    papers: bool = False

    @property
    def name(self) -> str:
        return self.definition.name


@dataclass(frozen=True)
class Activation:
    """Represents an element-wise operator that follows a program, such as ``Activation("leakyrelu", (0.2,))``."""

    name: str
    constants: tuple[float, ...] = ()
    _exact: tuple[str, ...] = field(init=False, repr=False)
    """The constants bit by bit, since 0.0 and -0.0 compare equal."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_exact", tuple([float(number).hex() for number in self.constants]))


def flatten(source: Source, bindings: Mapping[str, Any], then: Activation | None = None) -> FlatProgram:
    """Resolves everything that is known at compile time, and applies ``then`` to the rows of nodes that are returned.

    ``bindings`` holds array declarations like ``x="NS[64]"`` for the parameters of the program, None for
    a parameter that is not there, and constants by name. Other constants are found where Python would find them.
    """
    main = read(source)
    parameters = main.node.args.args[1:]
    names = [a.arg for a in parameters]
    constants = {k: v for k, v in bindings.items() if k not in names and isinstance(v, CONSTANT)}
    absent = {n: None for n in names if n in bindings and bindings[n] is None}
    present = [n for n in names if n not in absent]
    scope = Scope.of(main, {**constants, **absent}, present)
    arrays: dict[str, ast.expr] = {}
    undeclared: dict[str, ast.arg] = {}
    for parameter in parameters:
        declared = annotation(bindings.get(parameter.arg, parameter.annotation), parameter, scope)
        if declared is not None:
            arrays[parameter.arg] = declared
        elif parameter.arg not in absent:
            undeclared[parameter.arg] = parameter
    body = Inliner(main).block(main.node.body, scope)
    if then is not None:
        body[-1:] = [*_activated(body[-1], main.node.args.args[0].arg, then), body[-1]]
    return FlatProgram(main.node, arrays, body, undeclared, papers=not isinstance(source, str))


def _activated(returned: ast.stmt, graph: str, activation: Activation) -> list[ast.stmt]:
    """Returns loops that apply an activation to the results."""
    names = [n.id for n in ast.walk(returned) if isinstance(n, ast.Name)]
    arguments = "".join(f", {c!r}" for c in activation.constants)
    lines = [f'    n["{name}"] = {activation.name}(n["{name}"]{arguments})' for name in names]
    return ast.parse("\n".join([f"for n in {graph}.dst_nodes():", *lines])).body
