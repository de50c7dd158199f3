"""Stand-ins for sparse matrices of torch, which torch does not capture: what a layer asks of one leads to its parts."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from threading import Lock
from typing import Any

import torch
from torch import Tensor

from dacergnn.frontends.pyg.given_edges import edge_values, sources_and_destinations
from dacergnn.frontends.substitution import substitute
from dacergnn.graph.sorting import equal
from dacergnn.runtime.edge_changes import Seen

_KEPT = 8
_LAYOUT: Any = getattr(Tensor, "layout").__get__  # noqa: B009
_ABOUT = ("size", "dim")
_GETTERS: list[Any] = [getattr(Tensor, name).__get__ for name in ("shape", "dtype", "device", "is_cuda")]
"""Functions that the stand-in answers by itself."""
_PRODUCTS = ("mm", "matmul", "__matmul__")
_SUMS = ("sum", "mean")
_EXTREMES = ("min", "max")
"""Reductions for which torch gives a gradient to one of several equal messages, and programs to all of them."""
_lock = Lock()
_installed: list[bool] = []


class Adjacency(Tensor):
    """Stands for a sparse matrix while torch captures what a layer does with it; its own numbers mean nothing.

    Attributes:
        matrix: What it stands for.
        form: Its layout.
        coalesced: Whether there is at most one entry for each place.
        trained: Whether it needs a gradient.
        numbers: The values of the entries.
        entries: The rows and columns of the entries, [2, E].
        starts: Where rows begin among the entries; None in other layouts than CSR.
    """

    matrix: Tensor
    form: torch.layout
    coalesced: bool
    trained: bool
    numbers: Tensor
    entries: Tensor
    starts: Tensor | None

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = func.__name__
        if not torch.compiler.is_dynamo_compiling():
            return super().__torch_function__(func, types, args, kwargs)
        if func == _LAYOUT:
            return args[0].form
        if name in _ABOUT or func in _GETTERS:
            return super().__torch_function__(func, types, args, kwargs)
        if name in _PRODUCTS and not args[0].trained:  # else places without an entry have a gradient, too
            return product(*args)
        if name == "crow_indices" and args[0].form is torch.sparse_csr:
            return args[0].starts
        if name == "col_indices" and args[0].form is torch.sparse_csr:
            return args[0].entries[1]
        if name == "indices" and args[0].form is torch.sparse_coo and args[0].coalesced:
            return args[0].entries
        if name == "values" and args[0].coalesced:
            return args[0].numbers
        return refuse_adjacency()


def product(matrix: Adjacency, features: Any, reduce: str = "sum") -> Tensor:
    """Multiplies rows of features with the entries of each row of the matrix, and reduces the products."""
    from torch_geometric.utils import scatter

    reduce = "sum" if reduce == "add" else reduce
    if not isinstance(features, Tensor) or features.dim() != 2 or matrix.numbers.dim() != 1:
        return refuse_adjacency()
    trained = torch.is_grad_enabled() and (matrix.trained or features.requires_grad)
    if features.dtype != matrix.numbers.dtype or features.size(0) != matrix.size(1):
        return refuse_adjacency()
    if reduce not in (_SUMS if trained else (*_SUMS, *_EXTREMES)):
        return refuse_adjacency()
    messages = features.index_select(0, matrix.entries[1]) * matrix.numbers.view(-1, 1)
    return scatter(messages, matrix.entries[0], 0, matrix.size(0), reduce)


def install() -> None:
    """Tells torch about PyG's own product, which runs C code, unless that has been done."""
    with _lock:
        if not _installed:
            substitute(import_module("torch_geometric.utils").spmm, Adjacency, product)
            _installed.append(True)


def refuse_adjacency() -> Any:
    """Ends a capture, also where code of users catches errors; torch never runs it."""


refuse_adjacency.__dict__["_torchdynamo_disable"] = True  # as `torch.compiler.disable` does


class Adjacencies:
    """Makes stand-ins, with the same tensors for equal entries, so that their graphs are found again."""

    def __init__(self) -> None:
        self._known: list[tuple[Seen, dict[str, Any]]] = []

    def stand_in(self, matrix: Tensor) -> Adjacency:
        """Returns the stand-in of a matrix."""
        values = edge_values(matrix)
        assert values is not None
        made: Any = torch.empty_strided(matrix.shape, [0] * matrix.dim(), dtype=matrix.dtype, device=matrix.device)
        made = made.as_subclass(Adjacency)
        numbers = values.clone()  # torch would look at the base of a view, which is sparse
        vars(made).update(self._parts(matrix), matrix=matrix, form=matrix.layout, numbers=numbers)
        made.trained = matrix.requires_grad
        made.coalesced = matrix.layout is not torch.sparse_coo or matrix.is_coalesced()
        return made

    def _parts(self, matrix: Tensor) -> dict[str, Any]:
        for seen, parts in self._known:
            if seen.same([matrix]):
                return parts
        starts = matrix.crow_indices().clone() if matrix.layout is torch.sparse_csr else None
        made = {"entries": sources_and_destinations(matrix).detach().flip(0), "starts": starts}
        parts = next((p for _, p in self._known if _alike(p, made)), made)
        self._known = [(Seen([matrix]), parts), *[entry for entry in self._known if entry[1] is not parts][: _KEPT - 1]]
        return parts


def _alike(parts: dict[str, Any], others: dict[str, Any]) -> bool:
    both = [(parts[name], others[name]) for name in ("entries", "starts")]
    return all((a is None) == (b is None) for a, b in both) and equal(*[(a, b) for a, b in both if a is not None])
