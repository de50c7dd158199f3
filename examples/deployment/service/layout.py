"""Joins the graphs of several requests into one, and splits its results again.

The graphs are kept apart: the nodes of each are numbered behind those of the graphs before. Whatever a model computes
of the neighbours of a node is then the same as for each graph alone. A model that mixes all nodes, such as by a softmax
over all rows, must not be served so.

The names in the manifest tell what is what. Features of nodes are called ``<argument>.<type>``, and edges
``<argument>.<source type>__<relation>__<destination type>``. Results have a row for each node of a type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Layout:
    """Holds what the arrays of a model mean.

    Args:
        inputs: The inputs of the manifest, by name.
        types: The type of nodes of each array of features.
        ends: The types of the sources and of the destinations of each array of edges.
        results: The type of nodes of each result.
    """

    inputs: Mapping[str, Mapping[str, Any]]
    types: Mapping[str, str]
    ends: Mapping[str, tuple[str, str]]
    results: Mapping[str, str]

    @classmethod
    def of(cls, manifest: Mapping[str, Any]) -> Layout | None:
        """Returns the layout of a model; None if the names do not tell it."""
        inputs = {described["name"]: described for described in manifest["inputs"]}
        parts = {name: name.rpartition(".")[2].split("__") for name in inputs}
        types = {name: part[0] for name, part in parts.items() if len(part) == 1 and not _fixed(inputs[name], 0)}
        ends = {
            name: (part[0], part[-1]) for name, part in parts.items()
            if len(part) == 3 and inputs[name]["shape"][0] == 2 and not _fixed(inputs[name], 1)
        }  # fmt: skip
        by_size = {inputs[name]["shape"][0]: own for name, own in types.items()}
        results = {own["name"]: by_size.get(own["shape"][0] if own["shape"] else None) for own in manifest["outputs"]}
        known = set(types.values()) >= {own for pair in ends.values() for own in pair}
        if not known or None in results.values() or types.keys() | ends.keys() != inputs.keys():
            return None
        return cls(inputs, types, ends, {name: own for name, own in results.items() if own is not None})

    def fits(self, arrays: Mapping[str, np.ndarray]) -> bool:
        """Returns whether a request may be joined with others: nothing in it is wrong.

        An index out of range would name a node of another request after joining.
        """
        if arrays.keys() != self.inputs.keys():
            return False
        for name, described in self.inputs.items():
            array, shape = arrays[name], described["shape"]
            if array.dtype != described["dtype"] or array.ndim != len(shape):
                return False
            if any(isinstance(size, int) and size != own for size, own in zip(shape, array.shape, strict=True)):
                return False
        counts = self.counts(arrays)
        if any(len(arrays[name]) != counts[own] for name, own in self.types.items()):
            return False
        return all(
            not arrays[name].size or (arrays[name].min() >= 0 and all(arrays[name].max(1) < [counts[s], counts[d]]))
            for name, (s, d) in self.ends.items()
        )

    def counts(self, arrays: Mapping[str, np.ndarray]) -> dict[str, int]:
        """Returns the number of nodes of each type."""
        return {own: len(arrays[name]) for name, own in self.types.items()}

    def join(self, requests: Sequence[Arrays]) -> Arrays:
        """Returns one graph with those of all requests."""
        joined = {name: np.concatenate([arrays[name] for arrays in requests]) for name in self.types}
        starts = self._starts(requests)
        for name, (source, destination) in self.ends.items():
            own = [r[name] + [[starts[source][i]], [starts[destination][i]]] for i, r in enumerate(requests)]
            joined[name] = np.concatenate(own, axis=1, dtype=self.inputs[name]["dtype"])
        return joined

    def split(self, results: Arrays, requests: Sequence[Arrays]) -> list[Arrays]:
        """Returns the results of each request."""
        starts = self._starts(requests)
        parts = {name: np.split(results[name], starts[own][1:-1]) for name, own in self.results.items()}
        return [{name: part[i] for name, part in parts.items()} for i in range(len(requests))]

    def _starts(self, requests: Sequence[Arrays]) -> dict[str, list[int]]:
        """Returns the first node of each request, and the number of all nodes, by type."""
        counts = [self.counts(arrays) for arrays in requests]
        return {own: [0, *np.cumsum([c[own] for c in counts]).tolist()] for own in self.types.values()}


def _fixed(described: Mapping[str, Any], axis: int) -> bool:
    shape = described["shape"]
    return len(shape) <= axis or isinstance(shape[axis], int)
