"""Proves that an operation computes each row of its result from the same rows of its arguments alone.

torch tells for each operation of a model which of its elementary operations it consists of. Of these a few families
are known to keep rows apart; sizes that are symbols tell where the rows are. All other operations are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_ELEMENTWISE = frozenset((
    "_to_copy", "to", "copy", "clone", "contiguous", "detach", "alias", "lift_fresh", "fill", "zero", "prelu",
    "_prelu_kernel", "hardswish", "log_sigmoid_forward", "floor_divide", "log_sigmoid", "relu6", "selu",
))  # fmt: skip
"""Elementwise operations that torch does not mark as such."""
CREATIONS = frozenset((
    "zeros", "ones", "full", "zeros_like", "ones_like", "full_like",
))  # fmt: skip
"""Operations that fill a tensor with one number."""
_BY_SHAPE = frozenset((
    "mm", "bmm", "addmm", "baddbmm", "matmul", "linear", "sum", "mean", "amax", "amin", "max", "min", "argmax",
    "argmin", "prod", "any", "all", "logsumexp", "norm", "var", "std", "var_mean", "std_mean", "linalg_vector_norm",
    "linalg_norm", "count_nonzero", "native_layer_norm", "layer_norm", "native_group_norm", "permute", "transpose",
    "t", "numpy_T", "unsqueeze", "squeeze", "expand", "expand_as", "select", "slice", "narrow", "split",
    "split_with_sizes", "unbind", "chunk", "cat", "stack", "movedim", "broadcast_to", "repeat",
))  # fmt: skip
"""Operations that mix rows, or read some of them alone, only if the result has another number of rows."""
_ALONG = frozenset((
    "_softmax", "_log_softmax", "softmax", "log_softmax", "cumsum", "cumprod", "logcumsumexp", "sort", "topk",
    "argsort", "flip", "gather", "scatter", "scatter_add", "glu", "median", "mode", "kthvalue",
))  # fmt: skip
"""Operations along one axis, which may be any but that of the rows."""
_VIEWS = frozenset((
    "view", "_unsafe_view", "reshape", "flatten", "unflatten", "_reshape_alias", "view_as", "reshape_as",
))  # fmt: skip
_NORMS = frozenset((
    "native_batch_norm", "batch_norm", "cudnn_batch_norm", "_native_batch_norm_legit", "_batch_norm_impl_index",
    "_native_batch_norm_legit_no_training", "miopen_batch_norm",
))  # fmt: skip
_ABOUT = frozenset((
    "device", "sym_size", "sym_stride", "sym_numel", "sym_storage_offset", "is_contiguous", "size", "stride",
))  # fmt: skip
_SHAPES = frozenset((
    "size", "sizes", "shape", "start", "end", "length", "split_size", "split_sizes", "repeats", "N", "C", "HxW",
))  # fmt: skip
"""Arguments of elementary operations that are shapes; sizes in all others are numbers."""


class Mixed(Exception):
    """Says why an operation does not keep rows apart."""


@dataclass(frozen=True)
class Rows:
    """Tells where the rows of a tensor are.

    Args:
        count: The number of rows, an expression of symbols.
        axis: The axis of the rows.
        each: The number of entries along this axis that belong to each row.
    """

    count: Any
    axis: int
    each: int


class RowCounts:
    """Finds rows in the shapes of tensors.

    Args:
        sizes: The sizes that are the number of nodes of a type, or of edges of a relation, in all arguments that have
            it; those that vary.
    """

    def __init__(self, sizes: Mapping[Any, list[Any]]) -> None:
        self._sizes = sizes
        self._others: list[tuple[Any, Any]] = []

    @property
    def groups(self) -> dict[Any, Any]:
        """Returns the numbers of nodes and edges as expressions, by the groups of arguments."""
        return {group: _expression(same[0]) for group, same in self._sizes.items()}

    @property
    def nodes(self) -> dict[Any, str]:
        """Returns the node types by their numbers of nodes."""
        return {count: group for group, count in self.groups.items() if isinstance(group, str)}

    def add(self, size: Any, same: Any) -> None:
        """Notes the number of edges that the model has computed, and the first size that is the same number."""
        self._others.append((size, same))

    def expression(self, size: Any) -> Any:
        """Returns a size as an expression in which the arguments' sizes are the numbers of nodes and edges."""
        found = _expression(size)
        if not hasattr(found, "xreplace"):
            return found
        same = {_expression(s): _expression(sizes[0]) for sizes in self._sizes.values() for s in sizes[1:]}
        return found.xreplace(same) if same else found

    def of(self, tensor: Tensor) -> Rows | None:
        """Returns the rows of a tensor; None if its shape is the same for all graphs.

        Raises:
            Mixed: More than one axis depends on the graph, or in another way.
        """
        found = [rows for axis, size in enumerate(tensor.shape) if (rows := self._along(axis, size)) is not None]
        if len(found) > 1:
            raise Mixed(f"makes a matrix of {found[0].count} x {found[1].count}, which are all pairs of rows")
        return found[0] if found else None

    def multiple(self, size: Any) -> tuple[Any, int] | None:
        """Returns the number of rows that a size is a multiple of, and the factor; None for a size without symbols."""
        expression = self.expression(size)
        if not getattr(expression, "free_symbols", None):
            return None
        counts = [*self.groups.values()]
        if expression in counts:
            return expression, 1
        for other, same in (*((count, count) for count in counts), *self._others):
            factor = expression / self.expression(other)
            if factor.is_Integer:
                return self.expression(same), int(factor)
        raise Mixed("makes a number of rows that is neither that of the nodes nor of edges")

    def _along(self, axis: int, size: Any) -> Rows | None:
        found = self.multiple(size) if isinstance(size, torch.SymInt) else None
        return None if found is None else Rows(found[0], axis, found[1])


