"""The checked edge list from which every graph is made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from dacergnn.errors import ArrayError, GraphError
from dacergnn.graph.checks import (
    IndexRange,
    as_count,
    as_flag,
    as_index_vector,
    as_names,
    check_device,
    check_extremes,
    check_length,
    extremes,
    extremes_at_hand,
)
from dacergnn.graph.names import NumberNames
from dacergnn.graph.sorting import INT64_LIMIT, ascends

ArrayLike: TypeAlias = Tensor | npt.NDArray[np.integer]
EdgeIndexLike: TypeAlias = ArrayLike | tuple[ArrayLike, ArrayLike]


class EdgeList(NamedTuple):
    """Holds edges in the user's order: int32 or int64 vectors on one device, with all indices in range.

    `src_type` and `dst_type` hold one node type per source and destination node; None if there is one type.
    """

    src: Tensor
    dst: Tensor
    edge_type: Tensor
    num_src: int
    num_dst: int
    num_edge_types: int
    src_type: Tensor | None
    dst_type: Tensor | None
    num_node_types: int
    bipartite: bool
    edge_type_names: Sequence[str]
    node_type_names: Sequence[str]
    in_order: bool
    """Tells whether the edges are known to be in the canonical order (etype, dst)."""
    single_typed: bool = False
    """Tells whether the edges of every type are known to join sources of one type with destinations of one type."""


def make_edge_list(
    edge_index: EdgeIndexLike,
    edge_type: ArrayLike | None,
    *,
    num_nodes: int | tuple[int, int],
    num_edge_types: int | None = None,
    node_type: ArrayLike | tuple[ArrayLike, ArrayLike] | None = None,
    num_node_types: int | None = None,
    bipartite: bool = False,
    edge_type_names: Sequence[str] | None = None,
    node_type_names: Sequence[str] | None = None,
    given_as: Sequence[IndexRange] = (),
    counted_by: str = "num_nodes",
) -> EdgeList:
    """Checks the arguments of `HeteroGraph.from_arrays` (see there); raises ArrayError or GraphError if one is wrong.

    Args:
        given_as: The user's indices from which the edges were made; they are checked first.
        counted_by: The argument of the user that holds the numbers of nodes.
    """
    (src, src_name), (dst, dst_name) = split_edge_index(edge_index)
    bipartite = as_flag("bipartite", bipartite)
    num_src, num_dst = _node_counts(num_nodes, bipartite)
    edge_names, node_names = as_names("edge_type_names", edge_type_names), as_names("node_type_names", node_type_names)
    count = src.numel()
    check_length(dst_name, dst, count, f"as many as {src_name}")
    check_device(dst_name, dst, src.device)
    if edge_type is None:
        types = all_zero(src)
    else:
        types = as_index_vector("edge_type", edge_type)
        check_length("edge_type", types, count, "one type for each edge")
        check_device("edge_type", types, src.device)
    src_type, dst_type = _node_types(node_type, num_src, num_dst, bipartite, src.device)
    ntypes = [t for t in (src_type, dst_type) if t is not None]

    own_types = [] if edge_type is None else [types]
    vectors = [src, dst, *own_types, *ntypes, *(r.vector for r in given_as)]
    differ = None if bipartite or src_type is None or dst_type is None else (src_type[:num_dst] != dst_type).any()
    ends = extremes_at_hand(vectors)
    if ends is not None:
        in_order, agree = False, differ is None or not bool(differ)
    else:  # reads everything from the device at once
        flags = [ascends(*own_types, dst), *([] if differ is None else [differ])]
        told = torch.cat((extremes(*vectors), torch.stack(flags))).tolist()
        ends, in_order = told[: 2 * len(vectors)], bool(told[2 * len(vectors)])
        agree = differ is None or not told[-1]
    bounds = list(zip(ends[::2], ends[1::2], strict=True))
    for index_range, (low, high) in zip(given_as, bounds[len(bounds) - len(given_as) :], strict=True):
        check_extremes(index_range, low, high)
    check_extremes(IndexRange(src_name, src, num_src, "source nodes", counted_by), *bounds[0])
    check_extremes(IndexRange(dst_name, dst, num_dst, "destination nodes", counted_by), *bounds[1])
    after = 2 + len(own_types)
    edge_types = _count("edge_type", own_types, bounds[2:after], num_edge_types, edge_names)
    node_types = _count("node_type", ntypes, bounds[after : after + len(ntypes)], num_node_types, node_names)
    if edge_types * max(num_src, num_dst) >= INT64_LIMIT:
        raise GraphError(
            f"{edge_types} edge types and {max(num_src, num_dst)} nodes make more pairs than 64 bits count; number "
            "the types that occur from 0 on."
        )
    if not agree:
        raise GraphError(
            "node_type[1] differs from the start of node_type[0], but destinations are the first sources; "
            "pass bipartite=True if they are different nodes."
        )
    return EdgeList(
        src, dst, types, num_src, num_dst, edge_types, src_type, dst_type, node_types, bipartite,
        NumberNames(edge_types) if edge_names is None else edge_names,
        NumberNames(node_types) if node_names is None else node_names,
        in_order,
    )  # fmt: skip


_ZERO = {dtype: torch.zeros(1, dtype=dtype) for dtype in (torch.int32, torch.int64)}


def all_zero(like: Tensor) -> Tensor:
    """Returns as many zeros as a vector has entries, in the memory of one; do not write to them."""
    zero = _ZERO[like.dtype] if like.is_cpu else like.new_zeros(1)
    return zero.expand(like.numel())


def split_edge_index(edge_index: object, name: str = "edge_index") -> tuple[tuple[Tensor, str], tuple[Tensor, str]]:
    """Returns sources and destinations as index vectors, each with its name for errors; may raise ArrayError."""
    if isinstance(edge_index, tuple | list):
        parts = cast("Sequence[object]", edge_index)
        if len(parts) != 2:
            raise ArrayError(name, f"has {len(parts)} parts; pass (src, dst)")
        return (as_index_vector("src", parts[0]), "src"), (as_index_vector("dst", parts[1]), "dst")
    shape = tuple(getattr(edge_index, "shape", ()))
    if len(shape) != 2 or shape[0] != 2:
        raise ArrayError(name, f"has shape {list(shape)}; it must be [2, E], sources in row 0")
    if not isinstance(edge_index, Tensor | np.ndarray):
        raise ArrayError(name, f"must be a torch tensor or a NumPy array, got {type(edge_index).__name__}")
    array = cast("ArrayLike", edge_index)
    if isinstance(array, Tensor) and array.layout is not torch.strided:
        raise ArrayError(name, f"has the layout {array.layout}; convert it with .to_dense()")
    rows = array.unbind() if type(array) is Tensor else (array[0], array[1])
    names = f"{name}[0]", f"{name}[1]"
    return (as_index_vector(names[0], rows[0]), names[0]), (as_index_vector(names[1], rows[1]), names[1])


def _node_counts(num_nodes: object, bipartite: bool) -> tuple[int, int]:
    counts = cast("Sequence[object]", num_nodes if isinstance(num_nodes, tuple | list) else (num_nodes, num_nodes))
    if len(counts) != 2:
        raise GraphError(f"num_nodes is {num_nodes!r}; pass one number, or (sources, destinations).")
    num_src, num_dst = (as_count("num_nodes", count, "node", argument=num_nodes) for count in counts)
    if num_dst > num_src and not bipartite:
        raise GraphError(
            f"num_nodes is ({num_src}, {num_dst}): destinations must be the first of the sources, so there "
            "cannot be more of them; pass bipartite=True if sources and destinations are different nodes."
        )
    return num_src, num_dst


def _node_types(
    node_type: ArrayLike | tuple[ArrayLike, ArrayLike] | None,
    num_src: int, num_dst: int, bipartite: bool, device: torch.device,
) -> tuple[Tensor | None, Tensor | None]:  # fmt: skip
    if node_type is None:
        return None, None
    if isinstance(node_type, tuple | list):
        if len(node_type) != 2:
            raise ArrayError("node_type", f"has {len(node_type)} parts; pass (source types, destination types)")
        named = [("node_type[0]", node_type[0], num_src), ("node_type[1]", node_type[1], num_dst)]
    elif bipartite:
        raise ArrayError("node_type", "must be a pair (source types, destination types) where bipartite=True")
    else:
        named = [("node_type", node_type, num_src)]
    vectors: list[Tensor] = []
    for name, values, length in named:
        vector = as_index_vector(name, values)
        check_length(name, vector, length, "one type for each node")
        check_device(name, vector, device)
        vectors.append(vector)
    # Without bipartite the destinations are a prefix of the sources, and so are their types.
    src_type = vectors[0]
    return src_type, vectors[-1] if len(vectors) == 2 else src_type[:num_dst]


def _count(
    name: str, vectors: list[Tensor], bounds: list[tuple[int, int]], num_types: object, names: Sequence[str] | None
) -> int:
    """Returns the number of types: `num_types`, else the number of names, else the largest type plus one."""
    count = None if num_types is None else as_count(f"num_{name}s", num_types, name.replace("_", " "))
    if count is not None and names is not None and len(names) != count:
        raise GraphError(f"{name}_names has {len(names)} names, but num_{name}s is {count}; give one for each type.")
    if count is None and names is not None:
        count = len(names)
    if count is None:
        count = max([1, *(high + 1 for _, high in bounds)])
    for vector, (low, high) in zip(vectors, bounds, strict=True):
        check_extremes(IndexRange(name, vector, count, name.replace("_", " ") + "s", f"num_{name}s"), low, high)
    return count
