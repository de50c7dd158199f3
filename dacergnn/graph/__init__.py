"""The heterogeneous graph and its encodings."""

from __future__ import annotations

from dacergnn.graph.hetero_graph import HeteroGraph
from dacergnn.graph.locality import locality_order
from dacergnn.graph.spaces import MAPS, ROW_SPACES, TYPE_PATHS, encoding_name, parse_encoding, target_space

__all__ = [
    "MAPS",
    "ROW_SPACES",
    "TYPE_PATHS",
    "HeteroGraph",
    "encoding_name",
    "locality_order",
    "parse_encoding",
    "target_space",
]
