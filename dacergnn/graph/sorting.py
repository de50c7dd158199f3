"""Sorts and groups index vectors stably, on any device; in C++ where the vectors are on the host."""

from __future__ import annotations

import torch
from torch import Tensor

from dacergnn.graph import native_sorting

INT32_LIMIT = 2**31
INT64_LIMIT = 2**63


def at_hand(tensor: Tensor) -> bool:
    """Tells whether the host can read a tensor without waiting for a device."""
    return tensor.is_cpu


def equal(*pairs: tuple[Tensor, Tensor]) -> bool:
    """Tells whether the two tensors of each pair are equal; reads from a device only once."""
    if any(a.shape != b.shape for a, b in pairs):
        return False
    if all(at_hand(a) for a, _ in pairs):
        return all(torch.equal(a, b) for a, b in pairs)
    return bool(torch.stack([(a == b).all() for a, b in pairs]).all())


def ascends(*keys: Tensor) -> Tensor:
    """Returns bool[]: whether rows with these keys (most important first) are in order."""
    in_order = torch.ones((), dtype=torch.bool, device=keys[0].device)
    for vector in reversed(keys):
        before, after = vector[:-1], vector[1:]
        in_order = (before < after) | ((before == after) & in_order)
    return in_order.all()


def combine(keys: list[tuple[Tensor, int]]) -> Tensor | None:
    """Returns one int32 or int64 key in the order of the tuple of `keys` (vector, bound); None if it would not fit."""
    bound = 1
    for _, limit in keys:
        bound *= max(limit, 1)
    if bound >= INT64_LIMIT:
        return None
    combined = keys[0][0].long()
    for vector, limit in keys[1:]:
        combined = combined * max(limit, 1) + vector
    return combined.int() if bound < INT32_LIMIT else combined


def stable_order(
    keys: list[tuple[Tensor, int]], *, ask: bool = True, dtype: torch.dtype = torch.int64
) -> Tensor | None:
    """Returns positions of rows, stably sorted by `keys` (most important first); None if they are known to be sorted.

    Args:
        ask: Check whether rows are sorted already, for which the host waits for a device.
        dtype: The dtype of the positions.
    """
    if at_hand(keys[0][0]):
        native_order = native_sorting.stable_order(keys, dtype)
        if native_order is not None:
            return native_order[0]
    order = _stable_order(keys, ask)
    return None if order is None else order.to(dtype)


def _stable_order(keys: list[tuple[Tensor, int]], ask: bool) -> Tensor | None:
    combined = combine(keys)
    if combined is not None:
        return None if ask and bool(ascends(combined)) else torch.sort(combined, stable=True).indices
    # Too wide for one key: sort by the least important key first; later sorts keep its order.
    order = torch.sort(keys[-1][0], stable=True).indices
    for vector, _ in reversed(keys[:-1]):
        order = order[torch.sort(vector[order], stable=True).indices]
    return order


def reordered(vectors: list[Tensor], order: Tensor | None, dtype: torch.dtype) -> list[Tensor]:
    """Returns copies of vectors of one length in another dtype, with their entries in `order` if there is one."""
    if at_hand(vectors[0]):
        copies = native_sorting.reordered(vectors, order, dtype)
        if copies is not None:
            return copies
    rows = [vector if order is None else vector.index_select(0, order) for vector in vectors]
    return [row.to(dtype, copy=order is None, memory_format=torch.contiguous_format) for row in rows]


def sorted_rows(
    keys: list[tuple[Tensor, int]], others: list[Tensor], dtype: torch.dtype
) -> tuple[Tensor | None, list[Tensor]]:
    """Returns copies of the vectors of `keys` and of `others` in another dtype, stably sorted by the keys.

    Returns:
        The rows in that order, None if they are known to be sorted; the copies.
    """
    vectors = [*(vector for vector, _ in keys), *others]
    if at_hand(keys[0][0]):
        order_and_copies = native_sorting.sorted_rows(keys, vectors, dtype)
        if order_and_copies is not None:
            return order_and_copies
    order = stable_order(keys, ask=at_hand(keys[0][0]), dtype=dtype)
    return order, reordered(vectors, order, dtype)


def groups_of_rows(starts: Tensor, order: Tensor | None, length: int) -> Tensor:
    """Returns the group of each of `length` rows; `order` holds the rows in the order of the groups, None if sorted."""
    if at_hand(starts):
        native_groups = native_sorting.groups_of_rows(starts, order, length)
        if native_groups is not None:
            return native_groups
    groups = torch.arange(len(starts) - 1, dtype=starts.dtype, device=starts.device)
    groups = groups.repeat_interleave(starts.diff(), output_size=length)
    return groups if order is None else torch.empty_like(groups).index_copy_(0, order.long(), groups)


def pointers(targets: Tensor, count: int, dtype: torch.dtype = torch.int64) -> Tensor:
    """Returns row starts [count + 1] of the groups of equal `targets`, all below `count`."""
    if at_hand(targets):
        starts = native_sorting.pointers(targets, count, dtype)
        if starts is not None:
            return starts
    return _pointers(targets, count).to(dtype)


def _pointers(targets: Tensor, count: int) -> Tensor:
    starts = torch.zeros(count + 1, dtype=torch.int64, device=targets.device)
    if len(targets):
        torch.cumsum(occurrences(targets, count), 0, out=starts[1:])
    return starts


def occurrences(targets: Tensor, count: int) -> Tensor:
    """Returns int64[count]: how often each number below `count` is among `targets`."""
    if at_hand(targets):
        return torch.bincount(targets, minlength=count)
    # On devices, bincount waits for the size of its result.
    ones = torch.ones_like(targets, dtype=torch.int64)
    return torch.zeros(count, dtype=torch.int64, device=targets.device).scatter_add_(0, targets.long(), ones)


def longest_group(targets: Tensor, count: int) -> Tensor:
    """Returns int64[]: how often the most frequent number is among `targets`, which are below `count` and not empty."""
    if count < INT32_LIMIT:
        return occurrences(targets, count).max()
    # There are too many numbers to count each.
    return group_starts(torch.sort(targets).values, rows=len(targets) + 1).diff().max()


def group_starts(*sorted_keys: Tensor, rows: int) -> Tensor:
    """Returns int64[rows]: the first rows of groups with equal keys, jointly sorted; then the number of all rows."""
    starts = _segment_starts(*sorted_keys)
    return torch.nonzero_static(starts, size=rows, fill_value=len(starts)).flatten()


def _segment_starts(*sorted_keys: Tensor) -> Tensor:
    """Returns bool[n]: the rows where one of the jointly sorted keys changes; the first row is a start."""
    starts = torch.zeros_like(sorted_keys[0], dtype=torch.bool)
    if len(starts):
        starts[0] = True
        for keys in sorted_keys:
            starts[1:] |= keys[1:] != keys[:-1]
    return starts
