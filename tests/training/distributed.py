"""Training in several processes: the models, the batches of each process, and what a process does.

As a program, ``python -m tests.training.distributed FOLDER``, it trains with several processes, and with one
that takes their batches joined. Processes are forked, so that libraries are imported once.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dgl
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from dgl import nn as dglnn
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch_geometric import nn as pyg

import dacergnn
import tests.conftest  # noqa: F401  # the settings of tests, in processes that pytest does not start

N, E, R, F, M, STEPS = 12, 40, 3, 4, 4, 20
TYPES = {"a": 12, "b": 6}
RELATIONS = [("a", "r", "a"), ("b", "s", "a"), ("a", "t", "b")]
WORLD = 3
"""Number of processes."""
Parts = Sequence[int]
"""Seeds of the graphs in a batch, each a graph of its own; the same sizes for all of them."""
State = dict[str, Tensor]
"""Parameters by name."""


def _random(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _rows(parts: Parts, count: int, seed: int = 0) -> Tensor:
    drawn = [torch.randn(count, F, generator=_random(part + seed), dtype=torch.float64) for part in parts]
    return torch.cat(drawn)


def _edges(parts: Parts, sources: int = N, destinations: int = N, seed: int = 0) -> Tensor:
    found: list[Tensor] = []
    for number, part in enumerate(parts):
        ends = [torch.randint(0, n, (E,), generator=_random(part + seed + n)) + number * n
                for n in (sources, destinations)]  # fmt: skip
        found.append(torch.stack(ends))
    return torch.cat(found, 1)


def _types(parts: Parts) -> Tensor:
    return torch.cat([torch.randint(0, R, (E,), generator=_random(part)) for part in parts])


def _on_edges(parts: Parts) -> tuple[Any, ...]:
    return _rows(parts, N), _edges(parts)


def _on_typed_edges(parts: Parts) -> tuple[Any, ...]:
    return *_on_edges(parts), _types(parts)


def _by_type(parts: Parts) -> tuple[Any, ...]:
    x = {kind: _rows(parts, count) for kind, count in TYPES.items()}
    return x, {key: _edges(parts, TYPES[key[0]], TYPES[key[2]], i) for i, key in enumerate(RELATIONS)}


def _without_a_relation(parts: Parts) -> tuple[Any, ...]:
    """Returns graphs of which those of odd seeds have no edges of the last relation."""
    x, edges = _by_type(parts)
    kept = torch.cat([torch.full((E,), part % 2 == 0) for part in parts])
    last = edges.pop(RELATIONS[-1])[:, kept]
    return x, {**edges, RELATIONS[-1]: last} if last.numel() else edges


def _block(parts: Parts) -> tuple[Any, ...]:
    """Returns a block with N destinations for each part, which come first, and as many more sources."""
    total = len(parts) * N
    src, dst = _edges(parts, 2 * N, N)
    graph, row = src // (2 * N), src % (2 * N)
    src = torch.where(row < N, graph * N + row, total + graph * N + row - N)
    block = dgl.create_block((src, dst), num_src_nodes=2 * total, num_dst_nodes=total)
    return block, torch.cat([_rows(parts, N), _rows(parts, N, seed=1)])


def _typed_block(parts: Parts) -> tuple[Any, ...]:
    return *_block(parts), _types(parts)


class _Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.SAGEConv((F, F), M)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv(x, edge_index).tanh()


def _sage_without_rows_of_its_own() -> nn.Module:
    return pyg.SAGEConv((F, F), M, root_weight=False, bias=False)


def _rgat_without_unused_parameters() -> nn.Module:
    layer = pyg.RGATConv(F, M, R)
    for name in ("w", "l1", "b1", "l2", "b2"):
        layer.get_parameter(name).requires_grad_(requires_grad=False)
    return layer


WAYS = {"plain": {}, "find_unused_parameters": {"find_unused_parameters": True}, "static_graph": {"static_graph": True}}


@dataclass(frozen=True)
class Kind:
    """A layer, and the arguments of its calls for a batch.

    Args:
        ways: The ways of DDP that it trains in. Some are none for layers of which calls leave parameters out.
    """

    make: Callable[[], nn.Module]
    call: Callable[[Parts], tuple[Any, ...]]
    ways: tuple[str, ...] = tuple(WAYS)


KINDS = {
    "RGCNConv": Kind(lambda: pyg.RGCNConv(F, M, R), _on_typed_edges),
    "RGATConv": Kind(_rgat_without_unused_parameters, _on_typed_edges),
    "RGATConv with unused parameters": Kind(
        lambda: pyg.RGATConv(F, M, R), _on_typed_edges, ("find_unused_parameters", "static_graph")
    ),
    "HGTConv": Kind(lambda: pyg.HGTConv(F, F, (["a", "b"], RELATIONS), heads=2), _by_type),
    "HeteroConv": Kind(lambda: pyg.HeteroConv({key: pyg.SAGEConv((F, F), M) for key in RELATIONS}), _by_type),
    "HeteroConv without a relation": Kind(
        lambda: pyg.HeteroConv({key: _sage_without_rows_of_its_own() for key in RELATIONS}),
        _without_a_relation,
        ("find_unused_parameters",),
    ),
    "to_hetero": Kind(lambda: pyg.to_hetero(_Layer(), (["a", "b"], RELATIONS)), _by_type),
    "DGL RelGraphConv": Kind(lambda: dglnn.RelGraphConv(F, M, R), _typed_block),
    "DGL GATConv": Kind(lambda: dglnn.GATConv(F, M, 2, allow_zero_in_degree=True), _block),
    "traced ResGatedGraphConv": Kind(lambda: pyg.ResGatedGraphConv(F, M), _on_edges),
    "traced TransformerConv": Kind(lambda: pyg.TransformerConv(F, M, heads=2), _on_edges),
}


def model(kind: Kind) -> nn.Module:
    """Returns the layer of the library, with the same parameters each time."""
    made = kind.make().double()
    for seed, parameter in enumerate(made.parameters()):
        parameter.data = 0.5 * torch.randn(parameter.shape, generator=_random(seed), dtype=torch.float64)
    return made


def part(step: int, rank: int) -> int:
    """Returns the seed of the graph of a process in a step; it is odd if the rank is."""
    return 1000 * step + rank


def train(net: nn.Module, kind: Kind, ranks: Sequence[int]) -> None:
    """Takes steps with the joined batches of some processes; the loss is a mean over their nodes."""
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    for step in range(STEPS):
        found = net(*kind.call([part(step, rank) for rank in ranks]))
        results = list(found.values()) if isinstance(found, dict) else [found]
        optimizer.zero_grad()
        torch.stack([(result - 1).square().mean() for result in results]).sum().backward()
        optimizer.step()


def state(net: nn.Module) -> State:
    """Returns a copy of the parameters by name."""
    return {name: parameter.detach().clone() for name, parameter in net.named_parameters()}


def process(rank: int, folder: Path) -> None:
    """Trains all kinds in all ways as one process of several, and saves the parameters in the end."""
    dist.init_process_group("gloo", init_method=f"file://{folder / 'meeting'}", rank=rank, world_size=WORLD)
    saved: dict[tuple[str, str], State] = {}
    for name, kind in KINDS.items():
        for way in kind.ways:
            net = dacergnn.optimize(model(kind), on_unsupported="error")
            train(DistributedDataParallel(net, **WAYS[way]), kind, [rank])
            saved[name, way] = state(net)
    torch.save(saved, folder / f"{rank}.pt")
    dist.destroy_process_group()


def one_process(folder: Path) -> None:
    """Trains the layers of the library with joined batches; saves the parameters before and in the end."""
    saved: dict[str, tuple[State, State]] = {}
    for name, kind in KINDS.items():
        net = model(kind)
        before = state(net)
        train(net, kind, range(WORLD))
        saved[name] = before, state(net)
    torch.save(saved, folder / "joined.pt")


if __name__ == "__main__":
    torch.set_num_threads(1)
    mp.start_processes(process, (Path(sys.argv[1]),), WORLD, start_method="fork")
    one_process(Path(sys.argv[1]))  # behind all forks, which autograd does not survive well
