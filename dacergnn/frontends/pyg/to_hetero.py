"""Rewrites models of PyG's `to_hetero`: the calls of a layer's copies, one for each relation, become one call."""

from __future__ import annotations

import copy
import operator
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple, cast

import torch
from torch import Tensor, fx, nn

from dacergnn.frontends.frontend import handled_class
from dacergnn.frontends.pyg.hetero import HeteroFrontend
from dacergnn.frontends.pyg.relations import CONVS, WEIGHTED, EdgeType


class RelationGroup(nn.ModuleDict):
    """Holds the copies of a layer under their former names, with the forward of a `HeteroConv`."""

    def __init__(self, convs: nn.ModuleDict, places: dict[EdgeType, str], aggr: str) -> None:
        super().__init__()
        self.__dict__["_modules"] = vars(convs)["_modules"]
        self.training = convs.training
        self.places, self.aggr = places, aggr

    def forward(
        self,
        x_dict: dict[str, Tensor],
        edge_index_dict: dict[EdgeType, Tensor],
        edge_weight_dict: dict[EdgeType, Tensor | None] | None = None,
    ) -> dict[str, Tensor]:
        results: defaultdict[str, list[Tensor]] = defaultdict(list)
        for key, place in self.places.items():
            x = x_dict[key[0]] if key[0] == key[-1] else (x_dict[key[0]], x_dict[key[-1]])
            weight = {} if edge_weight_dict is None else {"edge_weight": edge_weight_dict[key]}
            results[key[-1]].append(self[place](x, edge_index_dict[key], **weight))
        reduce: Callable[..., Tensor] = torch.mean if self.aggr == "mean" else torch.sum
        return {name: parts[0] if len(parts) == 1 else reduce(torch.stack(parts), 0) for name, parts in results.items()}


class GroupFrontend(HeteroFrontend):
    """Runs a `RelationGroup` like a `HeteroConv`."""

    handles: ClassVar[tuple[str, ...]] = (f"{__name__}.RelationGroup",)

    def convs(self) -> Any:
        return self.module

    def places(self) -> dict[EdgeType, str]:
        return self.module.places


class _ModuleCall(NamedTuple):
    """Describes one copy's call in the graph: values of both node types, of the edges, and of their weights if any."""

    node: fx.Node
    key: EdgeType
    x: tuple[fx.Node, fx.Node]
    edge_index: fx.Node
    edge_weight: fx.Node | None


def join_relations(model: nn.Module) -> nn.Module | None:
    """Returns the model with the copies of a layer called as one `RelationGroup`; None if it calls no such copies.

    Modules, parameters and their names stay the same; `model` is not changed.
    """
    if not isinstance(model, fx.GraphModule):
        return None
    graph = copy.deepcopy(model.graph)
    nodes: defaultdict[str, list[fx.Node]] = defaultdict(list)
    for node in graph.nodes:
        if node.op == "call_module":
            nodes[str(node.target).rpartition(".")[0]].append(node)
    groups: dict[str, nn.Module] = {}
    for path, called in nodes.items():
        convs = model.get_submodule(path)
        if isinstance(convs, nn.ModuleDict):
            calls = [_read(node, convs) for node in called]
            together = all(a.next is b for a, b in pairwise(called))
            group = _join(graph, path, convs, [c for c in calls if c is not None]) if all(calls) and together else None
            if group is not None:
                groups[path] = group
    if not groups:
        return None
    joined = fx.GraphModule(model, graph, type(model).__name__)
    own = {n: v for n, v in vars(model).items() if n == "training" or "_hooks" in n or n not in vars(joined)}
    joined.__dict__.update(own)
    joined.__dict__["_modules"] = _exchanged(model, groups)
    return joined


