"""Records operations of an exported program, and makes programs of them, which the compiler fuses and vectorizes.

Operations on rows, such as `Linear`, norms and activations, and those along edges are recorded like those of a layer
(`frontends.symbolic`). Numbers stand for the sizes meanwhile, and tensors without numbers for the arrays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import sympy
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from dacergnn.config import Config
from dacergnn.deploy.network import (
    Array,
    Constant,
    Graph,
    RunProgram,
    ScatterRows,
)
from dacergnn.deploy.parts import EDGE_ROWS, Parts, label_of_array
from dacergnn.deploy.sizes import ONE, Size, size_of
from dacergnn.deploy.types import COMPUTED
from dacergnn.errors import ProgramError, UnsupportedCallError
from dacergnn.frontends import ProgramSource
from dacergnn.frontends.symbolic.edges import SIDES, EdgeSet, EndIndex, unseen
from dacergnn.frontends.symbolic.expr import Expr, Untranslatable, apply, const, unviewed
from dacergnn.frontends.symbolic.indexing import INDEXING
from dacergnn.frontends.symbolic.names import Names
from dacergnn.frontends.symbolic.record import apply_rule
from dacergnn.frontends.symbolic.row_sets import RowSet, RowSets
from dacergnn.frontends.symbolic.table import RULES
from dacergnn.frontends.symbolic.tape import Tape
from dacergnn.frontends.symbolic.trace import Trace
from dacergnn.frontends.symbolic.value import Node, Value
from dacergnn.graph.profile import TYPICAL
from dacergnn.modules.programs import compiled_program

_PROFILE = replace(TYPICAL, single_typed=True)


class _Surroundings:
    """Is the surroundings of a trace: nothing is computed while operations are recorded."""

    tape: Tape | None = None
    names: Names = Names()

    def elements(self, device: torch.device) -> tuple[torch.dtype, ...]:
        return COMPUTED

    def find_graph(self, edges: Any) -> Any:
        raise Untranslatable

    def run(self, program: Any, graph: Any, arrays: Any) -> Any:
        raise Untranslatable


class _AllRows(RowSets):
    """Has a program for all rows, few or many."""

    def find(self, node: Node, device: torch.device, tape: Tape | None) -> RowSet | None:
        rows = node.shape[0]
        return None if node.expr.uniform else self._known.setdefault(rows, RowSet(rows, device))


class Recorder(Trace):
    """Records the operations of one exported program.

    Args:
        parts: Takes the steps.
    """

    joins_relations: ClassVar[bool] = False

    def __init__(self, parts: Parts) -> None:
        super().__init__(_Surroundings())
        self._row_sets = _AllRows()
        self._parts, self._config = parts, parts.config or Config(tune="off")
        self._numbers: dict[Any, int] = {}
        self._sizes: dict[int, Size] = {}
        self._stand_ins: dict[Array, Tensor] = {}
        self._arrays: dict[int, Array] = {}
        self._sorted: dict[int, tuple[Graph, Array]] = {}
        """Rows of edges in the order of their graph, by the ids of what stands for them in the order of the user."""
        self._held: list[Tensor] = []  # so that ids of tensors stay their own
        self.label = ""
        """The place in the model of what is read."""

    # What stands for sizes and arrays

    def number(self, size: Any) -> int:
        """Returns a number that stands for a size; different sizes have different numbers."""
        expr = self._parts.known_size(size if isinstance(size, sympy.Expr) else size_of(size))
        for symbol in expr.free_symbols:
            if symbol not in self._numbers:
                self._numbers[symbol] = int(sympy.nextprime(10**5 + 10**3 * len(self._numbers)))
        made = int(expr.subs([*self._numbers.items()]))  # pyright: ignore[reportArgumentType]
        known = self._sizes.setdefault(made, expr) if expr.free_symbols else self._sizes.get(made, expr)
        if known != expr:
            raise Untranslatable  # two sizes by chance have one number
        return made

    def _size(self, number: int) -> Size:
        return self._sizes.get(number, sympy.Integer(number))

    def _nothing(self, array: Array) -> Tensor:
        """Returns a tensor without numbers: what is made of it, other than a value, shows that it is no constant."""
        made = torch.full((), math.nan, dtype=array.dtype).expand(*map(self.number, array.shape))
        self._held.append(made)
        return made

    def stand_in(self, array: Array) -> Any:
        """Returns what stands for an array: the tensor of a constant, or a value without numbers."""
        if isinstance(array, Constant):
            self._arrays.setdefault(id(array.value), array)
            return array.value
        if array.dtype not in COMPUTED or not array.shape:
            raise Untranslatable
        if array not in self._stand_ins:
            made = self._stand_ins[array] = self._nothing(array)
            self._arrays[id(made)] = array
        return self.value(self._stand_ins[array])

    def integers(self, size: Any) -> Tensor:
        """Returns what stands for integers, one for each edge or node; different ones differ."""
        self._held.append(torch.full((self.number(size),), len(self._held)))
        return self._held[-1]

    def set_integers(self, stand_in: Tensor, array: Array) -> None:
        """Tells for which array integers stand."""
        self._arrays[id(stand_in)] = array

    def array(self, value: Value) -> Array:
        """Returns the array of a value in its own order, by a step that computes it if there is none yet."""
        if value.dtype != value.node.elements:
            raise Untranslatable
        expr = unviewed(value.node.expr)
        rows = self._size(value.shape[0])
        if expr.op == "const":
            return self._parts.filled(float(expr.data[0]), value.dtype, rows, *map(sympy.Integer, value.shape[1:]))
        if expr.op != "leaf" or expr.uniform:
            if expr.uniform:  # all rows are written
                zeros = self.stand_in(self._parts.filled(0, value.dtype, rows))
                value.node.expr = apply("add", zeros.node.expr, expr)
            self.materialise([value.node])
            expr = unviewed(value.node.expr)
        return self._array(expr)

    # Recording

    def call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Returns the value of a function, a tuple of them for several results.

        Raises:
            Untranslatable: The function has no form in a program.
        """
        with _Functions(self):
            return function(*args, **kwargs)

    def constant(self, number: float, shape: Sequence[int], dtype: torch.dtype) -> Value:
        """Returns rows of one number."""
        return self.record(const(number), torch.Size(shape), dtype)

    # Steps

    def compute(self, values: Sequence[Value]) -> None:
        """Computes the values that wait, by few programs."""
        waiting = [v.node for v in values if unviewed(v.node.expr).op != "leaf" and not v.node.expr.uniform]
        self.materialise(waiting)

    def _compute(self, edges: EdgeSet | RowSet, nodes: list[Node]) -> None:
        with unseen():
            self._run(edges, nodes)

    def _replay(self, node: Node) -> Tensor:
        raise Untranslatable

    def run_program(
        self, program: ProgramSource, edges: EdgeSet | RowSet, leaves: Sequence[Expr], spaces: Sequence[str],
        outputs: Sequence[tuple[int, str]],
    ) -> list[Tensor]:  # fmt: skip
        graph = rows = None
        if isinstance(edges, RowSet):
            rows = self._size(edges.rows)
            sizes = {"NS": rows, "ND": rows, "ONE": ONE}
        else:
            graph = self._graph(edges)
            sizes = graph.rows
        arrays = [self._input(leaf, space, graph) for leaf, space in zip(leaves, spaces, strict=True)]
        compiled = compiled_program(program, arrays[0].dtype, torch.int32, self._config, _PROFILE)
        try:
            inputs, results = dict(zip(compiled.inputs, arrays, strict=True)), compiled.result_rows
        except ProgramError as error:
            raise UnsupportedCallError(f"{self.label}: {error.message}") from error
        if any(size in self._sizes for leaf in leaves for size in leaf.shape):
            raise UnsupportedCallError(_MATRIX.format(self.label))
        made = [self._parts.new_array(compiled.dtype, sizes[space], *map(sympy.Integer, row)) for space, row in results]
        self._parts.steps.append(RunProgram(compiled, graph, rows, inputs, made, self.label))
        return [self._result(made[position], space, graph) for position, space in outputs]

    def _result(self, array: Array, space: str, graph: Graph | None) -> Tensor:
        made = self._nothing(array)
        if graph is not None and space == "E":
            self._sorted[id(made)] = graph, array
        else:
            self._arrays[id(made)] = array
        return made

    def _input(self, leaf: Expr, space: str, graph: Graph | None) -> Array:
        if graph is None or (leaf.op == "leaf" and space != "E"):
            return self._array(leaf)
        data: tuple[Any, ...] = leaf.data
        if leaf.op == "degree":
            return self._parts.degrees(graph, SIDES.index(data[0]), data[1])
        if leaf.op != "leaf":
            return self._parts.edge_weights(graph, leaf.op, data[0])
        known = self._sorted.get(id(leaf.tensor))
        if known is not None and known[0] is graph:
            return known[1]
        rows = self._array(leaf)
        made = self._parts.new_array(rows.dtype, *rows.shape)
        position = self._parts.edge_row(graph, EDGE_ROWS.index("position"))
        self._parts.gather(made, rows, position, self.label)
        return made

    def _array(self, leaf: Expr) -> Array:
        tensor = leaf.tensor
        assert tensor is not None
        known = self._arrays.get(id(tensor))
        if known is None and id(tensor) in self._sorted:
            known = self._arrays[id(tensor)] = self._in_order(*self._sorted[id(tensor)])
        if known is None:
            if bool(tensor.isnan().any()):
                raise UnsupportedCallError(_MATRIX.format(self.label))
            # Held, so that no other tensor gets its id.
            self._held.append(tensor)
            known = self._arrays[id(tensor)] = self._parts.constant(tensor, "folded")
        return known

    def _in_order(self, graph: Graph, array: Array) -> Array:
        """Returns rows of edges in the order of the user."""
        position = self._parts.edge_row(graph, EDGE_ROWS.index("position"))
        zeros = self._parts.filled(0, array.dtype, *array.shape)
        made = self._parts.new_array(array.dtype, *array.shape)
        self._parts.steps.append(ScatterRows(made, zeros, position, array, "sum", include=False, label=self.label))
        return made

    def _graph(self, edges: EdgeSet) -> Graph:
        """Returns the graph of some edges, by a step that sorts them if there is none yet."""
        found = [self._arrays.get(id(tensor)) for tensor in edges.tensors]
        src, dst, *own_types = [array for array in found if array is not None]
        if None in found:
            raise UnsupportedCallError(f"{self.label}: edges are read before they are computed.")
        types = edges.rows.get("etype") or 1
        if types in self._sizes:
            raise UnsupportedCallError(f"{self.label}: the number of types of edges is open.")
        sources, destinations = map(self._size, edges.sizes)
        both, label = self._parts.joined([src, dst], self.label), label_of_array(src, self.label)
        return self._parts.sorted_edges(both, (sources, destinations, types, 1), label, *own_types)


_MATRIX = (
    "{}: a matrix that the model computes, or a weight that is NaN, has no form in a C library here. Use a layer of "
    "docs/deployment.md in its place, or export the program with torch.export."
)


class _Functions(torch.overrides.TorchFunctionMode):
    """Records functions of values and of ends of edges by their rules alone: nothing falls back to torch."""

    def __init__(self, trace: Recorder) -> None:
        super().__init__()
        self._trace = trace

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        leaves = tree_leaves((args, kwargs))
        values = [a for a in leaves if type(a) is Value]
        ends = any(isinstance(a, EndIndex) for a in leaves)
        if not (values or ends) or func in (Tensor.dim, Tensor.size) or func.__name__ == "__get__":
            return func(*args, **kwargs)
        if ends and values:
            self._trace.begin_anew([v for v in values if not v.node.expr.on_edges])
        if (rule := RULES.get(func)) is not None and not ends:
            return apply_rule(self._trace, rule, func, args, kwargs, values)
        handler = INDEXING.get(func)
        made = None if handler is None else handler(self._trace, *args, **kwargs)
        if made is None:
            raise Untranslatable
        return made
