"""One traced call: the values recorded in it, and their evaluation by compiled programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from dacergnn.errors import UnsupportedCallError
from dacergnn.frontends.features import is_sparse, is_sparse_matrix
from dacergnn.frontends.frontend import ProgramSource, in_shape
from dacergnn.frontends.symbolic.callers import caller_text, find_caller
from dacergnn.frontends.symbolic.edges import EdgeSet, plain, unseen
from dacergnn.frontends.symbolic.expr import (
    Expr,
    Several,
    Untranslatable,
    check_unwritten,
    has_gradient,
    is_over_several,
    needs_edges,
    reached,
    settle,
    squeezed,
    unviewed,
    with_gradients,
)
from dacergnn.frontends.symbolic.inputs import input_array, input_origin
from dacergnn.frontends.symbolic.notes import Notes, transforms
from dacergnn.frontends.symbolic.region import region
from dacergnn.frontends.symbolic.relation_sums import parts_by_edges, summed_over_relations
from dacergnn.frontends.symbolic.row_sets import RowSet, RowSets
from dacergnn.frontends.symbolic.runtime import Runtime
from dacergnn.frontends.symbolic.sizes import number
from dacergnn.frontends.symbolic.value import CLONES, Node, Value, replaced, values_in
from dacergnn.graph.checks import has_kernels
from dacergnn.library_nodes.form import GEMM_OPERATORS

is_alias_of: Any = torch._C._is_alias_of  # pyright: ignore[reportAttributeAccessIssue, reportPrivateUsage]
_WITHOUT_MEMORY = (Tensor, tuple, list, int, float, bool, complex, str, type(None), torch.Size)
"""Types of results of torch that lead to no memory but that of tensors in them; arrays of NumPy do."""
_LARGE = 200
"""Limits the operations of a program: a gather behind as many begins another one.