def _read(node: fx.Node, convs: nn.ModuleDict) -> _ModuleCall | None:
    """Returns the call of a layer by a node; None if no group can hold the layer, or for other arguments."""
    kind = handled_class(convs[str(node.target).rpartition(".")[2]], CONVS)
    names = ("x", "edge_index", "edge_weight")
    arguments: dict[str, Any] = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    x, index, weight = (arguments.pop(name, None) for name in names)
    if kind is None or arguments or len(node.args) > 3 or (weight is not None and kind not in WEIGHTED):
        return None
    # The transformer fetches the edges of each relation from the dictionary that the model is given.
    if not isinstance(index, fx.Node) or (index.op, index.target) != ("call_method", "get"):
        return None
    key: Any = index.args[1]
    x = (x, x) if isinstance(x, fx.Node) else x
    if not isinstance(key, tuple) or not isinstance(x, tuple) or (x[0] is x[1]) != (key[0] == key[-1]):
        return None
    return _ModuleCall(node, cast("EdgeType", key), cast("tuple[fx.Node, fx.Node]", x), index, weight)


def _join(graph: fx.Graph, path: str, convs: nn.ModuleDict, calls: list[_ModuleCall]) -> RelationGroup | None:
    """Replaces `calls` and the nodes that sum their results by one call; returns None, with no change, if they vary."""
    x: dict[str, fx.Node] = {}
    parts: defaultdict[str, list[fx.Node]] = defaultdict(list)
    for call in calls:
        for name, value in zip((call.key[0], call.key[-1]), call.x, strict=True):
            if x.setdefault(name, value) is not value:
                return None
        parts[call.key[-1]].append(call.node)
    places = {call.key: str(call.node.target).rpartition(".")[2] for call in calls}
    sums = {name: _summed(nodes) for name, nodes in parts.items()}
    if len(set(places.values())) != len(calls) or not all(sums.values()):
        return None
    means = {_divided(nodes[-1], len(parts[name])) is not None for name, nodes in sums.items() if len(parts[name]) > 1}
    if len(means) > 1:
        return None
    aggr = "mean" if True in means else "sum"
    edges = {call.key: call.edge_index for call in calls}
    weights = {call.key: call.edge_weight for call in calls}
    weighted: Any = {} if set(weights.values()) == {None} else {"edge_weight_dict": weights}
    with graph.inserting_after(calls[-1].node):
        joined = graph.call_module(path, cast("Any", (x, edges)), weighted)
    replaced: list[fx.Node] = []
    for name, nodes in sums.items():
        division = _divided(nodes[-1], len(parts[name])) if aggr == "mean" and len(parts[name]) > 1 else None
        nodes = nodes if division is None else [*nodes, division]
        with graph.inserting_after(joined):
            result = graph.call_function(operator.getitem, (joined, name))
        nodes[-1].replace_all_uses_with(result)
        replaced += reversed(nodes)
    for node in replaced:
        graph.erase_node(node)
    return RelationGroup(convs, places, aggr)


def _summed(parts: Sequence[fx.Node]) -> list[fx.Node]:
    """Returns the nodes, then the nodes that add them up; empty if they are not added, or have other uses."""
    nodes, rest = list(parts), list(parts)
    while len(rest) > 1:
        users = [u for n in rest for u in n.users if u.target is torch.add and not u.kwargs]
        total = next((u for u in users if len(u.all_input_nodes) == 2 and set(u.args) <= set(rest)), None)
        if total is None or any(len(n.users) > 1 for n in total.all_input_nodes):
            return []
        rest = [n for n in rest if n not in total.args] + [total]
        nodes.append(total)
    return nodes


def _divided(node: fx.Node, count: int) -> fx.Node | None:
    """Returns the only user of a node if it divides the node by `count`, else None."""
    user = next(iter(node.users)) if len(node.users) == 1 else None
    divides = user is not None and user.target is torch.div and user.args == (node, count) and not user.kwargs
    return user if divides else None


def _exchanged(module: nn.Module, groups: dict[str, nn.Module], path: str = "") -> dict[str, nn.Module | None]:
    """Returns the children of a module with the groups in their places."""
    children: dict[str, nn.Module | None] = {}
    own_children: dict[str, nn.Module | None] = vars(module)["_modules"]
    for name, child in own_children.items():
        place = f"{path}{name}"
        if child is not None and any(p.startswith(f"{place}.") for p in groups):
            own, child = child, copy.copy(child)
            child.__dict__["_modules"] = _exchanged(own, groups, f"{place}.")
        children[name] = groups.get(place, child)
    return children
