"""Describes a function in program form and its declarations: which arrays it takes, and for which graphs."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from types import CodeType, FunctionType
from typing import Any

from torch import Tensor

from dacergnn.config import Config
from dacergnn.errors import ArrayError, ProgramError
from dacergnn.frontends import ProgramSource
from dacergnn.frontends.frontend import spec
from dacergnn.graph import HeteroGraph
from dacergnn.library_nodes.diagnostics import closest
from dacergnn.modules.elements import check_elements
from dacergnn.program.flatten import flatten
from dacergnn.program.infer import MEANING, Spaces, infer
from dacergnn.program.source import CONSTANT, read

Arrays = Sequence[Tensor | None]


class UserProgram:
    """Represents a program of a user, with declarations of some or all arrays.

    Args:
        source: A function of the graph, then arrays; parsed, never run. Arrays with the default None may be left out.
            Or the text of one, as `print_program` prints it.
        bindings: Declarations of arrays (``x="NS[64]"``) and constants, by name.
    """

    def __init__(self, source: FunctionType | str, bindings: Mapping[str, Any]) -> None:
        self.source = source
        self.name, parameters, mentioned = _in_text(source) if isinstance(source, str) else _in_function(source)
        if not parameters:
            raise ProgramError(f"{self.name}: a program takes the graph: def {self.name}(g, x, ...).")
        self.names = tuple(parameters)[1:]
        self.optional = frozenset(name for name, optional in parameters.items() if optional)
        self.bindings = dict(bindings)
        self._check_bindings(mentioned)
        self._spaces: dict[frozenset[str], Spaces] = {}

    def _check_bindings(self, mentioned: set[str]) -> None:
        known = mentioned | {n for d in self.bindings.values() for n in re.findall(r"\w+", str(d))}
        for name, value in self.bindings.items():
            if name not in known:
                raise ProgramError(
                    f"compile: {self.name} has no array and reads no constant {name!r}{_guess(name, known)}."
                )
            if not isinstance(value, CONSTANT) or (name in self.names and not isinstance(value, str | None)):
                form = 'a declaration like "NS[64]"' if name in self.names else "a number, text, truth value or tuple"
                raise ProgramError(f"compile: {name} is of type {type(value).__name__}; it must be {form}.")

    def spaces(self, absent: frozenset[str]) -> Spaces:
        """Returns row spaces and declared shapes for calls without the arrays ``absent``."""
        spaces = self._spaces.get(absent)
        if spaces is None:
            bindings = {**self.bindings, **dict.fromkeys(absent)}
            spaces = self._spaces[absent] = infer(flatten(self.source, bindings))
        return spaces

    def absent(self, arrays: Sequence[object]) -> frozenset[str]:
        """Returns the names of the arrays that are None."""
        return frozenset([n for n, a in zip(self.names, arrays, strict=True) if a is None])

    def arrange(self, args: Sequence[Any], kwargs: Mapping[str, Any], taken: Mapping[str, Any]) -> list[Any]:
        """Returns a value for each array: from the call, else from ``taken``, else None where that is allowed."""
        open_names = [n for n in self.names if n not in taken] if taken else self.names
        if len(args) > len(open_names):
            raise ArrayError(
                self.name,
                f"takes {len(open_names)} arrays besides the graph ({', '.join(open_names)}), not {len(args)}",
            )
        values = {**taken, **dict(zip(open_names, args, strict=False)), **kwargs}
        if len(values) < len(taken) + len(args) + len(kwargs):
            double = next(n for n in kwargs if n in taken or n in open_names[: len(args)])
            owner = "is a parameter of this module already" if double in taken else "is given twice"
            raise ArrayError(double, f"{owner}; leave it out")
        for name in kwargs:
            if name not in self.names:
                raise ArrayError(name, f"is no array of {self.name}{_guess(name, self.names)}")
        for name in open_names:
            if name not in values and name not in self.optional and self.bindings.get(name, "") is not None:
                raise ArrayError(name, f"is missing; {self.name} takes {', '.join(open_names)}")
        return [values.get(name) for name in self.names]

    def program(self, arrays: Arrays) -> ProgramSource:
        """Returns the program for arrays of these row shapes."""
        spaces = self.spaces(self.absent(arrays))
        specs: dict[str, str | None] = dict.fromkeys(self.names)
        for name, array in zip(self.names, arrays, strict=True):
            if array is not None:
                space = spaces.spaces[name]
                specs[name] = spec(space, *spaces.shapes.get(name, array.shape[len(LEADING.get(space, (space,))) :]))
        return ProgramSource(self.source, tuple(sorted({**self.bindings, **specs}.items())))

    def check(self, graph: HeteroGraph, arrays: Sequence[object], config: Config) -> None:
        """Raises ArrayError, with the name of the array, unless the arrays fit each other and the graph."""
        named: list[tuple[str, Any]] = [(n, a) for n, a in zip(self.names, arrays, strict=True) if a is not None]
        if not named:
            raise ArrayError("arrays", "are missing: a program needs one at least, which tells the element type")
        for name, array in named:
            if not isinstance(array, Tensor):
                hint = "; give constants to compile" if isinstance(array, int | float | str) else ""
                raise ArrayError(name, f"is a {type(array).__name__}; it must be a tensor{hint}")
            check_elements(name, array.dtype, config.implementation, graph.device.type)
            first, like = named[0]
            if array.dtype != like.dtype:
                raise ArrayError(name, f"has dtype {array.dtype}, but {first} has {like.dtype}; use .to({like.dtype})")
        spaces = self.spaces(self.absent(arrays))
        if graph.bipartite and spaces.prefixed:
            raise ArrayError(
                "graph",
                f"is bipartite, but {self.name} reads {spaces.prefixed[0]} at sources and at "
                "destinations, which are different nodes there; give each end an array of its own",
            )
        for name, array in named:
            self._check_rows(name, array, spaces, graph)

    def _check_rows(self, name: str, array: Tensor, spaces: Spaces, graph: HeteroGraph) -> None:
        space, actual = spaces.spaces[name], tuple(array.shape)
        rows = tuple([graph.size(s) for s in LEADING.get(space, (space,))])
        declared = spaces.shapes.get(name, actual[len(rows) :])
        if actual != (*rows, *declared):
            shape = ", ".join([*map(str, rows), *(map(str, declared) if name in spaces.shapes else ["..."])])
            counts = f", of which the graph has {' x '.join(map(str, rows))}" if rows else ""
            raise ArrayError(
                name, f"has shape {actual}, but its rows are {MEANING[space]}{counts}; it must have shape [{shape}]"
            )


LEADING: dict[str, tuple[str, ...]] = {"ONE": (), "RNS": ("R", "NS")}
"""Row spaces of the axes in front of the row shape; other row spaces have one axis, for their own rows."""


Reading = tuple[str, dict[str, bool], set[str]]
"""Name of a program, its parameters and whether they may be left out, and all names in it."""


def _in_function(function: FunctionType) -> Reading:
    parameters = inspect.signature(function).parameters.values()
    for parameter in parameters:
        if parameter.kind is not parameter.POSITIONAL_OR_KEYWORD or parameter.default not in (parameter.empty, None):
            raise ProgramError(
                f"{function.__name__}: {parameter} is no array; a program takes the graph and arrays, which may "
                "have the default None, and constants are keywords of compile."
            )
    declared = {n for d in function.__annotations__.values() for n in re.findall(r"\w+", str(d))}
    names = {p.name: p.default is None for p in parameters}
    return function.__name__, names, _mentioned(function.__code__) | declared


def _in_text(text: str) -> Reading:
    node = read(text).node
    return node.name, {a.arg: False for a in node.args.args}, set(re.findall(r"\w+", text))


def _mentioned(code: CodeType) -> set[str]:
    """Returns all names in a function."""
    names = {*code.co_names, *code.co_varnames, *code.co_freevars, *code.co_cellvars}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _mentioned(constant)
    return names


def _guess(name: str, known: Sequence[str] | set[str]) -> str:
    nearest = closest(name, known)
    return f"; perhaps {nearest} is meant" if nearest else ""
