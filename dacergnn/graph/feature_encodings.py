"""Encodings of a graph with sparse features: of the graph, and of the nonzeros of the features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from dacergnn.graph.counting import COUNTED
from dacergnn.graph.counts import Counts
from dacergnn.graph.encodings import Encodings
from dacergnn.graph.nonzeros import Nonzeros
from dacergnn.graph.sorting import INT32_LIMIT
from dacergnn.graph.spaces import (
    FEATURE_SPACES,
    GRAPH_SPACES,
    NODE_SIDES,
    PAIR_NONZEROS,
    parse_encoding,
)


class FeatureEncodings(Encodings):
    """Adds encodings of nonzeros to the encodings ``base`` of a graph, which are shared.

    Args:
        nonzeros: Nonzeros of the features, by side ("S" for sources, "D" for destinations).
    """

    def __init__(self, base: Encodings, nonzeros: Mapping[str, Nonzeros]) -> None:
        super().__init__(base.edges)
        self._base = base
        self._nonzeros = dict(nonzeros)
        self.spaces = (*GRAPH_SPACES, *(s for s in FEATURE_SPACES if s[-1] in nonzeros))
        widest = 0
        for side, matrix in nonzeros.items():
            columns, entries = matrix.shape[1], len(matrix.columns)
            types, relations = base.size("T"), base.size("R")
            own = {"Z": entries, "F": columns, "TF": types * columns, "RF": relations * columns}
            self._sizes |= {space + side: rows for space, rows in own.items()}
            widest = max(widest, types * columns, relations * max(columns, entries))
        if widest >= INT32_LIMIT:
            self._dtype = torch.int64

    def size(self, space: str) -> int:
        if space not in FEATURE_SPACES:
            return self._base.size(space)
        if space in PAIR_NONZEROS and space[-1] in self._nonzeros and space not in self._sizes:
            spaces = [s for s in PAIR_NONZEROS if s[-1] in self._nonzeros]
            self._sizes |= zip(spaces, torch.stack([self._pair_counts(s).sum() for s in spaces]).tolist(), strict=True)
        return super().size(space)

    @property
    def counts(self) -> Counts:
        return self._base.counts

    def get(self, name: str) -> Tensor:
        if name in self._built:
            return self._built[name]
        if parse_encoding(name).space in FEATURE_SPACES:
            return super().get(name)
        shared = self._base.get(name)
        return shared if shared.dtype == self._dtype else self.once(name, lambda: shared.to(self._dtype))

    def addresses(self, names: Sequence[str]) -> list[int]:
        with self._base._lock:  # the graph must not forget vectors meanwhile, nor those that it gives later
            self._base._addressed |= COUNTED.intersection(names)
            return super().addresses(names)

    def make(self, names: Sequence[str]) -> None:
        self._base.make([name for name in names if parse_encoding(name).space not in FEATURE_SPACES])
        super().make([name for name in names if parse_encoding(name).space in FEATURE_SPACES])

    def built(self) -> list[Tensor]:
        own = [t for n in self._nonzeros.values() for t in (n.starts, n.columns, n.order) if t is not None]
        return [*super().built(), *self._base.built(), *own]

    def _index(self, space: str, path: str) -> Tensor:
        if space not in FEATURE_SPACES:
            return self._base.get(f"idx_{space}_{path}")
        if path == "one":
            return super()._index(space, path)
        matrix = self._nonzeros[space[-1]]
        if space in PAIR_NONZEROS:
            return self._of_pairs(space, path)
        if path == "column":
            return matrix.columns.to(self._dtype)
        if path == "row":
            rows = torch.arange(matrix.shape[0], dtype=self._dtype, device=self._device)
            return rows.repeat_interleave(matrix.starts.diff(), output_size=len(matrix.columns))
        types = self.get(f"idx_{NODE_SIDES[space[-1]]}_ntype").index_select(0, self.get(f"idx_{space}_row"))
        return types * matrix.shape[1] + self.get(f"idx_{space}_column")

    def _of_pairs(self, space: str, path: str) -> Tensor:
        """Returns where the nonzeros of pairs lead; a pair has the nonzeros of its node, in order."""
        side, (pairs, _) = space[-1], PAIR_NONZEROS[space]
        counts, total = self._pair_counts(space), self.size(space)
        if path == "pair":
            rows = torch.arange(self.size(pairs), dtype=self._dtype, device=self._device)
            return rows.repeat_interleave(counts, output_size=total)
        if path == "nonzero":
            shift = self._pair_nodes(space, self._nonzeros[side].starts[:-1]) - (counts.cumsum(0) - counts)
            own = torch.arange(total, device=self._device) + shift.repeat_interleave(counts, output_size=total)
            return own.to(self._dtype)
        types = self.get(f"idx_{pairs}_etype").index_select(0, self.get(f"idx_{space}_pair"))
        columns = self.get(f"idx_Z{side}_column").index_select(0, self.get(f"idx_{space}_nonzero"))
        return types * self._nonzeros[side].shape[1] + columns

    def _pair_counts(self, space: str) -> Tensor:
        """Returns the number of nonzeros of each pair."""
        return self._pair_nodes(space, self._nonzeros[space[-1]].starts.diff())

    def _pair_nodes(self, space: str, values: Tensor) -> Tensor:
        """Returns for each pair the value of its node."""
        pairs, end = PAIR_NONZEROS[space]
        return values.index_select(0, self._base.get(f"idx_{pairs}_{end}"))

    def _pointers(self, space: str, path: str) -> Tensor:
        if path == "row":
            return self._nonzeros[space[-1]].starts.to(self._dtype)
        return super()._pointers(space, path)
