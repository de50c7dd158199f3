"""Lifting: a `@dace.program` of graph operators and NumPy-style code becomes one program in program form.

Maps over all rows of a row space with an element-wise body, sums over the last axis, products with a matrix and
copies become statements. The passes and differentiation then see the whole function.
"""

from __future__ import annotations

from typing import Any, NoReturn

import dace
from dace.sdfg import nodes
from dace.sdfg.utils import dfs_topological_sort

from dacergnn.errors import UnsupportedCallError
from dacergnn.frontends.dace_program.idioms import named
from dacergnn.frontends.dace_program.tasklets import UntranslatableCode, tasklet_expression
from dacergnn.graph.spaces import ROW_SPACES
from dacergnn.library_nodes import GraphOperator
from dacergnn.library_nodes.form import Expr, Op, Ref, Shape, Statement, size
from dacergnn.library_nodes.node import PREFIX, Typeclass, row_shape, row_space
from dacergnn.library_nodes.place import Place, at
from dacergnn.program import print_program
from dacergnn.program.listing import Listing, map_refs
from dacergnn.program.names import name_problem


def lift(sdfg: dace.SDFG, name: str) -> str:
    """Returns a simplified SDFG of DaCe's Python front end in program form, as the text of a function ``name``.

    Raises:
        UnsupportedCallError: The SDFG does something that the program form cannot express.
    """
    return _Lifting(sdfg, name).run()


