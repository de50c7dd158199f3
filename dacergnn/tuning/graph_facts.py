"""Facts of a graph for performance models: its sizes and the distribution of its groups of edges."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from torch import Tensor

from dacergnn.errors import DacergnnError
from dacergnn.graph import HeteroGraph
from dacergnn.graph.profile import Profile
from dacergnn.graph.sorting import occurrences

QUANTILES = (0.0, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)
GROUPS = ("src", "dst", "srcpair", "dstpair")
"""Paths from edges to the rows that group them: end points, and pairs of an end point with a relation."""
LENGTHS = tuple(f"{round(100 * q)}%" for q in QUANTILES)
_SIZES = ("NS", "ND", "E", "U", "V", "R", "T")
_RATIOS = (("E", "NS"), ("E", "ND"), ("E", "U"), ("E", "V"), ("E", "R"), ("NS", "T"))
GRAPH_COUNTS = (
    *(f"graph_{space}" for space in _SIZES),
    *(f"graph_{a}_per_{b}" for a, b in _RATIOS),
    *(f"graph_{path}_{length}" for path in GROUPS for length in LENGTHS),
)
"""Names of the features that a graph adds to those of operators."""


@dataclass(frozen=True)
class GraphFacts(Profile):
    """Holds the facts of one graph: its profile, by which passes choose, and the lengths of its groups of edges.

    Args:
        lengths: By path, the `QUANTILES` of the number of edges in a group; zeros where there are no groups.
    """

    lengths: tuple[tuple[str, tuple[int, ...]], ...] = ()

    @classmethod
    def of(cls, graph: HeteroGraph) -> GraphFacts:
        """Returns the facts of a graph, which are kept with it; counts its unique pairs."""
        if cls not in graph.derived:
            profile = Profile.of(graph)
            lengths = {path: _quantiles(counts.cpu().numpy()) for path, counts in _group_lengths(graph).items()}
            own = tuple(lengths.items())
            graph.derived[cls] = cls(profile.rows, profile.single_typed, profile.hubs, profile.origin, own)
        return graph.derived[cls]

    @cached_property
    def quantiles(self) -> Mapping[str, tuple[int, ...]]:
        """Returns the lengths by path."""
        return dict(self.lengths)

    @cached_property
    def counts(self) -> dict[str, float]:
        """Returns the features of the graph, by `GRAPH_COUNTS`."""
        sizes = self.sizes
        values = [float(sizes[space]) for space in _SIZES]
        values += [sizes[a] / max(sizes[b], 1) for a, b in _RATIOS]
        values += [float(length) for path in GROUPS for length in self.quantiles[path]]
        return dict(zip(GRAPH_COUNTS, values, strict=True))

    def to_json(self) -> str:
        """Returns the facts as one line of JSON."""
        own = {"hubs": self.longest, "lengths": dict(self.lengths)}
        return json.dumps({"rows": self.sizes, "single_typed": self.single_typed, **own})

    @classmethod
    def from_json(cls, text: str) -> GraphFacts:
        """Returns the facts that `to_json` wrote; raises DacergnnError for any other text."""
        try:
            facts: Any = json.loads(text)
            lengths = tuple((path, tuple(facts["lengths"][path])) for path in GROUPS)
            rows, hubs = tuple(facts["rows"].items()), tuple(facts["hubs"].items())
            return cls(rows, facts["single_typed"], hubs, lengths=lengths)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DacergnnError(f"facts: {text[:60]!r}: {error}; pass the text that to_json() makes.") from None


def _quantiles(counts: np.ndarray) -> tuple[int, ...]:
    """Returns the `QUANTILES` of counts; each is one of the counts, the next larger one where none is exact."""
    if not len(counts):
        return (0,) * len(QUANTILES)
    return tuple(int(n) for n in np.quantile(counts, QUANTILES, method="higher"))


def _group_lengths(graph: HeteroGraph) -> dict[str, Tensor]:
    """Returns the number of edges of every group, by the path to its row: end points, and pairs of them with a type."""
    ends = {path: occurrences(graph.index("E", path), graph.size(n)) for path, n in (("src", "NS"), ("dst", "ND"))}
    return ends | {path: graph.encoding(f"ptr_E_{path}").diff() for path in ("srcpair", "dstpair")}
