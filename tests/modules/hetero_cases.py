"""Layers under `HeteroConv` that are one program, convolutions and attention, alone and beside others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from tests.modules.hetero_layers import MIXED, WITHIN, K, Key, M, Make, edge_index_dict, edge_weights, hetero, x_dict

WIDTHS = {"a": K, "b": 3, "c": 5}


@dataclass(frozen=True)
class Case:
    """Layers for relations.

    Args:
        make: Makes the layer of a relation.
        keys: The relations.
        widths: The width of the features of all types, or of each.
        weighted: Whether calls give weights of edges.
    """

    make: Make
    keys: list[Key]
    widths: int | dict[str, int] = K
    weighted: bool = False

    def layer(self, aggr: str = "sum") -> Any:
        return hetero(self.make, self.keys, aggr)

    def arguments(self, layer: Any) -> tuple[dict[str, Tensor], dict[Key, Tensor], dict[Key, Tensor]]:
        """Features, edges, and weights of edges."""
        edges = edge_index_dict(self.keys)
        return x_dict(self.widths), edges, edge_weights(layer, edges) if self.weighted else {}


def mixed(library: Any, key: Key) -> nn.Module:
    """As in PyG's example: another layer for each relation."""
    makes: dict[str, Callable[[], nn.Module]] = {
        "r0": lambda: library.GATConv((K, K), 4, heads=2, add_self_loops=False, residual=True),
        "r2": lambda: library.GraphConv((K, K), M, bias=False),
        "r3": lambda: library.GCNConv(K, M),
    }
    return makes.get(key[1], lambda: library.SAGEConv((K, K), M))()


def gat(library: Any, key: Key, **options: Any) -> nn.Module:
    return library.GATConv((K, K), 4, heads=2, add_self_loops=key[0] == key[2], **options)


def gatv2(library: Any, key: Key, **options: Any) -> nn.Module:
    """Two heads, self loops where the ends are of one type."""
    return library.GATv2Conv((K, K), 4, **{"heads": 2, "add_self_loops": key[0] == key[2], **options})


def transformer(library: Any, key: Key, **options: Any) -> nn.Module:
    return library.TransformerConv((K, K), 4, heads=2, **options)


def beside_others(library: Any, key: Key, attending: Any, **options: Any) -> nn.Module:
    """The first and the fourth relation attend."""
    if key[1] in ("r0", "r3"):
        return attending(library, key, **options)
    width = 8 if options.get("concat", True) else 4
    kind = library.GraphConv if key[1] == "r2" else library.SAGEConv
    return kind((K, K), width, bias=key[1] != "r4")


CASES: dict[str, Case] = {
    "SAGEConv": Case(lambda lib, _: lib.SAGEConv((K, K), M), MIXED),
    "GraphConv": Case(lambda lib, _: lib.GraphConv((K, K), M), MIXED, weighted=True),
    "GCNConv": Case(lambda lib, _: lib.GCNConv(K, M), WITHIN),
    "GATConv": Case(gat, MIXED),
    "max": Case(lambda lib, _: lib.SAGEConv((K, K), M, aggr="max", root_weight=False), MIXED),
    "SAGEConv, widths": Case(lambda lib, key: lib.SAGEConv((WIDTHS[key[0]], WIDTHS[key[2]]), M), MIXED, WIDTHS),
    "features that no layer reads": Case(
        lambda lib, _: lib.SAGEConv((K, K), M, root_weight=False), MIXED[:1], {"a": K, "b": 2, "c": 1}
    ),
    "weights and self loops": Case(lambda lib, _: lib.GCNConv(K, M, improved=True), WITHIN, weighted=True),
    "weights alone": Case(lambda lib, _: lib.GCNConv(K, M, add_self_loops=False, bias=False), WITHIN, weighted=True),
    "averaged heads": Case(lambda lib, key: gat(lib, key, concat=False), MIXED),
    "shared projection": Case(lambda lib, _: lib.GATConv(K, M, add_self_loops=False), MIXED),
    "different layers": Case(mixed, MIXED),
    "different layers, weights": Case(mixed, MIXED, weighted=True),
    "GATv2Conv": Case(gatv2, MIXED),
    "one head": Case(lambda lib, key: gatv2(lib, key, heads=1), MIXED),
    "averaged": Case(lambda lib, key: gatv2(lib, key, concat=False), MIXED),
    "no bias": Case(lambda lib, key: gatv2(lib, key, bias=False), MIXED),
    "some biases": Case(lambda lib, key: gatv2(lib, key, bias=key[1] == "r2"), MIXED),
    "shared": Case(lambda lib, key: gatv2(lib, key, share_weights=True), MIXED),
    "some shared": Case(lambda lib, key: gatv2(lib, key, share_weights=key[2] == "a"), MIXED),
    "residual": Case(lambda lib, key: gatv2(lib, key, residual=True), MIXED),
    "averaged residual": Case(lambda lib, key: gatv2(lib, key, residual=True, concat=False), MIXED),
    "no slope": Case(lambda lib, key: gatv2(lib, key, negative_slope=0.0), MIXED),
    "features of edges that calls lack": Case(lambda lib, key: gatv2(lib, key, edge_dim=3), MIXED),
    "self loops": Case(lambda lib, key: gatv2(lib, key, fill_value=0.5), WITHIN),
    "widths": Case(
        lambda lib, key: lib.GATv2Conv((WIDTHS[key[0]], WIDTHS[key[2]]), M, add_self_loops=False), MIXED, WIDTHS
    ),
    "beside others": Case(lambda lib, key: beside_others(lib, key, gatv2), MIXED),
    "averaged beside others": Case(lambda lib, key: beside_others(lib, key, gatv2, concat=False, residual=True), MIXED),
    "TransformerConv": Case(transformer, MIXED),
    "TransformerConv, averaged": Case(lambda lib, key: transformer(lib, key, concat=False), MIXED),
    "TransformerConv, no bias": Case(lambda lib, key: transformer(lib, key, bias=False), MIXED),
    "TransformerConv, no root": Case(lambda lib, key: transformer(lib, key, root_weight=key[1] == "r0"), MIXED),
    "TransformerConv, widths": Case(
        lambda lib, key: lib.TransformerConv((WIDTHS[key[0]], WIDTHS[key[2]]), M), MIXED, WIDTHS
    ),
    "TransformerConv beside others": Case(lambda lib, key: beside_others(lib, key, transformer), MIXED),
    "GATConv, averaged residual": Case(
        lambda lib, key: lib.GATConv((K, K), 4, heads=2, concat=False, residual=True, add_self_loops=False), MIXED,
    ),
}  # fmt: skip
