"""Makes stand-ins for graphs of DGL, and brings graphs up to date with what a forward has left in their stand-ins."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from dacergnn.frontends.dgl.degrees import unmarked
from dacergnn.frontends.dgl.ends import ends_of
from dacergnn.frontends.dgl.refusals import unsupported
from dacergnn.frontends.dgl.stand_in import StandIn

_SET = (
    "ntypes", "etypes", "srctypes", "dsttypes", "canonical_etypes", "is_block", "is_homogeneous", "is_unibipartite",
    "idtype", "device",
)  # fmt: skip
"""Attributes of a stand-in that are properties of graphs."""
_OF_DGL = frozenset(("_graph", "_canonical_etypes", "_batch_num_nodes", "_batch_num_edges", "_ntypes", "_etypes",
                     "_is_unibipartite", "_srctypes_invmap", "_dsttypes_invmap", "_etypes_invmap", "_etype2canonical",
                     "_node_frames", "_edge_frames", "encoded"))  # fmt: skip
"""Attributes that DGL gives to graphs, and the one of `dacergnn.loader.EncodedSampler`."""


@cache
def _class(base: type) -> type[StandIn]:
    """Returns a class of stand-ins that `isinstance` takes for a graph; it has nothing of DGL's own."""
    names = {name for kind in base.__mro__ for name in vars(kind) if kind is not object}
    own = {name for kind in StandIn.__mro__ for name in vars(kind)}
    refused: dict[str, Any] = {name: _refused(name) for name in names - own if not name.startswith("__")}
    return type(base.__name__, (StandIn, base), refused | dict.fromkeys(_SET))


def _refused(name: str) -> property:
    def refuse(self: Any) -> Any:
        raise unsupported(f"{name} of a graph")

    return property(refuse)


def stand_in(graph: Any) -> StandIn:
    """Returns a stand-in for a graph, with its columns."""
    frames, of_edges = graph._node_frames, graph._edge_frames
    src = {kind: dict(frames[graph.get_ntype_id_from_src(kind)]) for kind in graph.srctypes}
    if graph.is_block:
        dst = {kind: dict(frames[graph.get_ntype_id_from_dst(kind)]) for kind in graph.dsttypes}
        counts = {
            "src": {kind: graph.num_src_nodes(kind) for kind in src},
            "dst": {kind: graph.num_dst_nodes(kind) for kind in dst},
        }
    else:
        src = dst = {kind: dict(frames[graph.get_ntype_id(kind)]) for kind in graph.ntypes}
        both = {kind: graph.num_nodes(kind) for kind in src}
        counts = {"src": both, "dst": both}
    edges = {relation: dict(of_edges[i]) for i, relation in enumerate(graph.canonical_etypes)}
    made = _class(type(graph))(
        ends_of(graph), (src, dst, edges), counts, (graph.srctypes, graph.dsttypes, graph.ntypes), graph,
        is_block=graph.is_block, idtype=graph.idtype, device=torch.device(graph.device),
        batches=graph._batch_num_nodes,
    )  # fmt: skip
    vars(made).update({name: value for name, value in vars(graph).items() if name not in _OF_DGL})
    made.before, made.attributes = made.columns_apart(), frozenset((*vars(made), "before", "attributes"))
    return made


def store(graph: StandIn) -> None:
    """Brings a graph up to date with the columns and attributes that its stand-in has now."""
    _update(graph.original, graph.before, graph.columns)
    added = vars(graph).keys() - graph.attributes
    vars(graph.original).update({name: vars(graph)[name] for name in added})


def as_graph(graph: StandIn) -> Any:
    """Returns a graph for a stand-in that a forward has made of another one, as a copy or as a part."""
    made = graph.original.local_var()
    before = {}, {}, {}
    for frames, now in zip(before, graph.columns, strict=True):
        frames.update({kind: {} for kind in now})
    for frame in (*made._node_frames, *made._edge_frames):
        for name in [*frame]:
            frame.pop(name)
    _update(made, before, graph.columns)
    return made


def _update(graph: Any, before: Any, now: Any) -> None:
    ids = (
        [graph.get_ntype_id_from_src(kind) for kind in now[0]] if graph.is_block else [*map(graph.get_ntype_id, now[0])]
    )
    pairs = [*zip([graph._node_frames[i] for i in ids], before[0].values(), now[0].values(), strict=True)]
    if graph.is_block:
        ids = [graph.get_ntype_id_from_dst(kind) for kind in now[1]]
        pairs += zip([graph._node_frames[i] for i in ids], before[1].values(), now[1].values(), strict=True)
    frames = [graph._edge_frames[graph.get_etype_id(relation)] for relation in now[2]]
    pairs += zip(frames, before[2].values(), now[2].values(), strict=True)
    for frame, was, has in pairs:
        for name in was.keys() - has.keys():
            frame.pop(name)
        frame.update({name: unmarked(value) for name, value in has.items() if was.get(name) is not value})
