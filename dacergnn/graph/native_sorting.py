"""Sorts and counts vectors of indices on the host, in C++: in linear time, and without Python's lock.

The functions return None if a vector is not a plain one on the host, if there is no compiler, or if numbers are too
large for the method or the memory. Then torch does the work, or raises the error.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable, Sequence
from functools import cache
from operator import itemgetter

import torch
from torch import Tensor

from dacergnn.errors import BuildError
from dacergnn.native.build import HELPER_FLAGS, build

_CODE = """
#include "include/dacergnn/edge_counts.h"
#include "include/dacergnn/encode.h"
#include "include/dacergnn/same_edges.h"
using dacergnn::Number;
extern "C" Number make_encodings(const Number *numbers, Number *data) { return dacergnn::encode(numbers, data); }
extern "C" void find_extremes(const Number *numbers, Number *ends) { dacergnn::extremes(numbers, ends); }
extern "C" Number find_order(const Number *numbers) { return dacergnn::stable_order(numbers); }
extern "C" void reorder(const Number *numbers) { dacergnn::reordered(numbers); }
extern "C" Number sort_rows(const Number *numbers) { return dacergnn::sorted_rows(numbers); }
extern "C" Number sort_edges(const Number *numbers) { return dacergnn::sorted_edges(numbers); }
extern "C" Number join_parts(const Number *numbers) { return dacergnn::joined_parts(numbers); }
extern "C" void find_pointers(const Number *numbers) { dacergnn::pointers(numbers); }
extern "C" void find_groups(const Number *numbers) { dacergnn::groups_of_rows(numbers); }
extern "C" void find_mean_weights(const Number *numbers) { dacergnn::mean_weights(numbers); }
extern "C" Number find_symmetric_weights(const Number *numbers) { return dacergnn::symmetric_weights(numbers); }
extern "C" Number find_degrees(const Number *numbers) { return dacergnn::degrees(numbers); }
extern "C" Number add_loops(const Number *numbers) { return dacergnn::with_loops(numbers); }
extern "C" std::uint64_t find_checksum(const Number *numbers) { return dacergnn::checksum_of(numbers); }
extern "C" Number count_edges(const Number *numbers, Number *counts) { return dacergnn::count_edges(numbers, counts); }
"""
_LIMIT = 2**31
"""Number of rows from which on they are not counted one by one."""


@cache
def _library() -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(str(build("sorting", _CODE, options=HELPER_FLAGS)))
    except BuildError:
        return None


@cache
def _function(name: str) -> Callable[..., int] | None:
    library = _library()
    if library is None:
        return None
    function = getattr(library, name)
    function.argtypes, function.restype = [ctypes.c_void_p, ctypes.c_void_p], ctypes.c_int64
    return function


_INDICES = frozenset((torch.int32, torch.int64))


def _is_plain(vector: Tensor) -> bool:
    return vector.is_cpu and vector.dtype in _INDICES and vector.is_contiguous() and type(vector) is Tensor


def _of(vector: Tensor) -> tuple[int, int]:
    return vector.data_ptr(), vector.element_size()


def _described(vectors: Sequence[Tensor]) -> array[int]:
    """Returns the number of vectors, then the address, bytes of an index and length of each."""
    numbers = array("q", [len(vectors)])
    for vector in vectors:
        numbers.extend((*_of(vector), vector.numel()))
    return numbers


def extremes(vectors: Sequence[Tensor]) -> list[int] | None:
    """Returns the smallest and the largest entry of each vector; 0 and -1 for an empty vector."""
    function = _function("find_extremes")
    if function is None or not all(map(_is_plain, vectors)):
        return None
    numbers = _described(vectors)
    ends = array("q", bytes(16 * len(vectors)))
    function(numbers.buffer_info()[0], ends.buffer_info()[0])
    return ends.tolist()


def stable_order(keys: Sequence[tuple[Tensor, int]], dtype: torch.dtype) -> tuple[Tensor | None] | None:
    """Returns (order,): the positions of rows, stably sorted by ``keys`` (most important first); (None,) if they are
    sorted already."""
    function = _function("find_order")
    if function is None or not all(_is_plain(vector) for vector, _ in keys):
        return None
    order = torch.empty(keys[0][0].numel(), dtype=dtype)
    numbers = _keys(keys, order)
    status = function(numbers.buffer_info()[0], None)
    return None if status < 0 else (order if status else None,)


def _keys(keys: Sequence[tuple[Tensor, int]], order: Tensor) -> array[int]:
    """Returns the numbers that `stable_order` in C++ reads."""
    numbers = array("q", [order.numel(), *_of(order), len(keys)])
    for vector, bound in keys:
        numbers.extend((*_of(vector), bound))
    return numbers


def reordered(vectors: Sequence[Tensor], order: Tensor | None, dtype: torch.dtype) -> list[Tensor] | None:
    """Returns copies of vectors of one length in another dtype, with their entries in ``order`` if there is one."""
    function = _function("reorder")
    if function is None or not all(map(_is_plain, vectors)):
        return None
    numbers = array("q", [vectors[0].numel(), *((0, 0) if order is None else _of(order))])
    made = _copies(vectors, dtype, numbers)
    function(numbers.buffer_info()[0], None)
    return made


def _copies(vectors: Sequence[Tensor], dtype: torch.dtype, numbers: array[int]) -> list[Tensor]:
    """Returns memory for copies of vectors; appends to ``numbers`` what `reordered` in C++ reads about both."""
    made = [torch.empty(vector.numel(), dtype=dtype) for vector in vectors]
    numbers.append(len(vectors))
    for vector, copy in zip(vectors, made, strict=True):
        numbers.extend((*_of(vector), *_of(copy)))
    return made


def sorted_rows(
    keys: Sequence[tuple[Tensor, int]], vectors: Sequence[Tensor], dtype: torch.dtype
) -> tuple[Tensor | None, list[Tensor]] | None:
    """Returns the order from `stable_order`, and copies of vectors in that order, in another dtype."""
    function = _function("sort_rows")
    if function is None or not all(map(_is_plain, vectors)):
        return None
    order = torch.empty(vectors[0].numel(), dtype=dtype)
    numbers = _keys(keys, order)
    made = _copies(vectors, dtype, numbers)
    status = function(numbers.buffer_info()[0], None)
    return None if status < 0 else (order if status else None, made)


def _ends(edge_index: Tensor | tuple[Tensor, Tensor]) -> tuple[int, int, int, int] | None:
    """Returns the addresses of sources and destinations in an edge index [2, E] or pair, bytes of an index, and E.

    Returns None unless both are vectors of one dtype on the host.
    """
    if isinstance(edge_index, tuple):
        src, dst = edge_index
        plain = _is_plain(src) and _is_plain(dst) and src.dtype is dst.dtype
        return (src.data_ptr(), dst.data_ptr(), src.element_size(), src.numel()) if plain else None
    if not edge_index.is_cpu or edge_index.dtype not in _INDICES or type(edge_index) is not Tensor:
        return None
    count, item, start = edge_index.size(1), edge_index.element_size(), edge_index.data_ptr()
    stride, step = edge_index.stride()
    return (start, start + stride * item, item, count) if step == 1 or count < 2 else None


def sorted_edges(
    edge_index: Tensor | tuple[Tensor, Tensor],
    edge_type: Tensor | None,
    bounds: tuple[int, int, int],
    dtype: torch.dtype,
) -> tuple[Tensor | None, tuple[Tensor, ...]] | None:
    """Returns the order of edges by type and destination (None if unchanged), and destinations, sources, types in it.

    Types are copied only if there are several. The result is also None if an index is out of range.

    Args:
        edge_index: [2, E], sources in row 0, or a pair of sources and destinations [E].
        bounds: Numbers of sources, destinations and types.
        dtype: The dtype of all results.
    """
    function, ends = _function("sort_edges"), _ends(edge_index)
    if function is None or ends is None or not (edge_type is None or _is_plain(edge_type)):
        return None
    src, dst, item, count = ends
    order = torch.empty(count, dtype=dtype)
    made = torch.empty(2 if edge_type is None or bounds[2] < 2 else 3, count, dtype=dtype)
    numbers = array("q", (
        count, order.data_ptr(), made.data_ptr(), dtype.itemsize,
        dst, item, bounds[1],
        src, item, bounds[0],
        *((0, 0) if edge_type is None else _of(edge_type)), bounds[2],
    ))  # fmt: skip
    status = function(numbers.buffer_info()[0], None)
    return None if status not in (0, 1) else (order if status else None, made.unbind())


def joined_parts(
    parts: Sequence[tuple[Tensor, int, tuple[int, int], tuple[int, int]]], nodes: Sequence[int], dtype: torch.dtype
) -> tuple[Tensor | None, tuple[Tensor, ...]] | None:
    """Returns the order of edges by type and destination (None if unchanged), and in it destinations, sources, types of
    edges, then types of nodes.

    The result is also None if an id is out of range.

    Args:
        parts: Edges [2, E] with ids local to the types of their ends, sources in row 0; their type; for sources and for
            destinations the number of nodes of their type, and the first one.
        nodes: Number of nodes of each type.
        dtype: The dtype of all results.
    """
    function = _function("join_parts")
    if function is None:
        return None
    described: list[tuple[int, ...]] = []
    begin = 0
    for edges, number, source, destination in parts:
        ends = _ends(edges)
        if ends is None:
            return None
        src, dst, item, count = ends
        described.append((number, begin, count, item, dst, *destination, src, *source))
        begin += count
    described.sort(key=itemgetter(0))
    order, made, types = (torch.empty(size, dtype=dtype) for size in (begin, 3 * begin, sum(nodes)))
    numbers = array("q", [begin, *[t.data_ptr() for t in (order, made, types)], dtype.itemsize, len(nodes), *nodes])
    numbers.append(len(described))
    for fields in described:
        numbers.extend(fields)
    status = function(numbers.buffer_info()[0], None)
    return None if status not in (0, 1) else (order if status else None, (*made.view(3, begin).unbind(), types))


def pointers(targets: Tensor, count: int, dtype: torch.dtype) -> Tensor | None:
    """Returns row starts [count + 1] of the groups of equal ``targets``, all below ``count``."""
    function = _function("find_pointers")
    if function is None or not _is_plain(targets):
        return None
    starts = torch.empty(count + 1, dtype=dtype)
    numbers = array("q", [len(targets), *_of(targets), count, *_of(starts)])
    function(numbers.buffer_info()[0], None)
    return starts


def groups_of_rows(starts: Tensor, order: Tensor | None, length: int) -> Tensor | None:
    """Returns the group of each row; ``order`` holds the rows in the order of the groups."""
    function = _function("find_groups")
    if function is None or not _is_plain(starts) or (order is not None and order.dtype is not starts.dtype):
        return None
    groups = torch.empty(length, dtype=starts.dtype)
    place = 0 if order is None else order.data_ptr()
    numbers = array("q", [len(starts) - 1, starts.data_ptr(), place, *_of(groups)])
    function(numbers.buffer_info()[0], None)
    return groups


def mean_weights(dst: Tensor, types: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """Returns 1 / number of edges with the same destination and type, for edges sorted by both."""
    function = _function("find_mean_weights")
    plain = _is_plain(dst) and (types is None or _is_plain(types))
    if function is None or not plain or dtype not in (torch.float32, torch.float64):
        return None
    weights = torch.empty(dst.numel(), dtype=dtype)
    place = 0 if types is None else types.data_ptr()
    numbers = array("q", [dst.numel(), dst.data_ptr(), place, dst.element_size(), *_of(weights)])
    function(numbers.buffer_info()[0], None)
    return weights


def symmetric_weights(src: Tensor, dst: Tensor, nodes: int, dtype: torch.dtype) -> Tensor | None:
    """Returns for each edge 1 / root of the product of both ends' in-degrees; 0 where one of them is 0."""
    function = _function("find_symmetric_weights")
    if function is None or not (_is_plain(src) and _is_plain(dst)) or dtype not in (torch.float32, torch.float64):
        return None
    weights = torch.empty(dst.numel(), dtype=dtype)
    numbers = array("q", [dst.numel(), nodes, src.data_ptr(), *_of(dst), *_of(weights)])
    return None if function(numbers.buffer_info()[0], None) < 0 else weights


