"""Keeps graphs in folders, and takes them apart for other processes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from dacergnn.config import CheckGraph, size_of
from dacergnn.errors import ArrayError, GraphError
from dacergnn.graph import out_of_core, saved
from dacergnn.graph.edge_list import ArrayLike, EdgeIndexLike, EdgeList, all_zero, make_edge_list
from dacergnn.graph.encodings import Encodings

_NONE = torch.empty(0, dtype=torch.int64)


class StoredGraph:
    """Represents a graph that folders can hold; `HeteroGraph` is the one."""

    _edges: EdgeList
    _edge_perm: Tensor | None
    _encodings: Encodings
    check: CheckGraph

    @abstractmethod
    def _hold(self, encodings: Encodings, edge_perm: Tensor | None) -> None:
        """Takes encodings of edges in canonical order, and the old position of each edge."""

    @classmethod
    def of_encodings(cls, encodings: Encodings, edge_perm: Tensor | None) -> Self:
        """Returns the graph with these encodings of edges in canonical order, and the old position of each edge."""
        graph = cls.__new__(cls)
        graph._hold(encodings, edge_perm)
        return graph

    @property
    def encodings(self) -> Encodings:
        """Returns the object that builds and holds the encodings."""
        return self._encodings

    def state(self) -> tuple[dict[str, Tensor], Any]:
        """Returns the graph's vectors by name, and the other values from which `of_state` makes the same graph."""
        edges, (built, counts) = self._edges, self._encodings.known
        own = {"src": edges.src, "dst": edges.dst, "src_type": edges.src_type, "dst_type": edges.dst_type}
        own["edge_type"] = edges.edge_type if edges.num_edge_types > 1 else None
        own["perm"] = self._edge_perm
        vectors = {name: vector for name, vector in own.items() if vector is not None}
        rest = edges._replace(src=_NONE, dst=_NONE, edge_type=_NONE, src_type=None, dst_type=None)
        return vectors | {f"built {name}": vector for name, vector in built.items()}, (rest, counts, self.check)

    @classmethod
    def of_state(cls, vectors: Mapping[str, Tensor], rest: Any) -> Self:
        """Returns the graph with this `state`, which may come from another process."""
        edges, counts, check = rest
        src = vectors["src"]
        edges = edges._replace(
            src=src, dst=vectors["dst"], edge_type=vectors.get("edge_type", all_zero(src)),
            src_type=vectors.get("src_type"), dst_type=vectors.get("dst_type"),
        )  # fmt: skip
        graph = cls.of_encodings(Encodings(edges), vectors.get("perm"))  # sorted already
        prefix = "built "
        built = {name[len(prefix) :]: vector for name, vector in vectors.items() if name.startswith(prefix)}
        graph._encodings.take(built, counts)
        graph.check = check
        return graph

    def save(self, folder: str | Path) -> None:
        """Writes the sorted edges, and all encodings that have been built, to a folder that `load` maps.

        Raises:
            GraphError: The folder cannot be written to.
        """
        saved.write(*self.state(), Path(folder))

    @classmethod
    def encode(
        cls, folder: str | Path, edge_index: EdgeIndexLike, edge_type: ArrayLike | None, *, memory: str = "1GB",
        **options: Any,
    ) -> Self:  # fmt: skip
        """Sorts and counts edges in files of a folder, and returns the graph that `load` maps from there.

        Neither the edges nor the encodings have to fit into memory: edges may be mapped from files. Arrays with a
        number for each node have to. The folder needs room for all of it twice.

        Args:
            folder: Holds the files, which must stay.
            edge_index, edge_type: As in `from_arrays`.
            memory: A size that sorting may take, as in "2GB".
            options: The other arguments of `from_arrays`.

        Raises:
            GraphError: The folder cannot be written to, or ``memory`` is no size.
            ArrayError: The edges are on a device.
            DacergnnError: The folder has no room.
        """
        limit = size_of(str(memory))
        if limit is None:
            raise GraphError(f'memory={memory!r}; pass a size, as in "2GB".')
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise GraphError(f"{folder}: the graph cannot be written there: {error.strerror}.") from None
        edges = make_edge_list(edge_index, edge_type, **options)
        if not edges.src.is_cpu:
            raise ArrayError("edge_index", f"is on {edges.src.device}; pass edges in the memory of the host, or mapped")
        ordered, perm, built, counts = out_of_core.encoded(edges, str(folder), limit)
        graph = cls.of_encodings(Encodings(ordered), perm)
        graph._encodings.take(built, counts)
        graph.save(folder)
        return cls.load(folder, check=False)

    @classmethod
    def load(cls, folder: str | Path, *, check: bool = True) -> Self:
        """Returns the graph that `save` has written; its vectors are mapped from the files, which must stay.

        Args:
            check: Whether to compare the checksums of all files, for which each is read once.

        Raises:
            GraphError: The folder holds no graph, one of another version, or one that is damaged.
        """
        return cls.of_state(*saved.read(Path(folder), checked=check))
