"""Runs layers that exchange rows themselves in one of several processes, for `worker`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from dacergnn import Config
from dacergnn.distributed import DistributedGraph, partition
from dacergnn.errors import ArrayError, DistributedError
from dacergnn.graph import HeteroGraph
from dacergnn.modules import HGT, RGAT, RGCN
from dacergnn.modules.ways.exchange import Exchanged
from tests.distributed import exchanging_programs as programs

NODES, EDGES, RELATIONS, WIDE, NARROW = 200, 1500, 3, 32, 4
TWICE = ("RGAT in ranges", "GAT", "mean", "projected", "by type of both ends")
"""Layers with second derivatives."""
CONSTANT = ("RGCN", "RGAT", "GAT", "mean", "projected", "sources")
"""Layers that also get features without gradients; all that is exchanged is among those of both."""
OPTIONS: dict[str, Any] = {"num_edge_types": RELATIONS, "node_type": torch.arange(NODES) // 100, "num_node_types": 2}


class Layer(NamedTuple):
    """Describes a layer: its call with a graph, features [NS, 32], values of edges [E, 4] and of nodes [ND, 4]."""

    call: Callable[[HeteroGraph, Tensor, Tensor, Tensor], Any]
    weights: Sequence[Tensor]


def layers() -> dict[str, Layer]:
    """Returns layers by name; equal in all processes."""
    torch.manual_seed(1)
    native: dict[str, Any] = {
        "RGCN": RGCN(WIDE, NARROW, RELATIONS),
        "RGCN that widens": RGCN(NARROW, WIDE, RELATIONS),
        "RGCN without root": RGCN(WIDE, NARROW, RELATIONS, aggr="add", root_weight=False, bias=False),
        "RGAT": RGAT(WIDE, NARROW, RELATIONS),
        "RGAT in ranges": RGAT(WIDE, NARROW, RELATIONS, config=Config(memory="400KB")),
        "HGT": HGT(WIDE, 2, RELATIONS, heads=2),
    }
    found: dict[str, Layer] = {}
    for name, layer in native.items():
        width = NARROW if "widens" in name else WIDE
        found[name] = Layer(
            lambda g, x, e, n, layer=layer, width=width: layer(x[:, :width].contiguous(), g), [*layer.parameters()]
        )
    drawn = {
        "wide": (WIDE, 4),
        "narrow": (4, WIDE),
        "own": (4, WIDE),
        "q": (4,),
        "k": (4,),
        "typed": (3, WIDE, 4),
        "ends": (2, WIDE, 4),
        "scale": (2,),
    }
    w = {name: (torch.randn(shape) / 4).requires_grad_() for name, shape in drawn.items()}
    return {
        **found,
        "GAT": Layer(lambda g, x, e, n: programs.gat(g, x, w["wide"], w["q"], w["k"]), [w["wide"], w["q"], w["k"]]),
        "mean": Layer(
            lambda g, x, e, n: programs.weighted_mean(
                g, x[:, :4].contiguous(), w["narrow"], w["own"], e[:, 0].contiguous()
            ),
            [w["narrow"], w["own"]],
        ),
        "projected": Layer(lambda g, x, e, n: programs.projected(g, x, w["typed"], e), [w["typed"]]),
        "by type of both ends": Layer(
            lambda g, x, e, n: programs.by_end(g, x, w["ends"], w["scale"]), [w["ends"], w["scale"]]
        ),
        "maximum": Layer(lambda g, x, e, n: programs.largest(g, x, w["wide"], n), [w["wide"]]),
        "sources": Layer(lambda g, x, e, n: programs.of_sources(g, x, w["wide"]), [w["wide"]]),
    }


class Side(NamedTuple):
    """Holds a graph with its features, values of edges in the order of the user, and values of nodes."""

    graph: HeteroGraph
    inputs: list[Tensor]
    seeds: tuple[Tensor, Tensor]

    def results(self, layer: Layer) -> list[Tensor]:
        x, e, n = self.inputs
        made = layer.call(self.graph, x, self.graph.to_canonical(e), n)
        if not isinstance(made, tuple):
            return [made]
        return [made[0], self.graph.from_canonical(made[1])]

    def gradients(self, layer: Layer, results: list[Tensor], twice: bool) -> tuple[list[Tensor], list[Tensor]]:
        """Returns gradients of nodes and edges, and of weights; ``twice`` also those of the squares of the first."""
        total: Any = sum((r * seed[:, : r.size(1)].view(r.shape)).sum() if r.dim() > 1 else (r * seed).sum()
                         for r, seed in zip(results, self.seeds, strict=False))  # fmt: skip
        own = [tensor for tensor in self.inputs if tensor.requires_grad]
        asked, count = [*own, *layer.weights], len(own)
        first = torch.autograd.grad(total, asked, create_graph=twice, materialize_grads=True)
        squares: Any = sum((g * g).sum() for g in first[:count])
        if not twice or not squares.requires_grad:
            return [*first[:count]], [*first[count:]]
        again = torch.autograd.grad(squares, asked, materialize_grads=True)
        return [*first[:count], *again[:count]], [*first[count:], *again[count:]]


def compared() -> dict[str, dict[str, Any]]:
    """Returns what each layer exchanged; in the first process also how much its results and gradients differ from those
    of the whole graph."""
    draw = torch.Generator().manual_seed(0)
    edges, types = torch.randint(NODES, (2, EDGES), generator=draw), torch.randint(RELATIONS, (EDGES,), generator=draw)
    edges[:, ::7] //= 8  # some nodes have many edges, others none
    whole = HeteroGraph.from_arrays(edges, types, num_nodes=NODES, **OPTIONS)
    owners = partition(whole, dist.get_world_size())
    part = DistributedGraph(edges, owners)
    graph = part.hetero_graph(types, **OPTIONS, exchanges=True)
    positions = [part.own, part.edges, part.own]
    shapes = (NODES, WIDE), (EDGES, 4), (NODES, 4), (NODES, WIDE), (EDGES,)
    *tensors, of_nodes, of_edges = (torch.randn(shape, generator=draw) for shape in shapes)
    found: dict[str, dict[str, Any]] = {}
    for name, layer in layers().items():
        for leaf in (True, False) if name in CONSTANT else (True,):
            about: dict[str, Any] = {}
            found[f"{name}{', features' if leaf else ''}"] = about
            wanted = [leaf, True, leaf]
            inputs = [t.clone().requires_grad_(w) for t, w in zip(tensors, wanted, strict=True)]
            mine = [t[p].requires_grad_(w) for t, p, w in zip(tensors, positions, wanted, strict=True)]
            of_part = Side(graph, mine, (of_nodes[part.own], of_edges[part.edges]))
            try:
                results = of_part.results(layer)
            except DistributedError as error:
                about["error"] = str(error)
                continue
            own, weights = of_part.gradients(layer, results, name in TWICE)
            for gradient in weights:
                dist.all_reduce(gradient)
            if dist.get_rank() == 0:
                of_whole = Side(whole, inputs, (of_nodes, of_edges))
                expected = of_whole.results(layer)
                own_expected, weights_expected = of_whole.gradients(layer, expected, name in TWICE)
                places = [p for p, w in zip(positions, wanted, strict=True) if w]
                pairs = [(r, e[p]) for r, e, p in zip(results, expected, positions, strict=False)]
                pairs += [(g, e[p]) for g, e, p in zip(own, own_expected, [*places, *places], strict=False)]
                pairs += zip(weights, weights_expected, strict=True)
                about["difference"] = max(
                    float(((a - b).abs().max() / b.abs().max().clamp(1)).detach()) for a, b in pairs
                )
            before = part.bytes_received
            total: Any = sum(rows.sum() for rows in of_part.results(layer))
            torch.autograd.grad(total, [t for t in (*mine, *layer.weights) if t.requires_grad], allow_unused=True)
            received = torch.tensor([part.bytes_received - before])
            dist.all_reduce(received)
            about["received"] = int(received)
            about["exchanged"] = [own for own in graph.derived.values() if isinstance(own, Exchanged)][-1].summary
    elsewhere = torch.full((EDGES,), RELATIONS)
    elsewhere[part.edges] = 0
    found["types"] = {"number": part.hetero_graph(elsewhere).size("R")}
    found["errors"] = refused(graph, tensors[0][part.own], edges, owners)
    return found


def refused(graph: HeteroGraph, x: Tensor, edges: Tensor, owners: Tensor) -> dict[str, str]:
    """Returns what is said about calls that cannot be."""
    layer, found = RGCN(WIDE, NARROW, RELATIONS), dict[str, str]()
    other = RGCN(WIDE, NARROW + 1, RELATIONS)  # a program that has not run before
    wider = RGCN(WIDE, NARROW + 2 + (dist.get_rank() == 0), RELATIONS)
    other_edges, other_owners = (edges.flip(1), owners.flip(0)) if dist.get_rank() == 1 else (edges, owners)
    calls: dict[str, Callable[[], Any]] = {
        "edge_index": lambda: DistributedGraph(other_edges, owners),
        "owners": lambda: DistributedGraph(edges, other_owners),
        "rows": lambda: layer(x[1:], graph),
        "sparse": lambda: layer(x.to_sparse(), graph),
        "functional": lambda: torch.func.grad(lambda a: layer(a, graph).sum())(x),
        "degrees": graph.symmetric_weights,
        "numbers": lambda: graph.index("E", "src"),
        "kernels": lambda: graph.addresses(["ptr_E_dst"]),
        "widths": lambda: wider(x, graph),
        "gradients": lambda: other(x.clone().requires_grad_(dist.get_rank() == 0), graph),
    }
    for name, call in calls.items():
        try:
            call()
        except (ArrayError, DistributedError) as error:
            found[name] = str(error)
    return found
