"""Arguments of an inference, and checks of them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from dacergnn.errors import ArrayError
from dacergnn.layerwise.arrays import Array, check_array, share_memory
from dacergnn.layerwise.ranges import ONLY, Key
from dacergnn.layerwise.steps import Step, in_words

Group = str | Key
"""A node type, or a relation; rows are those of nodes or of edges."""
FEATURES, GRAPH = "x", "graph"
"""The names of the first two arguments of a model."""


@dataclass(frozen=True, eq=False)
class Argument:
    """Describes a tensor among the arguments of a model.

    Args:
        name: The name of the argument.
        group: The nodes or edges that it has rows of.
        typed: Whether the argument is a dictionary, in which the group is the key.
        array: The tensor, or an array in its place.
    """

    name: str
    group: Group
    typed: bool
    array: Array

    @property
    def axis(self) -> int:
        """Returns the axis of the rows."""
        return 1 if self.name == GRAPH else 0


def check_batch(batch: object) -> None:
    """Raises ArrayError unless this is a number of destinations."""
    if isinstance(batch, bool) or not isinstance(batch, int) or batch < 1:
        raise ArrayError("batch", f"is {batch!r}; give the number of destinations in a range, 1 or more")


def by_type(name: str, argument: Any, typed: bool, only: Any) -> dict[Any, Any]:
    """Returns an argument as a dictionary by type, also for a graph without types, whose one type is ``only``.

    Raises:
        ArrayError: It is a dictionary and the graph is not, or the other way round.
    """
    if isinstance(argument, Mapping) != typed:
        kind = type(argument).__name__
        rule = "give dictionaries by type for all of graph, x and arrays, or for none"
        raise ArrayError(name, f"is a {kind}, and graph is {'' if typed else 'not '}a dictionary; {rule}")
    return dict(argument) if typed else {only: argument}


def check_features(x: Mapping[str, Array]) -> None:
    """Raises ArrayError unless rows can be taken of all features."""
    for kind, array in x.items():
        check_array(f"x[{kind!r}]" if kind else "x", array)


def check_targets(targets: Mapping[Any, object], x: Mapping[str, Array]) -> None:
    """Raises ArrayError unless results can be written to all targets."""
    for target in targets.values():
        if not isinstance(target, np.ndarray | Tensor | str | os.PathLike):
            raise ArrayError("out", f"is a {type(target).__name__}; give an array, or the path of a .npy file")
        if isinstance(target, np.ndarray) and not target.flags.writeable:
            raise ArrayError("out", "is an array that cannot be written to; give another, or a path")
        if isinstance(target, np.ndarray | Tensor) and any(share_memory(target, array) for array in x.values()):
            raise ArrayError("out", "lies in the memory of x, which is read until the end; give another array")


def check_types(edges: Mapping[Key, object], x: Mapping[str, object]) -> None:
    """Raises ArrayError unless there are features for both ends of all relations."""
    for key in edges:
        if key != ONLY and not _is_key(key):
            rule = "give (source type, relation, destination type), which are texts that are not empty"
            raise ArrayError("graph", f"has the key {key!r}; {rule}")
        for kind in (key[0], key[2]):
            if kind not in x:
                raise ArrayError("graph", f"has edges {key}, but x has no features of type {kind!r}; leave them out")


def _is_key(key: Any) -> bool:
    return isinstance(key, tuple) and len(key) == 3 and all(isinstance(name, str) and name for name in key)


def arguments_of(
    x: Mapping[str, Array],
    edges: Mapping[Key, Tensor],
    arrays: Mapping[str, Mapping[Any, Array]],
    steps: Sequence[Step],
    typed: bool,
) -> list[Argument]:
    """Returns the arguments of a model.

    Raises:
        ArrayError: An array has a row neither for each edge nor for each node, or no step takes it.
    """
    found = [Argument(FEATURES, kind, typed, array) for kind, array in x.items()]
    found += [Argument(GRAPH, key, typed, index) for key, index in edges.items()]
    for name, by_key in arrays.items():
        if not any(step.takes(name) for step in steps):
            raise ArrayError(name, f"is taken by none of the layers {in_words(steps)}")
        for key, array in by_key.items():
            where = f"{name}[{key!r}]" if typed else name
            check_array(where, array)
            if key not in edges and key not in x:
                raise ArrayError(where, "is of a relation or node type that graph does not have")
            counts = {group: _count(group, x, edges) for group in ([key] if typed else ["", ONLY])}
            if len(array) not in counts.values():
                rows = " or ".join(f"each of the {n} {'nodes' if g in x else 'edges'}" for g, n in counts.items())
                raise ArrayError(where, f"has {len(array)} rows; give one for {rows}, in their order")
            groups = [group for group, count in counts.items() if len(array) == count]
            found.append(Argument(name, groups[-1 if name.startswith("edge") else 0], typed, array))
    return found


def _count(group: Group, x: Mapping[str, Array], edges: Mapping[Key, Tensor]) -> int:
    return len(x[group]) if isinstance(group, str) else edges[group].size(1)
