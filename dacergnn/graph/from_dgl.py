"""Edge lists of DGL graphs and blocks, recognised by their attributes; dgl is never imported."""

from __future__ import annotations

from typing import Any

from dacergnn.errors import GraphError
from dacergnn.graph.edge_list import EdgeList, make_edge_list
from dacergnn.graph.typed_parts import TypedEdges, join_types

# DGL's to_homogeneous stores types under "_TYPE" (dgl.ETYPE, dgl.NTYPE); its examples often use the others.
EDGE_TYPE_KEYS = ("_TYPE", "etype", "edge_type", "rel_type")
NODE_TYPE_KEYS = ("_TYPE", "ntype", "node_type")


def edge_list_of_dgl(g: Any, etype: Any = None) -> EdgeList:
    """Returns the edge list of anything that `HeteroGraph.from_dgl` takes; raises GraphError for other objects."""
    if not hasattr(g, "canonical_etypes") or not hasattr(g, "edges"):
        raise GraphError(f"from_dgl cannot read a {type(g).__name__}; pass a DGL graph or block.")
    if len(g.srctypes) == 1 and len(g.dsttypes) == 1 and len(g.canonical_etypes) == 1:
        return _of_homogeneous(g, etype)
    if etype is not None:
        raise GraphError("etype is for homogeneous DGL graphs; a heterograph holds its types itself.")
    parts: list[TypedEdges] = []
    for key in g.canonical_etypes:
        src, dst = g.edges(etype=key, order="eid")
        parts.append(TypedEdges(key, src, dst))
    sources = {str(name): int(g.num_src_nodes(name)) for name in g.srctypes}
    if not g.is_block:
        return join_types(parts, sources)
    return join_types(parts, sources, {str(name): int(g.num_dst_nodes(name)) for name in g.dsttypes})


def _of_homogeneous(g: Any, etype: Any) -> EdgeList:
    if isinstance(etype, str):
        if etype not in g.edata:
            raise GraphError(f"etype names edge data {etype!r}, but the graph has {sorted(g.edata)}.")
        etype = g.edata[etype]
    elif etype is None:
        etype = _first(g.edata, EDGE_TYPE_KEYS)
    src, dst = g.edges(order="eid")
    # A block's destinations are the first of its sources; any other graph with two node types is bipartite.
    bipartite = not g.is_block and g.srctypes != g.dsttypes
    num_nodes = (int(g.num_src_nodes()), int(g.num_dst_nodes()))
    node_type: Any = _first(g.srcdata, NODE_TYPE_KEYS)
    if bipartite and node_type is not None:
        node_type = (node_type, _first(g.dstdata, NODE_TYPE_KEYS))
    return make_edge_list((src, dst), etype, num_nodes=num_nodes, node_type=node_type, bipartite=bipartite)


def _first(frame: Any, keys: tuple[str, ...]) -> Any:
    return next((frame[key] for key in keys if key in frame), None)
