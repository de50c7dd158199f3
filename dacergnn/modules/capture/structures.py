"""Looks into structures of arguments and results of functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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


def mapped(tree: Any, of: Callable[[Any], Any]) -> Any:
    """Returns a structure with what a function returns for what it holds; lists are those of Python."""
    if isinstance(tree, tuple):
        return tuple([mapped(v, of) for v in tree])
    if isinstance(tree, list):
        return [mapped(v, of) for v in tree]
    if isinstance(tree, Mapping):
        return {k: mapped(v, of) for k, v in tree.items()}
    return slice(*[mapped(v, of) for v in (tree.start, tree.stop, tree.step)]) if isinstance(tree, slice) else of(tree)


def with_numbers(tree: Any) -> Any:
    """Returns a structure with plain numbers in place of sizes."""
    return mapped(tree, lambda leaf: number(leaf) if type(leaf) is Size else plain(leaf))
