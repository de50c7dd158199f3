"""A target whose programs run in NumPy: all that surrounds kernels is that of a real build, and nothing is compiled.

Plans, arguments, encodings, memory and the arrays that share it are those of "cpu". Statements run one after the other
over all rows, in float64; arrays that a kernel stores have the elements that it stores.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import dace
import ml_dtypes
import networkx as nx
import numpy as np
from dace.sdfg import nodes

from dacergnn.graph.spaces import is_encoding
from dacergnn.library_nodes.access import index_name, pure_encodings
from dacergnn.library_nodes.form import Ref, Shape, Statement
from dacergnn.library_nodes.node import GraphOperator, row_shape, row_space
from dacergnn.library_nodes.parse import parse_statement, view_shape
from dacergnn.library_nodes.plan import OperatorPlan
from dacergnn.library_nodes.targets import register
from dacergnn.library_nodes.targets.cpp import cpp_tasklet
from dacergnn.program.interpret import Indices, evaluate
from dacergnn.runtime.executable import Executable
from dacergnn.target import TARGETS, find

_TYPES: dict[str, Any] = {
    "float32": np.float32,
    "float64": np.float64,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "int32": np.int32,
    "int64": np.int64,
}


def _with_indices(plan: OperatorPlan, body: Any) -> Any:
    """The plan of a kernel that reads the list of every map as well."""
    indices = [name for statement in body.statements for name in pure_encodings(statement)]
    return replace(plan, encodings=tuple(dict.fromkeys([*plan.encodings, *indices])))


def _plan_nest(body: Any, schedule: Any) -> Any:
    return _with_indices(find("cpu").plan_nest(body, schedule), body)


def _plan_gemm(body: Any, schedule: Any) -> Any:
    return _with_indices(find("cpu").plan_gemm(body, schedule), body)


def _expand(operators: Sequence[GraphOperator], arrays: Sequence[Mapping[str, Any]]) -> nodes.Tasklet:
    """A tasklet whose code is a description of an operator."""
    (operator,), (own,) = operators, arrays
    description = {
        "statements": [[s.space, text] for s, text in zip(operator.statements, operator.body, strict=True)],
        "arrays": {name: [row_space(d), row_shape(d), d.dtype.to_string()] for name, d in own.items()},
        "locals": list(operator.locals),
        "schedule": {name: str(value) for name, value in operator.knobs.items()},  # arguments, where calls choose
    }
    return cpp_tasklet(operators, own, json.dumps(description))


def _generate(sdfg: dace.SDFG) -> str:
    """The descriptions of all operators, a line each."""
    (state,) = sdfg.states()
    ordered = nx.topological_sort(state.nx)
    return "\n".join(node.code.as_string for node in ordered if isinstance(node, nodes.Tasklet))


_TARGET = replace(
    find("cpu"),
    name="interpreted",
    plan_nest=_plan_nest,
    plan_gemm=_plan_gemm,
    expand=_expand,
    generate=_generate,
    executable=f"{__name__}:InterpretedExecutable",
    call="",
)


def set_default(name: str) -> None:
    """Makes a target that of processors, "cpu" or "interpreted"; the latter is known only meanwhile."""
    if name not in ("cpu", "interpreted"):
        raise ValueError(f'DACERGNN_TEST_TARGET is "{name}"; set it to cpu or interpreted.')
    others = {known: target for known, target in TARGETS.items() if known != "interpreted"}
    TARGETS.clear()
    if name == "interpreted":
        register(_TARGET)
    TARGETS.update(others)


@dataclass(frozen=True)
class _Operator:
    statements: tuple[Statement, ...]
    arrays: Mapping[str, tuple[str, Shape, str]]
    local_arrays: tuple[str, ...]

    @staticmethod
    def of(text: str) -> _Operator:
        read = json.loads(text)
        return _Operator(
            tuple(parse_statement(statement, space) for space, statement in read["statements"]),
            {name: (space, tuple(shape), dtype) for name, (space, shape, dtype) in read["arrays"].items()},
            tuple(read["locals"]),
        )


class InterpretedExecutable(Executable):
    """Runs the operators of a program on the memory whose addresses a compiled program would get."""

    @staticmethod
    def build(programs: Sequence[tuple[str, str]], architectures: tuple[int, ...]) -> None:
        """Builds nothing."""

    def _open(self, code: str) -> Any:
        self._operators = [_Operator.of(line) for line in code.splitlines()]
        return None

    def _initialize(self, library: Any) -> int:
        return 0

    def _load(self, library: Any) -> None:
        self._function = self._call
        self._read_and_call = lambda *_: False  # the addresses of tensors are then written to the arguments first

    def _call(self, address: int) -> None:
        """Runs the call whose arguments are at an address."""
        arguments = (ctypes.c_int64 * (self.end + self._tail)).from_address(address)
        _stack_parts(address + 8 * self.end)
        values = dict(zip(self.lowered.signature, arguments[1 : self.end], strict=True))
        with np.errstate(all="ignore"):
            for operator in self._operators:
                _Call(operator, values).run()


class _Call:
    """Runs an operator with the arguments of a call; it tells the statements what they need to know."""

    def __init__(self, operator: _Operator, arguments: Mapping[str, int]) -> None:
        self._operator = operator
        self._arguments = arguments

    def space(self, name: str) -> str:
        return self._operator.arrays[name][0]

    def shape(self, ref: str | Ref) -> Shape:
        if isinstance(ref, str):
            return self._operator.arrays[ref][1]
        return view_shape(ref, self._operator.arrays[ref.name][1])

    def size(self, space: str) -> int:
        return 1 if space == "ONE" else self._arguments[space]

    def index(self, space: str, path: str) -> Indices:
        name = index_name(space, path)
        assert name is not None
        return self._memory(name, (self.size(space),), self._operator.arrays[name][2])

    def run(self) -> None:
        """Reads all inputs first, since kernels may write over arrays that they read."""
        operator = self._operator
        written = dict.fromkeys(statement.target.name for statement in operator.statements)
        values = {n: self._array(n).astype(np.float64) for n in operator.arrays if not (n in written or is_encoding(n))}
        for statement in operator.statements:
            name = statement.target.name
            values[name] = evaluate(statement, self, values).astype(self._type(name)).astype(np.float64)
        for name in written:
            if name not in operator.local_arrays:
                self._array(name)[...] = values[name]

    def _type(self, name: str) -> Any:
        return _TYPES[self._operator.arrays[name][2]]

    def _array(self, name: str) -> Any:
        space, shape, dtype = self._operator.arrays[name]
        return self._memory(name, (self.size(space), *shape), dtype)

    def _memory(self, name: str, shape: Shape, dtype: str) -> Any:
        """An array in the memory that the argument of its name points to."""
        element = np.dtype(_TYPES[dtype])
        if prod(shape) == 0:
            return np.empty(shape, element)
        memory = (ctypes.c_char * (prod(shape) * element.itemsize)).from_address(self._arguments[name])
        return np.frombuffer(memory, element).reshape(shape)


def _stack_parts(tail: int) -> None:
    """Joins the parts of arrays in the workspace, as `packed_call.h` does."""
    pieces, workspace = (ctypes.c_int64 * 2).from_address(tail)
    count = ctypes.c_int64.from_address(pieces).value if pieces else 0
    for i in range(count):
        part, start, to, size = (ctypes.c_int64 * 4).from_address(pieces + 8 + 32 * i)
        source = ctypes.c_int64.from_address(tail + 16 + 8 * part).value
        ctypes.memmove(workspace + to, source + start, size)
