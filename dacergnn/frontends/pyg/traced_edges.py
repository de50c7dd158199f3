"""The edges of a traced call: indices whose rows are known as end points, and adjacencies that multiply features."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from dacergnn.errors import UnsupportedCallError
from dacergnn.frontends.pyg.given_edges import (
    check_edges,
    edge_values,
    is_matrix,
    matrix_sizes,
    sources_and_destinations,
)
from dacergnn.frontends.pyg.message_passing import check_edge_index, plain
from dacergnn.frontends.symbolic import Trace
from dacergnn.frontends.symbolic.edges import EdgeIndex, row_of
from dacergnn.frontends.symbolic.edges import edge_index as recorded_index
from dacergnn.frontends.symbolic.expr import Expr
from dacergnn.frontends.symbolic.value import Node, Value, held

_VALUES = ("edge_weight", "edge_attr", "edge_type")
"""Arguments that stand for the values of an adjacency where they are None."""
_PRODUCTS = (torch.sparse.mm, torch.mm, torch.matmul, Tensor.mm, Tensor.matmul, Tensor.__matmul__)
_CONVERSIONS = (Tensor.to_sparse_csr, Tensor.coalesce)
_REDUCTIONS = {"sum": "sum", "mean": "mean", "max": "max", "amax": "max", "min": "min", "amin": "min"}


class Adjacency(Value):
    """Represents a sparse matrix of torch: records its products with features; other functions get the matrix itself.

    It derives from `Value`, so that torch dispatches to it first for a function that takes both.
    """

    edges: CallEdges
    converted: dict[Any, Adjacency]

    layout = property(lambda self: self.node.real.layout)  # pyright: ignore[reportAssignmentType]

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        first = args[0] if args else None
        if type(first) is Adjacency and func in _PRODUCTS:
            if func is not torch.sparse.mm and first.requires_grad and torch.is_grad_enabled():
                raise UnsupportedCallError("an adjacency in a product has gradients for what are no edges, too.")
            return first.times(*args[1:], **kwargs)
        if type(first) is Adjacency and func in _CONVERSIONS and len(args) == 1:
            if func not in first.converted:
                first.converted[func] = first.edges.matrix(func(first.node.real))
            return first.converted[func]
        if _holds_values((*args, *kwargs.values())):
            raise UnsupportedCallError(f"{func.__name__} of an adjacency and of features has no form in a program.")
        output = func(*_real(args), **_real(kwargs))
        if type(first) is Adjacency and isinstance(output, Tensor) and is_matrix(output):
            return first.edges.matrix(output)
        return output

    def times(self, features: Any, reduce: str = "sum") -> Any:
        """Multiplies rows of features with the entries of each row of the matrix, and reduces the products."""
        from torch_geometric.utils import scatter

        matrix: Any = self.node.real
        values: Any = edge_values(matrix)
        if not isinstance(features, Tensor) or is_matrix(features) or features.dim() != 2 or values.dim() != 1:
            raise UnsupportedCallError("an adjacency is multiplied with something that is no matrix of features.")
        if features.dtype != values.dtype or features.size(0) != self.size(1) or reduce not in _REDUCTIONS:
            raise UnsupportedCallError(
                f"an adjacency {list(self.shape)} of {values.dtype} does not fit features {list(features.shape)} of "
                f"{features.dtype}."
            )
        index, trace = self.edges.index(matrix), self.edges.trace
        rows = features if type(features) is Value else trace.value(features)
        messages = rows.index_select(0, row_of(index, 0)) * trace.value(values).view(-1, 1)
        return scatter(messages, row_of(index, 1), 0, self.size(0), _REDUCTIONS[reduce])


class CallEdges:
    """Holds all edges of one call: a tensor has the same end points each time that it is used."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self._matrices: dict[int, tuple[Any, Adjacency]] = {}
        self._indices: dict[int, tuple[Any, EdgeIndex]] = {}

    def matrix(self, matrix: Tensor) -> Adjacency:
        """Returns a sparse matrix of torch that records its products."""
        known = self._matrices.get(id(matrix))
        if known is None:
            self.trace.place(matrix.device)
            node = Node(Expr("leaf", (), ("row",), (), matrix), matrix.shape, matrix.dtype, (), matrix)
            adjacency: Any = Adjacency(self.trace, node)
            adjacency.edges, adjacency.converted = self, {}
            known = self._matrices[id(matrix)] = (matrix, adjacency)
        return known[1]

    def torch_sparse_matrix(self, matrix: Any) -> Any:
        """Does the same for one of torch_sparse: PyG multiplies with it as a torch matrix where it has no gradient."""
        stand_in = object.__new__(type(matrix))
        stand_in.__dict__.update(
            matrix.__dict__,
            to_torch_sparse_csr_tensor=lambda *args: self.matrix(matrix.to_torch_sparse_csr_tensor(*args)),
            requires_grad=lambda: False,
        )
        return stand_in

    def index(self, edge_index: Any, flipped: bool = False) -> EdgeIndex:
        """Returns the rows of an edge index, or the entries of an adjacency, as end points of edges."""
        if not is_matrix(edge_index):
            check_edge_index(edge_index)
            tensor = plain(edge_index)
            if type(tensor) is not Tensor:
                raise UnsupportedCallError(f"edge_index is a {type(tensor).__name__}; pass a plain tensor.")
            return recorded_index(self.trace.edge_set(tensor, flipped))
        known = self._indices.get(id(edge_index))
        if known is None:
            index = recorded_index(self.trace.edge_set(sources_and_destinations(edge_index)))
            known = self._indices[id(edge_index)] = (edge_index, index)
        return known[1]

    def propagated(
        self, module: Any, name: str, edge_index: Any, size: Any, kwargs: dict[str, Any]
    ) -> tuple[Any, Any, dict[str, Any]]:
        """Returns the edges, the size and the keyword arguments to call `propagate` or `edge_updater` (``name``) with.

        Raises:
            UnsupportedCallError: The layer cannot take such edges, or it is not known what it does with them.
        """
        edge_index = given(edge_index)
        flipped = module.flow == "target_to_source"
        if not is_matrix(edge_index):
            index, known = self.index(edge_index, flipped), getattr(edge_index, "sparse_size", None)
            return index, size if known is None else known(), kwargs
        if flipped:
            raise UnsupportedCallError("flow is target_to_source, which PyG does not have for adjacencies.")
        if name == "propagate" and module.fuse:
            matrix = self.matrix(edge_index) if isinstance(edge_index, Tensor) else self.torch_sparse_matrix(edge_index)
            return matrix, size, kwargs
        check_edges(edge_index)
        kwargs = {**kwargs, **_values(module, name, edge_index, kwargs)}
        return self.index(edge_index), matrix_sizes(edge_index), kwargs