A compiler takes about 10 s for as many, three layers of attention, and deep models repeat programs of this size.
"""


class Trace(Notes):
    """Holds everything that is recorded during one call.

    Functions that the program form expresses are recorded. Other functions of values of nodes run in torch, after
    their arguments have been computed.
    """

    joins_relations: ClassVar[bool] = True
    """Tells whether sums over several sets of edges wait, to become one program."""

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime.tape)
        self.runtime = runtime
        self.transforms = transforms()
        self._leaves: dict[tuple[int, str], Expr] = {}
        self._edge_sets: dict[tuple[int, bool], EdgeSet] = {}
        self._row_sets = RowSets()
        self._own: dict[int, Tensor] = {}
        self.parted: dict[tuple[int, int], tuple[Tensor, Value]] = {}
        """Holds what stands for tensors [..., N, F], by their ids and versions, each with its tensor."""

    # Inputs

    def exposes(self, value: Value, result: Any) -> None:
        """Notes that a result of torch shares the memory of a value, if it does."""
        real = value.node.real
        if real is None or self.given(real):  # arguments have the same memory in the original
            return
        parts = result if isinstance(result, tuple | list) else (result,)
        tensors = [part for part in parts if isinstance(part, Tensor)]
        if any(is_alias_of(tensor, real) for tensor in tensors) or type(result) not in _WITHOUT_MEMORY:
            value.expose()

    def alone(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Calls a function on tensors that hold numbers, as one step: what it does within is not noted."""
        args, kwargs = self.results(args), self.results(kwargs)
        with unseen():
            return self.torch(function, *args, **kwargs)

    def takes(self, dtype: torch.dtype) -> bool:
        """Returns whether programs compute with elements of a type on the call's device."""
        return has_kernels(self.device) and dtype in self.runtime.elements(self.device)

    def leaf(self, tensor: Tensor, kind: str, shape: torch.Size) -> Expr:
        """Returns the leaf for a tensor that exists: a row for each node or edge ("row"), or one row ("one")."""
        key = (id(tensor), kind)
        expr = self._leaves.get(key)
        if expr is None:  # holds the tensor, so that the id stays its own
            expr = self._leaves[key] = Expr("leaf", (), (kind,), squeezed(shape), tensor)
        return expr

    def value(self, tensor: Tensor) -> Value:
        """Returns a value that stands for a tensor with one row for each node or edge."""
        self.place(tensor.device)
        if not self.takes(tensor.dtype):
            *most, last = map(str, self.runtime.elements(tensor.device))
            raise UnsupportedCallError(
                f"a tensor of {tensor.dtype} on {tensor.device}; compiled layers take {', '.join(most)} or {last} "
                "there; convert it with .float()."
            )
        shape = self.shape(tensor)
        return Value(self, Node(self.leaf(tensor, "row", shape), shape, tensor.dtype, (), tensor))

    def own_value(self, tensor: Tensor) -> Value:
        """Returns a value that stands for a tensor that the call has made, and that nothing else leads to."""
        self._own[id(tensor)] = tensor
        return self.value(tensor)

    def is_own(self, tensor: Tensor | None) -> bool:
        """Returns whether nothing but values leads to a tensor, so that its memory need not change with these."""
        return tensor is None or id(tensor) in self._own

    def wrap(self, tree: Any) -> Any:
        """Replaces floating-point tensors in tuples, lists and dictionaries with values, also sparse matrices."""
        if isinstance(tree, Value):
            return tree
        if isinstance(tree, Tensor):
            if id(tree) not in self._arguments:
                takes = type(tree) in (Tensor, torch.nn.Parameter) and tree.is_floating_point() and tree.dim() > 0
                wrapped = self.value(tree) if takes and (not is_sparse(tree) or is_sparse_matrix(tree)) else tree
                self._arguments[id(tree)] = tree, wrapped
            return self._arguments[id(tree)][1]
        if type(tree) in (tuple, list):
            return type(tree)([self.wrap(v) for v in tree])
        if type(tree) is dict:
            return {k: self.wrap(v) for k, v in tree.items()}
        return tree

    def record(
        self, expr: Expr, shape: torch.Size, dtype: torch.dtype, call: tuple[Any, ...] = (), like: Value | None = None
    ) -> Value:
        """Returns a value that is computed from others; it has no gradient where torch records none.

        Args:
            call: Function, arguments with nodes for values, keywords, and position of the result (None: the only one).
            like: The value whose memory it would share.
        """
        tracked = torch.is_grad_enabled()
        if tracked and not self.grad:
            raise UnsupportedCallError(
                f"gradients are turned on within a call that has none ({caller_text()}); a program has the call's."
            )
        if self.grad and not tracked and expr.op not in ("const", "detach"):
            expr = Expr("detach", (expr,), (), expr.shape)
        expr.caller = expr.caller or find_caller()
        node = Node(expr, shape, dtype, (*call, tracked))
        return Value(self, node, None if like is None else like.aliases)

    def written(self, tensor: Tensor, shape: torch.Size) -> Node:
        """Returns a new node for a tensor that was written to; programs that use its earlier leaf raise an error.

        Args:
            shape: The shape of what was written to, whose sizes may be known.
        """
        self._tie(tensor, shape)
        expr = self._leaves[id(tensor), "row"] = Expr("leaf", (), ("row",), squeezed(tensor.shape), tensor)
        return Node(expr, self.shape(tensor), tensor.dtype, (), tensor)

    def _tie(self, tensor: Tensor, shape: torch.Size) -> None:
        """Notes that a tensor has sizes that may be known."""
        if self.tape is not None and [*tensor.shape] == [*map(number, shape)]:
            self.tape.tie(tensor, dict(enumerate(shape)))

    def edge_set(self, edge_index: Tensor, flipped: bool = False) -> EdgeSet:
        """Returns the edges that an edge index [2, E] holds; it is the same object for the same tensor."""
        key = (id(edge_index), flipped)
        edges = self._edge_sets.get(key)
        if edges is None or not edges.unwritten:
            self.place(edge_index.device)
            edges = self._edge_sets[key] = EdgeSet(self, edge_index, flipped)
        return edges

    # Results

    def results(self, tree: Any) -> Any:
        """Replaces all values and end points in a structure with tensors, by one program for each set of edges."""
        self.materialise([v.node for v in values_in(tree)])
        return plain(replaced(tree))

    def materialise(self, nodes: Sequence[Node]) -> None:
        """Computes the nodes that have not been computed yet."""
        self._add_up([node for node in nodes if node.real is None and is_over_several(node.expr)])
        pending: dict[tuple[EdgeSet | RowSet, torch.dtype], list[Node]] = {}
        for node in nodes:
            if node.real is not None:
                continue
            edges = node.expr.edges
            if not needs_edges(node.expr):
                may_run = self.takes(node.elements) and unviewed(node.expr).op != "leaf"
                edges = self._row_sets.find(node, self.device, self.tape) if may_run else None
            if edges is None or isinstance(edges, Several):
                with self.outermost():
                    self._replay(node)
            else:
                pending.setdefault((edges, node.elements), []).append(node)
        for (edges, _), group in pending.items():
            group += self._passed(group)
            with self.outermost():
                self._compute(edges, group)

    def _add_up(self, nodes: Sequence[Node]) -> None:
        """Computes values over several sets of edges by one program; where none can, each set by a program of its own.

        All values of the same sets are computed at once. What their parts are added to is left to torch then.
        """
        by_sets: dict[object, list[Node]] = {}
        for node in nodes:
            by_sets.setdefault((node.expr.edges, node.elements), []).append(node)
        for group in by_sets.values():
            group += self._passed(group)
            try:
                with self.outermost(), unseen():
                    exprs = [unviewed(node.expr) for node in group]
                    alone = [v.node.expr for v in self.in_use() if isinstance(v.node.expr.edges, EdgeSet)]
                    used = {expr.serial for expr in reached(alone)}
                    edges, rewritten = summed_over_relations(self, self.runtime.names, exprs, used)
                    self._run(edges, group, rewritten)
            except (Untranslatable, UnsupportedCallError):
                self.materialise(parts_by_edges(group))

    def leave_edges(self, node: Node) -> None:
        """Computes what a value of nodes depends on by some edges, before it is gathered along others.

        Values in use that it is computed from are enough: products of them join a program along the other edges, as
        what other relations make of the same values does.
        """
        used = self._passed([node])
        products = [e for e in reached([node.expr]) if e.op in GEMM_OPERATORS]
        made = {e.serial for e in products if any(u.expr in reached([e]) for u in used)}
        self.materialise([u for u in used if made.isdisjoint(e.serial for e in reached([u.expr]))])
        settle(node.expr)
        if node.expr.edges is not None:
            self.materialise([node])

    def begin_anew(self, gathered: Sequence[Value]) -> None:
        """Computes all values in use, so that a new program begins, if a program would be large with these values.

        It waits longer while values of edges are in use, since a program need not hand these over.
        """
        size = len(reached([v.node.expr for v in gathered if v.node.expr.edges is not None]))
        if size > _LARGE:
            used = [v for v in self.in_use() if v.node.expr.edges is not None]
            if size > 2 * _LARGE or not any(v.node.expr.on_edges for v in used):
                self.results(used)

    def _passed(self, group: Sequence[Node]) -> list[Node]:
        """Returns values of nodes that others are computed from and that are in use: a later program need not anew."""
        within = {expr.serial for expr in reached([node.expr for node in group])}
        return [
            node
            for node in dict.fromkeys(value.node for value in self.in_use())
            if node.real is None
            and node.expr.serial in within
            and node not in group
            and _is_rows(node)
            and unviewed(node.expr).op != "leaf"
        ]

    def _replay(self, node: Node) -> Tensor:
        """Runs the recorded torch calls of a value that depends on no edges."""
        if node.real is None:
            copied = node.call and (node.expr.uniform or node.call[0] in CLONES)  # no view of a leaf
            if node.expr.op == "leaf" and node.expr.tensor is not None and not copied:
                check_unwritten(node.expr.tensor, node.expr.version)
                with torch.set_grad_enabled(node.call[-1] if node.call else self.grad):
                    node.real = self.torch(Tensor.view, node.expr.tensor, node.shape)
            else:
                func, args, kwargs, pick, tracked = node.call
                for tensor, before in node.read:
                    check_unwritten(tensor, before)
                args, kwargs = self._replayed(args), {k: self._replayed(v) for k, v in kwargs.items()}
                with torch.set_grad_enabled(tracked):
                    result = self.torch(func, *args, **kwargs)
                node.real = result if pick is None else result[pick]
                assert node.real is not None
                self._tie(node.real, node.shape)
                if not node.expr.uniform:
                    node.expr.becomes_leaf(self._converted(node.real, node.elements))
        return node.real

    def _converted(self, tensor: Tensor, dtype: torch.dtype) -> Tensor:
        return tensor if tensor.dtype == dtype else self.torch(Tensor.to, tensor, dtype)

    def _replayed(self, value: Any) -> Any:
        if type(value) is Node:
            if len(value.call) > 1:
                return self._replay(value)
            self.materialise([value])  # no function of torch computes it
            if value.expr.op == "leaf" and value.expr.tensor is not None:
                check_unwritten(value.expr.tensor, value.expr.version)
            return value.real
        if type(value) in (tuple, list):
            return type(value)([self._replayed(v) for v in value])
        return value

    def _compute(self, edges: EdgeSet | RowSet, nodes: list[Node]) -> None:
        """Runs one program for some values along one set of edges; torch computes what no program can, if it may."""
        with unseen():
            try:
                self._run(edges, nodes)
            except UnsupportedCallError:
                if not edges.replayed:
                    raise
                for node in nodes:
                    self._replay(node)

    def _run(self, edges: EdgeSet | RowSet, nodes: Sequence[Node], rewritten: Sequence[Expr] | None = None) -> None:
        """Runs one program for some values along one set of edges.

        Args:
            rewritten: The expressions of the values in terms of these edges, if they are over others.
        """
        exprs = [unviewed(n.expr) for n in nodes]
        of_values = {e.serial: form for e, form in zip(exprs, exprs if rewritten is None else rewritten, strict=True)}
        exprs, forms = list({id(e): e for e in exprs}.values()), list(of_values.values())
        program, outputs, leaves, spaces = region(forms, edges.bipartite, self.runtime.names)
        leaves = self._without_past(leaves, forms)
        if not edges.unwritten:
            raise UnsupportedCallError("edges, or their types, are written to in place after they have been used.")
        computed = self.run_program(program, edges, leaves, spaces, outputs)
        constant = [expr for expr in exprs if not has_gradient(expr)]
        for expr, rows in zip(exprs, computed, strict=True):
            expr.becomes_leaf(rows)
        views: dict[int, list[Tensor]] = {}
        for node in nodes:
            expr = unviewed(node.expr)
            assert expr.tensor is not None
            node.real = _shaped(expr.tensor, node)
            views.setdefault(id(expr), []).append(node.real)
        if self.tape is not None:
            inputs = [input_origin(leaf, space) for leaf, space in zip(leaves, spaces, strict=True)]
            made = [
                (expr.tensor, position, space == "E", views.get(id(expr), []))
                for expr, (position, space) in zip(exprs, outputs, strict=True)
                if expr.tensor is not None
            ]
            self.tape.ran(program, edges.form() or self.runtime.find_graph(edges), inputs, made)
        for expr in constant:
            if expr.tensor is not None and expr.tensor.requires_grad:
                self._detach(expr, [node for node in nodes if unviewed(node.expr) is expr])
        for node in nodes:
            if node.real is not None:
                node.real = self._converted(node.real, node.dtype)
                if node.call and node.call[0] in CLONES:
                    node.real = self.torch(Tensor.clone, node.real)
                self._tie(node.real, node.shape)

    def run_program(
        self, program: ProgramSource, edges: EdgeSet | RowSet, leaves: Sequence[Expr], spaces: Sequence[str],
        outputs: Sequence[tuple[int, str]],
    ) -> list[Tensor]:  # fmt: skip
        """Returns the rows of outputs of a program, those of edges in the order of the user."""
        graph = self.runtime.find_graph(edges)
        arrays = [input_array(leaf, space, graph) for leaf, space in zip(leaves, spaces, strict=True)]
        rows = self.runtime.run(program, graph, arrays)
        return [graph.from_canonical(rows[place]) if space == "E" else rows[place] for place, space in outputs]

    def _without_past(self, leaves: Sequence[Expr], exprs: Sequence[Expr]) -> list[Expr]:
        """Returns leaves without the graph of autograd behind those that no gradient leads to.

        A backward would run through that graph, which another backward may have freed. Where this call has a leaf of
        autograd, another may have such a graph.
        """
        led_to = {expr.serial for expr in with_gradients(exprs)}
        found: list[Expr] = []
        for leaf in leaves:
            tensor = leaf.tensor
            if tensor is not None and tensor.requires_grad and leaf.serial not in led_to:
                check_unwritten(tensor, leaf.version)
                leaf = Expr("leaf", (), leaf.data, leaf.shape, self.torch(Tensor.detach, tensor))
            found.append(leaf)
        return found

    def _detach(self, expr: Expr, nodes: list[Node]) -> None:
        """Takes the gradients from the numbers of a detached expression, which a program returns beside others."""
        expr.becomes_leaf(self.torch(Tensor.detach, expr.tensor))
        for node in nodes:
            node.real = self.torch(Tensor.detach, node.real)


def _shaped(tensor: Tensor, node: Node) -> Tensor:
    """Returns the tensor of a value."""
    return in_shape(tensor, *map(number, node.shape))  # this comparison is none of the call's own


def _is_rows(node: Node) -> bool:
    """Returns whether a value has numbers for each node."""
    return node.dtype == node.elements and not (node.expr.on_edges or node.expr.uniform)