def _expression(size: Any) -> Any:
    return size.node.expr if isinstance(size, torch.SymInt) else size


class RowCheck(TorchDispatchMode):
    """Checks the elementary operations that run within it; ``problem`` says what is wrong with one of them."""

    def __init__(self, counts: RowCounts) -> None:
        super().__init__()
        self._counts = counts
        self.problem: str | None = None
        self.takes_numbers = False
        """Tells whether a size is a number to compute with."""
        self.takes_shapes = False
        """Tells whether a size is that of a shape."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        try:
            self._check(func, args, kwargs or {}, result)
        except Mixed as problem:
            self.problem = self.problem or str(problem)
        return result

    def _check(self, function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any) -> None:
        name = function._schema.name.partition("::")[2].removesuffix("_")
        given: dict[str, Any] = dict(zip([a.name for a in function._schema.arguments], args, strict=False)) | {**kwargs}
        results = [t for t in tree_leaves(result) if isinstance(t, Tensor)]
        for argument, value in given.items():
            if any(isinstance(v, torch.SymInt | torch.SymFloat) for v in tree_leaves(value)) and results:
                self.takes_shapes |= argument in _SHAPES
                self.takes_numbers |= argument not in _SHAPES
        if not results:
            if name in _ABOUT:
                return
            raise Mixed("reads a number from a tensor")
        if torch.Tag.nondeterministic_seeded in function.tags and not _without_chance(name, given):
            raise Mixed("draws random numbers")
        inputs = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        rows = [r for r in map(self._counts.of, inputs) if r is not None]
        made = [self._counts.of(t) for t in results]
        if name in CREATIONS:
            return
        if not rows:
            if any(made) and name not in ("expand", "broadcast_to"):
                raise Mixed("makes rows that depend on their places")
            return
        if name in _NORMS:
            if any(given.get(flag) for flag in ("training", "train")):
                raise Mixed("depends on all rows at once")
            made = made[:1]
        self._check_kind(name, function, given, rows, results)
        for other in made:
            if other is None or other.count != rows[0].count:
                raise Mixed("depends on all rows at once, or on some of them alone")
        if any(r.count != rows[0].count for r in rows):
            raise Mixed("takes rows of nodes and of edges, or of several types, together")

    def _check_kind(
        self, name: str, function: Any, given: Mapping[str, Any], rows: list[Rows], results: list[Tensor]
    ) -> None:
        """Raises Mixed unless an operation belongs to a family that keeps rows apart."""
        first = results[0]
        made = self._counts.of(first)
        if torch.Tag.pointwise in function.tags or name in _ELEMENTWISE:
            return
        if name in _VIEWS:
            source = given["self"]
            if made is not None and prod(source.shape[: rows[0].axis]) != prod(first.shape[: made.axis]):
                raise Mixed("mixes rows, since their axis is split or merged with one before it")
            return
        if made is not None and any(r.each != made.each for r in rows):
            raise Mixed("changes the number of rows")
        if name in _BY_SHAPE or name in _NORMS:
            return
        if name in _ALONG:
            axis = given.get("dim", given.get("dims", -1))
            axes = [a % max(first.dim(), 1) for a in (axis if isinstance(axis, list | tuple) else [axis])]
            if any(r.axis in axes for r in rows):
                raise Mixed("works along the rows")
            index = given.get("index")
            if isinstance(index, Tensor) and self._counts.of(index) != made:
                raise Mixed("reads or writes some of the rows alone")
            return
        if name in ("index", "index_select", "embedding"):
            source = given.get("self", given.get("weight"))
            own = self._counts.of(source) if isinstance(source, Tensor) else None
            if own is None:
                return
            if name == "index_select" and given["dim"] % source.dim() != own.axis and len(rows) == 1:
                return
            if name == "index" and len(rows) == 1 and [*given["indices"], *[None] * source.dim()][own.axis] is None:
                return
            raise Mixed("reads rows by their numbers, which are no ends of edges")
        raise Mixed("is no operation that is known to keep rows apart")


def _without_chance(name: str, given: Mapping[str, Any]) -> bool:
    """Returns whether an operation that may draw numbers draws none."""
    return "dropout" in name and (given.get("train") is False or given.get("p") == 0)