def degrees(ends: Tensor, nodes: int, dtype: torch.dtype, *, roots: bool = False) -> Tensor | None:
    """Returns how many edges end at each node; if ``roots``, 1 / root of that, and 0 where it is 0."""
    function = _function("find_degrees")
    if function is None or not _is_plain(ends) or dtype not in (torch.float32, torch.float64):
        return None
    found = torch.empty(nodes, dtype=dtype)
    numbers = array("q", [ends.numel(), nodes, roots, *_of(ends), *_of(found)])
    return None if function(numbers.buffer_info()[0], None) < 0 else found


def with_loops(edge_index: Tensor, sizes: tuple[int, int], count: int) -> Tensor | None:
    """Returns the edges between different nodes, then a self loop at each of ``count`` nodes.

    The result is also None if an index is out of range.

    Args:
        edge_index: [2, E], sources in row 0.
        sizes: Numbers of sources and destinations.
    """
    function, ends = _function("add_loops"), _ends(edge_index)
    if function is None or ends is None:
        return None
    src, dst, item, edges = ends
    made = torch.empty(2, edges + count, dtype=edge_index.dtype)
    start = made.data_ptr()
    numbers = array("q", [edges, src, dst, item, *sizes, count, start, start + (edges + count) * item])
    num_edges = function(numbers.buffer_info()[0], None)
    return None if num_edges < 0 else made[:, :num_edges]


