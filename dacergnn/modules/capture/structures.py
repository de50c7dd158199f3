"""Looks into structures of arguments and results of functions."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from dacergnn.frontends.symbolic.edges import plain
from dacergnn.frontends.symbolic.sizes import Size, number


def flat(tree: Any) -> list[Any]:
    """Returns what a structure holds."""
    if isinstance(tree, tuple | list):
        return [v for item in tree for v in flat(item)]
    if isinstance(tree, dict):
        return [v for item in tree.values() for v in flat(item)]
    if isinstance(tree, slice):
        return [tree.start, tree.stop, tree.step]
    return [tree]


def tensors_in(tree: Any) -> list[Tensor]:
    """Returns the tensors in a structure."""
    return [v for v in flat(tree) if isinstance(v, Tensor)]


def with_numbers(tree: Any) -> Any:
    """Returns a structure with plain numbers in place of sizes."""
    if type(tree) is Size:
        return number(tree)
    if isinstance(tree, tuple | list):
        return type(tree)(map(with_numbers, tree))
    return {k: with_numbers(v) for k, v in tree.items()} if isinstance(tree, dict) else plain(tree)
