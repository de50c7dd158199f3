"""Front end for PyG's `HeteroConv`: one program for the layers of all relations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from dacergnn.errors import UnsupportedCallError
from dacergnn.frontends.features import is_sparse
from dacergnn.frontends.frontend import Binding, Frontend, GraphKey, Outputs, ProgramSource, spec
from dacergnn.frontends.hetero_programs import hetero
from dacergnn.frontends.missing_gradients import Reached
from dacergnn.frontends.pyg.given_edges import has_matrix, identity, is_matrix
from dacergnn.frontends.pyg.message_passing import check_edge_index, check_features
from dacergnn.frontends.pyg.relation_arrays import RelationLayout, edge_coefficients, edge_weights
from dacergnn.frontends.pyg.relation_edges import check_adjacency, kept_relation_edges, relation_edges
from dacergnn.frontends.pyg.relation_parts import RelationParts
from dacergnn.frontends.pyg.relations import Attention, EdgeType, Relation
from dacergnn.frontends.pyg.self_loops import with_loops
from dacergnn.graph import HeteroGraph
from dacergnn.graph.typed_parts import Part, check_ids

_SPACES = {"x": "NS", "norm": "E", "root": "T", "bias": "T", "share": "T"}  # other arrays: one row for each relation
_BY_HEAD = ("W_bias", "W_key_bias", "W_dst_bias")
"""Arrays that are added to heads."""


class HeteroFrontend(Frontend):
    """Runs all relations in one program; zeros pad features and weights to the width of the widest node type."""

    handles: ClassVar[tuple[str, ...]] = ("torch_geometric.nn.conv.hetero_conv.HeteroConv",)
    called: ClassVar[tuple[str, ...] | None] = None
    joins: ClassVar[bool] = True

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        if self.module.aggr not in ("sum", "mean"):
            raise self.refuse("aggr", self.module.aggr, 'use "sum" or "mean"')
        convs, places = self.convs(), self.places()
        if not places:
            raise self.refuse("convs", {}, "give it at least one layer")
        self.relations = [Relation.of(key, place, convs._modules[place]) for key, place in places.items()]
        self.out_channels: int = self._same("out_channels", [r.out_channels for r in self.relations])
        self.reduce: str = self._same("aggr of convs", [r.reduce for r in self.relations])
        attention = [r.attention for r in self.relations if r.attention is not None]
        self.attention: Attention | None = self._same("attention", attention) if attention else None
        self.averaged = self.attention is not None and not self.attention.concat
        if self.attention and self.reduce != "sum":
            raise self.refuse("aggr of convs", self.reduce, "beside attention, relations are summed or averaged")
        self.channels: dict[str, int] = {}
        for relation in self.relations:
            for name, path in relation.matrices:
                width = relation.parameter(convs, path).size(1)
                if self.channels.setdefault(name, width) != width:
                    raise self.refuse("in_channels", width, f"{name!r} has {self.channels[name]} elsewhere")
        self._layouts: dict[tuple[EdgeType, ...], RelationLayout] = {}
        self._parts_of: dict[RelationLayout, RelationParts] = {}

    def convs(self) -> Any:
        """Returns the module whose children are the layers of the relations."""
        return self.module._modules["convs"]

    def places(self) -> dict[EdgeType, str]:
        """Returns the names of the layers in `convs` by edge type."""
        convs = self.module.convs
        return {key: convs.to_internal_key(key) for key in convs.keys()}  # noqa: SIM118

    def edges(
        self, x_dict: Any = None, edge_index_dict: Any = None, *args: Any, edge_weight_dict: Any = None, **others: Any
    ) -> GraphKey:
        if args or others:
            named = ", ".join(others) or "a third argument"
            raise UnsupportedCallError(
                f"{named} is given; compiled layers take x_dict, edge_index_dict and, by its name, edge_weight_dict."
            )
        if not x_dict or not any(r.key in (edge_index_dict or ()) for r in self.relations):
            raise UnsupportedCallError("x_dict or edge_index_dict is empty; pass at least one relation of the layer.")
        layout = self._layout(edge_index_dict)
        self._check_keys(layout, x_dict)
        indices = [edge_index_dict[key] for key in layout.keys]
        marks = layout.marks if not has_matrix(indices) else self._marks(layout, x_dict, indices)
        for edges, mark in zip(indices, marks, strict=True):
            if not mark[1]:
                check_edge_index(edges)
        for name in layout.node_types:
            x: Tensor = x_dict[name]
            check_features(f"x_dict[{name!r}]", x, self.channels.get(name) or x.size(-1))
        for key, weight in (edge_weight_dict or {}).items():
            self._check_weight(layout, key, weight, edge_index_dict, x_dict)
        sizes = [x_dict[name].size(0) for name in layout.node_types]
        return tuple([part for edges in indices for part in identity(edges)]), (*sizes, *marks)

    def graph_owner(self) -> object:
        return "relations"

    def result(self, x_dict: Any, edge_index_dict: Any, **_: Any) -> dict[str, tuple[int, int]]:
        names = self._layout(edge_index_dict).destinations
        return {name: (x_dict[name].size(0), self.out_channels) for name in names}

    def graph(self, x_dict: Any, edge_index_dict: Any, **_: Any) -> HeteroGraph:
        layout = self._layout(edge_index_dict)
        counts = [x_dict[name].size(0) for name in layout.node_types]
        parts: list[Part] = []
        for number, (relation, ends) in enumerate(zip(layout.relations, layout.ends, strict=True)):
            edges = relation_edges(relation, self._conv(relation), edge_index_dict[relation.key], None)
            part = Part(edges.ends, number, ends, f"edge_index_dict[{relation.key!r}]")
            if edges.relation.loops:
                check_ids(part, counts, layout.node_types)
                part = part._replace(edges=with_loops(edges.ends, counts[ends[0]]))
            parts.append(part)
        num_dst = sum(counts[: len(layout.destinations)])
        return HeteroGraph.of_parts(parts, counts, layout.edge_type_names, layout.node_types, num_dst)

    def bind(self, graph: HeteroGraph, x_dict: Any, edge_index_dict: Any, *, edge_weight_dict: Any = None) -> Binding:
        layout = self._layout(edge_index_dict)
        weights = self._weights(graph, layout, x_dict, edge_index_dict, edge_weight_dict or {})
        norm = edge_coefficients(graph, layout.rules, weights, x_dict[layout.node_types[0]].dtype)
        parts = self._parts(layout)
        assemble = partial(parts.arrays, graph, norm, self.module.aggr == "mean")
        tensors = parts.tensors(self.convs(), x_dict)
        program = self.program((layout.keys, norm is None), lambda: self._program(layout, assemble, tensors))
        sizes = [x_dict[name].size(0) for name in layout.destinations]
        finish = partial(self._finish, layout.destinations, sizes)
        # Sparse features are joined before the call, not passed in parts.
        if any(map(is_sparse, tensors[-len(layout.node_types) :])):
            reached = Reached(parts.results)
            return Binding(program, assemble(tensors, reached.gate), partial(finish, reached=reached))
        return Binding(
            program, {}, finish, parts=tensors, results=parts.results, assemble=assemble, names=parts.names,
            repeats=weights is None,
        )  # fmt: skip

    def _same(self, option: str, values: Sequence[Any]) -> Any:
        """Returns the value that all of `values` are equal to; raises UnsupportedLayerError if they differ."""
        different = next((v for v in values if v != values[0]), values[0])
        if different != values[0]:
            raise self.refuse(option, different, f"give all layers the same; the first has {values[0]!r}")
        return values[0]

    def _layout(self, edge_index_dict: dict[EdgeType, Any]) -> RelationLayout:
        keys = tuple([r.key for r in self.relations if r.key in edge_index_dict])
        if torch.compiler.is_compiling():  # tracers guard on values that they read, and the cache changes
            return self._make_layout(keys)
        layout = self._layouts.get(keys)
        if layout is None:
            layout = self._layouts[keys] = self._make_layout(keys)
        return layout

    def _make_layout(self, keys: tuple[EdgeType, ...]) -> RelationLayout:
        return RelationLayout([r for r in self.relations if r.key in keys])

    def _check_keys(self, layout: RelationLayout, x_dict: dict[Any, Any]) -> None:
        missing = [name for name in layout.node_types if not isinstance(x_dict.get(name), Tensor)]
        wrong = [key for key in layout.keys if key in x_dict or key[0] in missing or key[-1] in missing]
        if wrong:
            raise UnsupportedCallError(f"x_dict must hold a tensor for each node type of edge type {wrong[0]!r}.")

    def _marks(self, layout: RelationLayout, x_dict: dict[Any, Any], indices: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Returns the marks of relations of which some have an adjacency, which is checked."""
        marks: list[tuple[Any, ...]] = []
        for relation, edges in zip(layout.relations, indices, strict=True):
            key, matrix = relation.key, is_matrix(edges)
            if matrix:
                check_adjacency(relation, self._conv(relation), edges, (x_dict[key[0]], x_dict[key[-1]]))
            marks.append((key, *relation.loop_form(matrix=matrix)))
        return marks

    def _check_weight(self, layout: RelationLayout, key: Any, weight: Any, edge_index_dict: Any, x_dict: Any) -> None:
        label = f"edge_weight_dict[{key!r}]"
        relation = next((r for r in layout.relations if r.key == key), None)
        if relation is None or not relation.weighted:
            raise UnsupportedCallError(f"{label} is given, but no layer takes it.")
        if weight is None or is_matrix(edge_index_dict[key]):  # an adjacency has weights of its own
            return
        count, dtype = edge_index_dict[key].size(1), x_dict[key[0]].dtype
        if not isinstance(weight, Tensor) or weight.shape != (count,) or weight.dtype != dtype:
            raise UnsupportedCallError(f"{label} must be a tensor [{count}] of {dtype}.")

    def _weights(
        self,
        graph: HeteroGraph,
        layout: RelationLayout,
        x_dict: Any,
        edge_index_dict: Any,
        weights: dict[EdgeType, Any],
    ) -> Tensor | None:
        """Returns the factors of messages, [E] in the order of the relations; None if all are 1."""
        if not weights and not has_matrix([edge_index_dict[key] for key in layout.keys]):
            return None
        all_edges = [
            kept_relation_edges(graph, r, self._conv(r), edge_index_dict[r.key], weights.get(r.key))
            for r in layout.relations
        ]
        indices = {edges.relation.key: edges.ends for edges in all_edges}
        by_edge = {edges.relation.key: edges.weight for edges in all_edges}
        dtype: torch.dtype = x_dict[layout.node_types[0]].dtype
        return edge_weights(graph, [edges.relation for edges in all_edges], x_dict, indices, by_edge, dtype)

    def _conv(self, relation: Relation) -> Any:
        """Returns the layer of a relation."""
        return self.convs()._modules[relation.place]

    def _parts(self, layout: RelationLayout) -> RelationParts:
        """Returns the parameters and features that a call with some relations takes."""
        parts = self._parts_of.get(layout)
        if parts is None:
            heads = self.attention.heads if self.averaged and self.attention is not None else 1
            parts = RelationParts.of(layout, self.convs(), self.channels, heads * self.out_channels)
            if not torch.compiler.is_compiling():
                self._parts_of[layout] = parts
        return parts

    def _program(
        self,
        layout: RelationLayout,
        assemble: Callable[[Sequence[Tensor]], dict[str, Tensor]],
        tensors: Sequence[Tensor],
    ) -> ProgramSource:
        with torch.no_grad():  # checkpoints count what is saved in a call
            arrays = assemble(tensors)
        bindings: dict[str, object] = {n: spec(_SPACES.get(n, "R"), *a.shape[1:]) for n, a in arrays.items()}
        if self.attention is None or not any(r.attention for r in layout.relations):
            return ProgramSource.of(hetero, reduce=self.reduce, **bindings)
        _, heads, channels, _, slope = self.attention
        bindings |= {name: spec("R", heads, channels) for name in _BY_HEAD if name in arrays}
        scale = channels**-0.5
        options = {"heads": heads, "channels": channels, "width": heads * channels, "slope": slope, "scale": scale}
        return ProgramSource.of(hetero, reduce="attention", **options, **bindings)

    def _finish(self, names: Sequence[str], sizes: list[int], outputs: Outputs, reached: Reached) -> dict[str, Tensor]:
        parts = list(reached.split(outputs[0], sizes))
        if self.averaged and self.attention is not None:
            parts = [part.view(-1, self.attention.heads, self.out_channels).mean(dim=1) for part in parts]
        return dict(zip(names, parts, strict=True))