def given(edge_index: Any) -> Any:
    """Returns the edges that a recorded value stands for, and other edges as they are."""
    return held(edge_index) if isinstance(edge_index, Value) else edge_index


def _values(module: Any, name: str, edge_index: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments that stand for the values of an adjacency, as PyG's generated methods collect them."""
    methods = ["message", "aggregate", "update"] if name == "propagate" else ["edge_update"]
    collected = module.inspector.get_flat_param_dict(methods)
    reads = next((n for n in ("edge_index", "adj_t") if n in collected), None)
    if reads is not None or getattr(type(module), name) is not getattr(type(module), f"_jinja_{name}", None):
        raise UnsupportedCallError(f"what {reads or name} of the layer makes of an adjacency is not known.")
    place = next((n for n in _VALUES if n in collected), None)
    if place is None or kwargs.get(place) is not None:
        return {}
    values = edge_values(edge_index)
    single = values is None or values.dim() == 1
    return {place: None if place == "edge_attr" and single else values}


def _holds_values(tree: Iterable[Any]) -> bool:
    return any(type(v) is Value or (isinstance(v, tuple | list) and _holds_values(v)) for v in tree)  # pyright: ignore[reportUnknownArgumentType]


def _real(tree: Any) -> Any:
    """Returns arguments with matrices in place of the adjacencies that stand for them."""
    if type(tree) is Adjacency:
        return tree.node.real
    if type(tree) in (tuple, list):
        return type(tree)([_real(v) for v in tree])
    if type(tree) is dict:
        return {k: _real(v) for k, v in tree.items()}
    return tree
