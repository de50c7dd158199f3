"""The contents of a dataset."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from dacergnn.graph import HeteroGraph


@dataclass(frozen=True)
class Dataset:
    """Holds a graph with arrays of its nodes and edges, which are None or empty if the source has none.

    Node ids are global: type t owns the ids `graph.node_ranges[t]`. Edges of known files are in the canonical
    order already (`graph.edge_perm` is None).
    """

    name: str
    graph: HeteroGraph
    features: dict[str, Tensor] = field(default_factory=dict[str, Tensor])
    """float32 [nodes of the type, features], by node type."""
    label: Tensor | None = None
    """int64 [N], -1 for none."""
    train_idx: Tensor | None = None
    val_idx: Tensor | None = None
    test_idx: Tensor | None = None
    """int64 global node ids."""
    target_node_type: str | None = None
    class_names: tuple[str, ...] = ()
    edge_split: Tensor | None = None
    """int64 [E] in canonical order: 0 train, 1 valid, 2 test triple of a knowledge graph."""
    graph_id: Tensor | None = None
    """int64 [N]: the graph of each node, if there are several."""
    extra: dict[str, Tensor] = field(default_factory=dict[str, Tensor])
    """Further arrays of the source by their names, such as other splits."""

    @property
    def num_classes(self) -> int:
        """Returns the number of classes of `label`; 0 without labels."""
        return 0 if self.label is None or not len(self.label) else int(self.label.max()) + 1

    @property
    def compaction_ratio(self) -> float:
        """Returns the number of unique (source, edge type) pairs / number of edges."""
        return self.graph.size("U") / max(self.graph.size("E"), 1)