class _Lifting:
    def __init__(self, sdfg: dace.SDFG, name: str) -> None:
        self.sdfg = sdfg
        self.name = name
        self.listing = Listing()
        self.current: dict[str, str] = {}
        """Arrays of the SDFG -> the arrays of the listing that hold their current values."""
        self.dtypes: set[Typeclass] = set()
        self.place: Place | None = None
        """The place in the user's function of the node that becomes a statement."""

    def run(self) -> str:
        blocks = list(self.sdfg.nodes())
        if len(blocks) != 1 or not isinstance(blocks[0], dace.SDFGState):
            kinds = ", ".join(sorted({type(b).__name__ for b in blocks}))
            raise UnsupportedCallError(f"{self.name}: loops and branches ({kinds}) have no program form.")
        self.state: Any = blocks[0]
        written = {n.data for n in self.state.data_nodes() if self.state.in_degree(n) > 0}
        for name in self._arguments():
            if name not in written:
                self.listing.inputs = (*self.listing.inputs, self._declare(name))
        for node in dfs_topological_sort(self.state):
            if self.state.entry_node(node) is None:
                self._node(node)
        results = [name for name in self._arguments() if name in written]
        if not results:
            raise UnsupportedCallError(f"{self.name} returns nothing; end it with a return.")
        self.listing.outputs = tuple(map(self._result, results))
        if len(self.dtypes) != 1:
            kinds = ", ".join(sorted(map(str, self.dtypes)))
            raise UnsupportedCallError(f"{self.name} mixes element types ({kinds}); a program has one.")
        self.listing.settle()
        return print_program(self.listing.build(self.name, self.dtypes.pop()))

    def _arguments(self) -> list[str]:
        """Returns non-transient arrays in the order of the signature; results come last, __return_2 before _10."""
        known = [n for n in self.sdfg.arg_names if n in self.sdfg.arrays]
        others = [n for n, desc in self.sdfg.arrays.items() if not desc.transient and n not in known]
        return known + sorted(others, key=lambda n: (len(n), n))

    def _declare(self, data: str) -> str:
        desc = self.sdfg.arrays[data]
        self.dtypes.add(desc.dtype)
        problem = name_problem(data)
        wanted = data if problem is None else "out" if data.startswith("__return") else f"v{data}".replace("__", "_")
        self.current[data] = self.listing.add(wanted, *self._rows(data))
        return self.current[data]

    def _rows(self, data: str) -> tuple[str, Shape]:
        """Returns row space and row shape of an array; an array without rows of a graph is one row."""
        desc: Any = self.sdfg.arrays[data]
        if isinstance(desc, dace.data.Scalar):
            return "ONE", ()
        try:
            if row_space(desc) in ROW_SPACES:
                return row_space(desc), row_shape(desc)
            return "ONE", tuple(int(extent) for extent in desc.shape)
        except TypeError as error:
            raise UnsupportedCallError(
                f"{self.name}: {data} has the shape {tuple(desc.shape)}; only the first dimension may be "
                "symbolic, one of the row spaces of dacergnn.ops."
            ) from error

    def _result(self, data: str) -> str:
        name = self.current[data]
        if self.listing.producer(name) is not None and name not in self.listing.outputs:
            return name
        space, shape = self._rows(data)  # an argument that is returned as it is
        copy = self.listing.add("out", space, shape)
        self.listing.statements.append(Statement(space, Ref(copy), "=", self._ref(data, space)))
        return copy

    # Nodes to statements

    def _node(self, node: nodes.Node) -> None:
        self.place = Place.of_debuginfo(getattr(node, "debuginfo", None))
        match node:
            case nodes.AccessNode():
                for edge in self.state.in_edges(node):
                    if isinstance(edge.src, nodes.AccessNode):
                        self._copy(edge)
            case GraphOperator():
                self._operator(node)
            case nodes.MapEntry():
                self._map(node)
            case nodes.MapExit():
                pass
            case nodes.LibraryNode() if type(node).__name__ == "Reduce":
                self._reduce(node)
            case nodes.LibraryNode() if type(node).__name__ == "MatMul":
                self._product(node)
            case _:
                self._refuse(node, f"{type(node).__name__} has no program form")

    def _operator(self, node: GraphOperator) -> None:
        data = {e.dst_conn.removeprefix(PREFIX): e.data.data for e in self.state.in_edges(node) if e.dst_conn}
        written = {e.src_conn.removeprefix(PREFIX): e.data.data for e in self.state.out_edges(node) if e.src_conn}
        for statement in node.statements:
            expr = map_refs(statement.expr, lambda r: Ref(self.current[data[r.name]], r.path, r.view, r.transposed))
            target = statement.target
            name = self._declare(written[target.name])
            self.listing.statements.append(
                Statement(statement.space, Ref(name, target.path, target.view), statement.op, expr, self.place)
            )

    def _map(self, entry: nodes.MapEntry) -> None:
        inside = [n for n in self.state.scope_children()[entry] if not isinstance(n, nodes.MapExit)]
        if len(inside) != 1 or not isinstance(inside[0], nodes.Tasklet):
            self._refuse(entry, "maps hold one tasklet")
        tasklet = inside[0]
        outputs = self.state.out_edges(tasklet)
        if tasklet.language != dace.Language.Python or len(outputs) != 1 or outputs[0].data.wcr is not None:
            self._refuse(tasklet, "tasklets assign one value, in Python")
        target = outputs[0].data
        space, _ = self._rows(target.data)
        ranges = [str(r) for r in entry.map.range.size()]
        if ranges != [str(extent) for extent in self.sdfg.arrays[target.data].shape]:
            self._refuse(entry, "maps run over whole arrays")
        indices = list(entry.map.params)
        if self._index(target) != indices:
            self._refuse(tasklet, "results are stored at the place that is computed")
        operands = {e.dst_conn: self._operand(e.data, indices, tasklet) for e in self.state.in_edges(tasklet)}
        try:
            expr = tasklet_expression(tasklet.code.as_string, operands)
        except UntranslatableCode as reason:
            self._refuse(tasklet, f"{reason} has no program form")
        self._assign(space, target.data, named(expr, self.listing.producer))

    def _operand(self, memlet: Any, indices: list[str], node: nodes.Node) -> Ref:
        """Returns the row of an array that an element belongs to; axes of one element are left out."""
        space, shape = self._rows(memlet.data)
        index = self._index(memlet)
        rows = 0 if space == "ONE" and len(index) == len(shape) else 1
        kept = [(i, extent) for i, extent in zip(index[rows:], shape, strict=True) if i != "0" or extent != 1]
        same_row = space == "ONE" or index[0] == indices[0]
        if not same_row or [i for i, _ in kept] != indices[1 : 1 + len(kept)]:
            self._refuse(node, f"{memlet.data}[{', '.join(index)}] is no row of the loop, aligned with its first axes")
        view = tuple(extent for _, extent in kept)
        return Ref(self.current[memlet.data], "one" if space == "ONE" else "", None if view == shape else view)

    def _index(self, memlet: Any) -> list[str]:
        return [str(low) if low == high else f"{low}:{high}" for low, high, _ in memlet.subset.ndrange()]

    def _reduce(self, node: Any) -> None:
        source, target = self.state.in_edges(node)[0].data.data, self.state.out_edges(node)[0].data.data
        space, shape = self._rows(source)
        last = [len(shape)]
        if dace.frontend.operations.detect_reduction_type(node.wcr) != dace.ReductionType.Sum or node.axes != last:
            self._refuse(node, "rows are reduced by a sum over their last axis")
        self._assign(space, target, self._sum(self._ref(source, space)))

    def _sum(self, rows: Ref) -> Expr:
        """Returns the sum of rows over their last axis; for products a dot product, which passes are able to move."""
        made = self.listing.producer(rows.name)
        factors = made.expr.args if made is not None and isinstance(made.expr, Op) and made.expr.name == "mul" else ()
        if factors and all(isinstance(f, Ref) and self.listing.shape(f) == self.listing.shape(rows) for f in factors):
            return Op("dot_prd", factors)
        return Op("sum", (rows,))

    def _product(self, node: Any) -> None:
        operands = {e.dst_conn: e.data.data for e in self.state.in_edges(node)}
        x, w = operands["_a"], operands["_b"]
        (space, shape), (weight_space, weight_shape) = self._rows(x), self._rows(w)
        if space == "ONE" or weight_space != "ONE" or len(shape) != 1 or len(weight_shape) != 2:
            self._refuse(node, f"products are those of rows [{space}, K] with one matrix [K, M]")
        target = self.state.out_edges(node)[0].data.data
        self._assign(space, target, Op("linear", (self._ref(x, space), Ref(self.current[w], "one"))))

    def _copy(self, edge: Any) -> None:
        """Assigns a whole array to another one with as many elements in a row."""
        source, target = edge.src.data, edge.dst.data
        (space, shape), (goal, wanted) = self._rows(source), self._rows(target)
        whole = edge.data.num_elements() == self.sdfg.arrays[edge.data.data].total_size
        if space != goal or size(shape) != size(wanted) or not whole:
            self._refuse(edge.dst, f"{source} is copied in part, or into rows of another kind")
        path = "one" if space == "ONE" else ""
        self._assign(space, target, Ref(self.current[source], path, None if shape == wanted else wanted))

    def _ref(self, data: str, space: str) -> Ref:
        return Ref(self.current[data], "one" if space == "ONE" else "")

    def _assign(self, space: str, data: str, expr: Expr) -> None:
        self.listing.statements.append(Statement(space, Ref(self._declare(data)), "=", expr, self.place))

    def _refuse(self, node: Any, reason: str) -> NoReturn:
        with at(Place.of_debuginfo(getattr(node, "debuginfo", None))):
            raise UnsupportedCallError(f"{self.name}: {node.label}: {reason}.")