def checksum(vectors: Sequence[Tensor]) -> int | None:
    """Returns a checksum of the vectors, which differs (with rare exceptions) if any entry differs."""
    function = _function("find_checksum")
    if function is None or not all(map(_is_plain, vectors)):
        return None
    numbers = _described(vectors)
    return function(numbers.buffer_info()[0], None)


def encode(
    words: array[int],
    sizes: Sequence[int],
    inputs: Sequence[Tensor],
    counts: Sequence[int],
    kept: Sequence[bool],
    empty: Callable[[int], Tensor],
) -> tuple[Tensor, list[Tensor | int | None]] | None:
    """Returns the results of the steps of `Steps`: memory, and where each vector that is kept starts in it.

    In place of a start there is a tensor with the vector, or None for the order that rows already have.

    Args:
        words: The words of the steps.
        sizes: Sizes of the row spaces that the steps read.
        inputs: The vectors that the steps read, all of one dtype.
        counts: Lengths of the vectors that the steps make.
        kept: Which of these vectors are wanted; only other ones are made of the rest.
        empty: Returns memory for a number of indices.
    """
    function = _function("make_encodings")
    if function is None or not all(map(_is_plain, inputs)):
        return None
    memory = empty(sum(count for count, own in zip(counts, kept, strict=True) if own))
    rest = torch.empty(sum(counts) - len(memory), dtype=memory.dtype)
    item, ends = memory.itemsize, {True: memory.data_ptr(), False: rest.data_ptr()}
    addresses: list[int] = []
    for count, own in zip(counts, kept, strict=True):
        addresses.append(ends[own])
        ends[own] += count * item
    numbers = array("q", [item])
    numbers.extend(words)
    data = array("q", [len(sizes), *sizes, 0, *[t.data_ptr() for t in inputs], *addresses])
    if function(numbers.buffer_info()[0], data.buffer_info()[0]) < 0:
        return None
    # Where C++ has changed an address, it is the address of an equal vector, or 0.
    places: list[Tensor | int | None] = []
    for own, place, count, is_kept in zip(addresses, data[len(data) - len(addresses) :], counts, kept, strict=True):
        same = None if place in (0, own) else next((t for t in inputs if t.data_ptr() == place), None)
        if place == 0 or not is_kept:
            places.append(None)
        elif same is None and place != own and rest.data_ptr() <= place < ends[False]:
            start = (place - rest.data_ptr()) // item
            places.append(rest[start : start + count].clone())
        else:
            places.append((place - memory.data_ptr()) // item if same is None else same)
    return memory, places


def count_edges(
    edges: tuple[Tensor, Tensor],
    types: tuple[Tensor | None, int],
    nodes: tuple[int, int],
    by_source: Tensor | None,
    node_types: tuple[Tensor | None, Tensor | None],
    empty: Callable[[int], Tensor] | None = None,
) -> tuple[list[int], Sequence[Tensor]] | None:
    """Returns the fields of `EdgeCounts` in ``edge_counts.h``, and the starts of source pairs and destination pairs.

    Args:
        edges: Sources and destinations [E] in canonical order; all vectors have the same dtype.
        types: Types of the edges [E], None if there is one, and the number of types.
        nodes: Numbers of sources and destinations.
        by_source: [E] the edges sorted by type and source; None if they are in that order.
        node_types: Types of sources and of destinations; None if there is one.
        empty: Returns a vector of a length for the starts; None for vectors in memory.
    """
    function = _function("count_edges")
    if function is None or max(nodes) >= _LIMIT or not all(map(_is_plain, edges)):
        return None
    src, dst = edges
    rows = src.numel() + 1
    starts = torch.empty(2, rows, dtype=src.dtype).unbind() if empty is None else (empty(rows), empty(rows))
    others = (types[0], by_source, *node_types)
    numbers = array("q", [src.numel(), types[1], *nodes, src.element_size(), src.data_ptr(), dst.data_ptr()])
    numbers.extend([0 if vector is None else vector.data_ptr() for vector in others])
    numbers.extend([vector.data_ptr() for vector in starts])
    counts = array("q", bytes(8 * 14))
    if function(numbers.buffer_info()[0], counts.buffer_info()[0]) < 0:
        return None
    return counts.tolist(), starts
