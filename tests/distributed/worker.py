"""Trains models, one after the other, in one of several processes, with the variables of torch's launcher.

    python -m tests.distributed.worker TASK,TASK,... STEPS OUT

A task is the name of a model, with ":" and a size of memory for rounds, and "@" and a real graph. The first process
trains those that end with " alone" by itself; those that end with " first" and " second" take half of the steps each,
the latter from a checkpoint of the former; the second process ends in the middle of those that end with " killed". The
task "exchanging" is that of `exchanging_worker`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.nn.parallel import DistributedDataParallel
from torch_geometric.nn import GATConv, HeteroConv, HGTConv, RGATConv, RGCNConv, SAGEConv

import dacergnn
from dacergnn.distributed import DistributedGraph, partition
from dacergnn.graph import HeteroGraph
from tests.distributed.exchanging_worker import compared
from tests.support import interpreted

FEATURES, CLASSES = 16, 16
Key = tuple[str, str, str]
SIZES = {"a": 120, "b": 90}
KEYS = [("a", "r", "b"), ("b", "s", "a"), ("a", "t", "a")]


class Net(nn.Module):
    """Two layers over the rows that an exchange returns, or in rounds if a size of memory is given."""

    def __init__(self, convs: list[nn.Module], memory: str) -> None:
        super().__init__()
        self.convs, self.memory = nn.ModuleList(convs), memory

    def forward(self, graph: Any, x: Any, *extra: Tensor) -> Any:
        for number, conv in enumerate(self.convs):
            if self.memory and isinstance(graph, DistributedGraph):
                x = graph.run(conv, x, *extra, memory=None if self.memory == "any" else self.memory)
            else:
                x = own(conv(graph.exchange(x), graph.edge_index, *extra), graph.num_own)
            if number == 0:
                x = {k: r.relu() for k, r in x.items()} if isinstance(x, dict) else x.relu()
        return x


class Whole:
    """Stands for the graph of a single process."""

    def __init__(self, edge_index: Any, num_own: Any) -> None:
        self.edge_index, self.num_own = edge_index, num_own

    def exchange(self, x: Any) -> Any:
        return x


def own(rows: Any, counts: Any) -> Any:
    return {k: r[: counts[k]] for k, r in rows.items()} if isinstance(rows, dict) else rows[:counts]


def convs(name: str, relations: int, types: tuple[list[str], list[Key]]) -> list[nn.Module]:
    sizes = [(FEATURES, 16), (16, CLASSES)]  # alike, so that layers share their programs
    if name == "RGCN":
        return [RGCNConv(i, o, relations) for i, o in sizes]
    if name == "RGAT":
        return [RGATConv(i, o, relations) for i, o in sizes]
    if name == "GAT":
        return [GATConv(i, o) for i, o in sizes]
    if name == "HGT":
        return [HGTConv(i, o, types) for i, o in sizes]
    return [HeteroConv({key: SAGEConv((i, i), o) for key in types[1]}) for i, o in sizes]


def problem(name: str, data: str) -> tuple[Any, Any, Any, tuple[Tensor, ...], int]:
    """Returns edges, features, classes, edge types and the number of relations of a task."""
    torch.manual_seed(0)
    if name in ("HGT", "HeteroConv"):
        sizes, edges = SIZES, {key: torch.stack([torch.randint(SIZES[key[n]], (700,)) for n in (0, 2)]) for key in KEYS}
        if data != "random":
            sizes, edges = by_type(dacergnn.datasets.resolve(data).graph)
        x = {kind: torch.randn(size, FEATURES) for kind, size in sizes.items()}
        return edges, x, {kind: torch.randint(CLASSES, (size,)) for kind, size in sizes.items()}, (), len(edges)
    if data == "random":
        nodes, relations = 300, 5
        edges, types = torch.randint(nodes, (2, 3000)), torch.randint(relations, (3000,))
    else:
        graph = dacergnn.datasets.resolve(data).graph
        nodes, relations = graph.size("NS"), graph.size("R")
        edges = torch.stack([graph.index("E", "src").long(), graph.index("E", "dst").long()])
        types = graph.index("E", "etype").long()
    x, y = torch.randn(nodes, FEATURES), torch.randint(CLASSES, (nodes,))
    return edges, x, y, () if name == "GAT" else (types,), relations


def by_type(graph: HeteroGraph) -> tuple[dict[str, int], dict[Key, Tensor]]:
    """Returns the nodes of each type, and the edges of each relation that has any, in numbers of their types."""
    bounds = graph.node_ranges
    assert bounds is not None
    src, dst, relation = (graph.index("E", path).long() for path in ("src", "dst", "etype"))
    kinds = graph.index("NS", "ntype").tolist()
    edges: dict[Key, Tensor] = {}
    for number in relation.unique().tolist():
        own = torch.stack([src[relation == number], dst[relation == number]])
        ends = [kinds[int(row[0])] for row in own]
        edges[str(ends[0]), f"r{number}", str(ends[1])] = own - torch.tensor([[bounds[kind][0]] for kind in ends])
    return {str(kind): stop - start for kind, (start, stop) in enumerate(bounds)}, edges


def owners(edges: Any, sizes: Any, size: int) -> Any:
    if isinstance(edges, dict):
        return {kind: torch.arange(count) * size // count for kind, count in sizes.items()}
    method = "ranges" if size < 3 else "random"  # numbers need not tell which process has a node
    return partition(HeteroGraph.from_arrays(edges, None, num_nodes=sizes), size, method=method)


def least(edges: Any, owners: Any) -> int:
    """Returns the bytes that all processes must receive in a step: each row that another one has, once for each layer
    and once for the gradients of the second one."""
    ends: dict[Any, list[Tensor]] = {}
    for key, own in edges.items() if isinstance(edges, dict) else [(("", "", ""), edges)]:
        sources, targets = (owners[key[n]] if isinstance(owners, dict) else owners for n in (0, 2))
        remote = own[:, sources[own[0]] != targets[own[1]]]
        ends.setdefault(key[0], []).append(torch.stack([remote[0], targets[remote[1]]]))
    rows = sum(torch.cat(pairs, 1).unique(dim=1).size(1) for pairs in ends.values())
    return 3 * rows * FEATURES * torch.get_default_dtype().itemsize


def train(task: str, steps: int, checkpoint: Path) -> dict[str, Any]:
    task, _, way = task.partition(" ")
    task, _, data = task.partition("@")
    name, _, memory = task.partition(":")
    size, rank = 1 if way == "alone" else dist.get_world_size(), dist.get_rank()
    limits = memory.split("/")
    memory = limits[rank % len(limits)]  # processes may name different ones
    edges, x, y, extra, relations = problem(name, data or "random")
    typed = isinstance(edges, dict)
    torch.manual_seed(1)
    types = ([*x], [*edges]) if typed else ([], [])
    model: Any = dacergnn.optimize(Net(convs(name, relations, types), memory))
    counts: Any = {kind: len(rows) for kind, rows in x.items()} if typed else len(x)
    total = sum(counts.values()) if typed else counts
    graph: Any = Whole(edges, counts)
    mine = owners(edges, counts, size)
    if size > 1:
        graph = DistributedGraph(edges, mine)
        if typed:
            x, y = ({k: r[graph.own[k]] for k, r in rows.items()} for rows in (x, y))
        else:
            x, y, extra = x[graph.own], y[graph.own], tuple(e[graph.edges] for e in extra)
        with torch.no_grad():
            model(graph, x, *extra)
        model = DistributedDataParallel(model, find_unused_parameters=True)
    else:
        with torch.no_grad():
            model(graph, x, *extra)
    if way == "second":
        load({"model": model.state_dict()}, checkpoint_id=checkpoint)  # in place
    # `HeteroConv` adds up its relations, so that steps of one size diverge where there are many.
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5 if name != "HeteroConv" else 1.0 / relations**2)
    losses: list[float] = []
    gradients: list[Tensor] = []
    received = 0
    for step in range(steps // 2 if way in ("first", "second") else steps):
        received = getattr(graph, "bytes_received", 0)
        if way == "killed" and step == 1 and rank == 1:
            os._exit(3)
        optimizer.zero_grad()
        out = model(graph, x, *extra)
        rows: Any
        classes: Any
        rows, classes = (torch.cat([out[k] for k in y]), torch.cat([*y.values()])) if typed else (out, y)
        summed = nn.functional.cross_entropy(rows, classes, reduction="sum") / total
        (summed * size).backward()  # gradients are averaged over the processes
        loss = summed.detach().clone()
        if size > 1:
            dist.all_reduce(loss)
        losses.append(float(loss))
        gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
        optimizer.step()
    if way == "first":
        save({"model": model.state_dict()}, checkpoint_id=checkpoint)
    received = getattr(graph, "bytes_received", 0) - received
    return {"losses": losses, "gradients": gradients, "received": received, "least": least(edges, mine)}


if __name__ == "__main__":
    interpreted.set_default(os.environ["DACERGNN_TEST_TARGET"])
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)  # in which another order of operations is no excuse
    tasks, steps, out = sys.argv[1:]
    dist.init_process_group("gloo")
    found: dict[str, Any] = {}
    for task in tasks.split(","):
        if task == "exchanging":
            found[task] = compared()
        elif dist.get_rank() == 0 or not task.endswith(" alone"):
            found[task] = train(task, int(steps), Path(out).with_name("checkpoint"))
        torch.save(found, out)
