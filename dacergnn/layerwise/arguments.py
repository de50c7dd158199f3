"""Checks of the arguments of an inference."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from dacergnn.errors import ArrayError
from dacergnn.layerwise.arrays import Array, Target, check_array, share_memory
from dacergnn.layerwise.calls import ONLY
from dacergnn.layerwise.ranges import Key
from dacergnn.layerwise.steps import Step


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
        rule = "give dictionaries by type for all of graph, x, out and edge arrays, or for none"
        raise ArrayError(name, f"is a {kind}, and graph is {'' if typed else 'not '}a dictionary; {rule}")
    return dict(argument) if typed else {only: argument}


def check_features(x: Mapping[str, Array], targets: Mapping[str, Target]) -> None:
    """Raises ArrayError unless rows can be taken of all features, and results written to all targets."""
    for kind, array in x.items():
        check_array(f"x[{kind!r}]" if kind else "x", array)
    for kind, target in targets.items():
        _check_target(target)
        if isinstance(target, np.ndarray | Tensor) and any(share_memory(target, array) for array in x.values()):
            raise ArrayError("out", "lies in the memory of x, which is read until the end; give another array")
        if kind not in x:
            raise ArrayError("out", f"has a target for {kind!r}, a type that x has no features of")


def _check_target(target: object) -> None:
    if not isinstance(target, np.ndarray | Tensor | str | os.PathLike):
        raise ArrayError("out", f"is a {type(target).__name__}; give an array, or the path of a .npy file")
    if isinstance(target, np.ndarray) and not target.flags.writeable:
        raise ArrayError("out", "is an array that cannot be written to; give another, or a path")


def check_types(edges: Mapping[Key, object], x: Mapping[str, object], who: str) -> None:
    """Raises ArrayError unless there are features for both ends of all relations."""
    for key in edges:
        if key != ONLY and not _is_key(key):
            rule = "give (source type, relation, destination type), which are texts that are not empty"
            raise ArrayError("graph", f"has the key {key!r}; {rule}")
        for kind in (key[0], key[2]):
            if kind not in x:
                raise ArrayError("graph", f"has edges {key}, but {who} no features of type {kind!r}; leave them out")


def _is_key(key: Any) -> bool:
    return isinstance(key, tuple) and len(key) == 3 and all(isinstance(name, str) and name for name in key)


def check_arrays(
    arrays: Mapping[str, Mapping[Key, Array]],
    edges: Mapping[Key, Tensor],
    nodes: Mapping[Key, int],
    steps: Sequence[Step],
) -> None:
    """Raises ArrayError unless arrays have a row for each edge, or for each of ``nodes``, and a step takes them."""
    for name, by_key in arrays.items():
        if not any(step.takes(name) for step in steps):
            raise ArrayError(name, f"is taken by none of the layers {', '.join(step.name for step in steps)}")
        for key, array in by_key.items():
            where = f"{name}[{key}]" if any(key) else name
            check_array(where, array)
            if key not in edges:
                raise ArrayError(where, "is of a relation that graph does not have")
            if len(array) not in (edges[key].size(1), nodes.get(key)):
                count = edges[key].size(1)
                other = f", or for each of the {nodes[key]} nodes" if key in nodes else ""
                raise ArrayError(
                    where, f"has {len(array)} rows; give one for each of the {count} edges, in their order{other}"
                )
