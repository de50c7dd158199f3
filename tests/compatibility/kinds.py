"""One small layer of every kind that the package compiles, and a call of it, for tests of what is done to modules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
import torch

dgl = pytest.importorskip("dgl")
pyg = pytest.importorskip("torch_geometric.nn")

import dgl.function as fn  # noqa: E402
from dgl import nn as dglnn  # noqa: E402
from dgl.nn.functional import edge_softmax  # noqa: E402
from torch import Tensor, nn  # noqa: E402

import dacergnn  # noqa: E402
from dacergnn.graph import HeteroGraph  # noqa: E402
from dacergnn.modules import HGT, RGAT, RGCN  # noqa: E402

N, E, R, F, M = 7, 15, 2, 4, 3
"""Nodes, edges, edge types, features that come in, features that go out."""
Call = tuple[Any, ...]
RELATIONS = [("a", "r", "a"), ("b", "s", "a"), ("a", "t", "b")]


def _draw(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def edges(seed: int = 0) -> tuple[Tensor, Tensor]:
    """Sources and destinations [2, E], without self loops, and types [E]."""
    generator = torch.Generator().manual_seed(seed)
    src = torch.randint(0, N, (E,), generator=generator)
    dst = (src + torch.randint(1, N, (E,), generator=generator)) % N
    return torch.stack([src, dst]), torch.randint(0, R, (E,), generator=generator)


@dataclass(frozen=True)
class Kind:
    """A kind of layer.

    Args:
        name: For reports.
        make: Makes the layer of the library, with parameters that are the same each time.
        features: Tensors [.., channels] in float64 that a call is differentiated by.
        call: The arguments of a call, from these features in any element type.
        own: The module is one of this package, so that there is no original.
    """

    name: str
    make: Callable[[], nn.Module]
    features: Callable[[], tuple[Tensor, ...]]
    call: Callable[..., Call]
    own: bool = False

    def pair(
        self, dtype: torch.dtype = torch.float64, *, strict: bool = True, config: dacergnn.Config | None = None
    ) -> tuple[nn.Module, nn.Module]:
        """The layer of the library, and the compiled one, with parameters of its own that are equal.

        Args:
            strict: Whether it is an error if a call runs the original.
        """
        return self.original(dtype), self.compiled(dtype, strict=strict, config=config)

    def original(self, dtype: torch.dtype = torch.float64) -> nn.Module:
        module = self.make().to(torch.float64)
        with torch.no_grad():
            for seed, parameter in enumerate(module.parameters()):
                parameter.copy_(0.5 * _draw(*parameter.shape, seed=seed))
        return module.to(dtype)

    def compiled(
        self, dtype: torch.dtype = torch.float64, *, strict: bool = True, config: dacergnn.Config | None = None
    ) -> nn.Module:
        original: Any = self.original(dtype)
        if self.own:
            if config is not None and hasattr(original, "config"):
                original.config = config
            return original
        return dacergnn.optimize(original, config=config, on_unsupported="error" if strict else "ignore")

    def arguments(self, dtype: torch.dtype = torch.float64) -> Call:
        """The arguments of a call; edges and graphs are the same ones each time."""
        return self.call(*[x.to(dtype) for x in self.features()])


def outputs(result: Any) -> tuple[Tensor, ...]:
    """The tensors of a result."""
    if isinstance(result, dict):
        return tuple(result.values())
    return tuple(result) if isinstance(result, tuple) else (result,)


@cache
def _edge_index() -> Tensor:
    return edges()[0]


@cache
def _edge_type() -> Tensor:
    return edges()[1]


@cache
def _edge_dict() -> dict[tuple[str, str, str], Tensor]:
    return {relation: _edge_index().roll(i, 1) for i, relation in enumerate(RELATIONS)}


@cache
def _dgl_graph() -> Any:
    loops = torch.arange(N)
    src, dst = torch.cat([_edge_index(), torch.stack([loops, loops])], dim=1)
    return dgl.graph((src, dst), num_nodes=N)


@cache
def _dgl_types() -> Tensor:
    return torch.arange(E + N) % R


@cache
def _node_types() -> Tensor:
    return torch.arange(N) % 2


@cache
def _graph() -> HeteroGraph:
    return HeteroGraph.from_arrays(
        _edge_index(), _edge_type(), num_nodes=N, num_edge_types=R, node_type=_node_types(), num_node_types=2
    )


class UserLayer(pyg.MessagePassing):
    """A layer without a front end: gates and an activation on edges."""

    def __init__(self) -> None:
        super().__init__(aggr="mean")
        self.lin, self.gate = nn.Linear(F, M), nn.Linear(F, M)
        self.scale = 2.0

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, h=self.lin(x), g=self.gate(x))

    def message(self, h_j: Tensor, g_i: Tensor) -> Tensor:
        return self.scale * torch.sigmoid(g_i) * torch.tanh(h_j)


class DGLForward(nn.Module):
    """A module whose forward takes a DGL graph."""

    def __init__(self) -> None:
        super().__init__()
        self.lin, self.score = nn.Linear(F, M), nn.Linear(M, 1)

    @dacergnn.compile
    def forward(self, g: Any, x: Tensor) -> Tensor:
        with g.local_scope():
            g.ndata["h"] = self.lin(x)
            g.ndata["s"] = self.score(g.ndata["h"])
            g.apply_edges(fn.u_add_v("s", "s", "e"))
            g.edata["a"] = edge_softmax(g, torch.tanh(g.edata["e"]))
            g.update_all(fn.u_mul_e("h", "a", "m"), fn.sum("m", "out"))
            return g.ndata["out"]


@dacergnn.compile
def attention(g, x, W, q):
    for e in g.edges():
        e["h"] = linear(e.src.x, W[e.etype])  # noqa: F821
        e["a"] = tanh(dot_prd(e["h"], q))  # noqa: F821
    for n in g.dst_nodes():
        n["out"] = sum(e["a"] * e["h"] for e in n.incoming_edges())
    return out  # noqa: F821


def _one(seed: int = 1) -> Callable[[], tuple[Tensor, ...]]:
    return lambda: (_draw(N, F, seed=seed),)


def _two() -> tuple[Tensor, ...]:
    return _draw(N, F), _draw(N, F, seed=2)


class _Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.SAGEConv((F, F), M)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv(x, edge_index).tanh()


def _mlp(width: int = F) -> nn.Module:
    return nn.Sequential(nn.Linear(width, M), nn.Tanh(), nn.Linear(M, M))


_POSITIONS = _draw(E, 2, seed=3)
_DGL_POSITIONS = _draw(E + N, 2, seed=3)


def _on_edges(x: Tensor) -> Call:
    return x, _edge_index()


def _typed(x: Tensor) -> Call:
    return x, _edge_index(), _edge_type()


def _by_type(a: Tensor, b: Tensor) -> Call:
    return {"a": a, "b": b}, _edge_dict()


def _on_dgl(x: Tensor) -> Call:
    return _dgl_graph(), x


def _pyg(name: str, make: Callable[[], nn.Module], call: Callable[..., Call] = _on_edges) -> Kind:
    return Kind(f"pyg.{name}", make, _two if call is _by_type else _one(), call)


def _dgl(name: str, make: Callable[[], nn.Module], call: Callable[..., Call] = _on_dgl) -> Kind:
    return Kind(f"dgl.{name}", make, _one(), call)


KINDS = [
    _pyg("RGCNConv", lambda: pyg.RGCNConv(F, M, R), _typed),
    _pyg("RGCNConv-max", lambda: pyg.RGCNConv(F, M, R, aggr="max"), _typed),
    _pyg("FastRGCNConv", lambda: pyg.FastRGCNConv(F, M, R, num_bases=2), _typed),
    _pyg("RGATConv", lambda: pyg.RGATConv(F, M, R), _typed),
    _pyg("RGATConv-modes", lambda: pyg.RGATConv(F, M, R, heads=2, mod="scaled"), _typed),
    _pyg("HGTConv", lambda: pyg.HGTConv(F, F, (["a", "b"], RELATIONS), heads=2), _by_type),
    _pyg("GCNConv", lambda: pyg.GCNConv(F, M)),
    _pyg("SAGEConv", lambda: pyg.SAGEConv(F, M)),
    _pyg("SAGEConv-normalize", lambda: pyg.SAGEConv(F, M, aggr="max", normalize=True)),
    _pyg("GINConv", lambda: pyg.GINConv(_mlp(), train_eps=True)),
    _pyg("GATConv", lambda: pyg.GATConv(F, M, heads=2)),
    _pyg("GATv2Conv", lambda: pyg.GATv2Conv(F, M, heads=2, concat=False)),
    _pyg("EdgeConv", lambda: pyg.EdgeConv(_mlp(2 * F))),
    _pyg("GMMConv", lambda: pyg.GMMConv(F, M, dim=2, kernel_size=2),
         lambda x: (x, _edge_index(), _POSITIONS.to(x.dtype))),
    _pyg("HeteroConv-SAGEConv", lambda: pyg.HeteroConv({r: pyg.SAGEConv((F, F), M) for r in RELATIONS}), _by_type),
    _pyg("HeteroConv-GATConv",
         lambda: pyg.HeteroConv({r: pyg.GATConv((F, F), M, add_self_loops=False) for r in RELATIONS}), _by_type),
    _pyg("HeteroConv-GATv2Conv",
         lambda: pyg.HeteroConv({r: pyg.GATv2Conv((F, F), M, add_self_loops=False) for r in RELATIONS}), _by_type),
    _pyg("HeteroConv-TransformerConv",
         lambda: pyg.HeteroConv({r: pyg.TransformerConv((F, F), M) for r in RELATIONS}), _by_type),
    _pyg("to_hetero-SAGEConv", lambda: pyg.to_hetero(_Model(), (["a", "b"], RELATIONS)), _by_type),
    _pyg("traced-ResGatedGraphConv", lambda: pyg.ResGatedGraphConv(F, M)),
    _pyg("traced-UserLayer", UserLayer),
    _dgl("RelGraphConv", lambda: dglnn.RelGraphConv(F, M, R, regularizer="basis", num_bases=2),
         lambda x: (_dgl_graph(), x, _dgl_types())),
    _dgl("HGTConv", lambda: dglnn.HGTConv(F, 2, 2, 2, R, dropout=0.0),
         lambda x: (_dgl_graph(), x, _node_types(), _dgl_types())),
    _dgl("GraphConv", lambda: dglnn.GraphConv(F, M)),
    _dgl("SAGEConv", lambda: dglnn.SAGEConv(F, M, "pool")),
    _dgl("GINConv", lambda: dglnn.GINConv(_mlp(), "mean", learn_eps=True)),
    _dgl("GATConv", lambda: dglnn.GATConv(F, M, 2)),
    _dgl("GATv2Conv", lambda: dglnn.GATv2Conv(F, M, 2)),
    _dgl("EdgeConv", lambda: dglnn.EdgeConv(F, M)),
    _dgl("GMMConv", lambda: dglnn.GMMConv(F, M, 2, 2), lambda x: (_dgl_graph(), x, _DGL_POSITIONS.to(x.dtype))),
    _dgl("traced-DotGatConv", lambda: dglnn.DotGatConv(F, M, 2, allow_zero_in_degree=True)),
    Kind("compile-DGL-forward", DGLForward, _one(), _on_dgl, own=True),
    Kind("own.RGCN", lambda: RGCN(F, M, R), _one(), lambda x: (x, _graph()), own=True),
    Kind("own.RGAT", lambda: RGAT(F, M, R, heads=2), _one(), lambda x: (x, _graph()), own=True),
    Kind("own.HGT", lambda: HGT(F, 2, R, heads=2), _one(), lambda x: (x, _graph()), own=True),
    Kind("compile-program", lambda: attention.module(_graph(), W=(F, M), q=M), _one(), lambda x: (_graph(), x),
         own=True),
]  # fmt: skip


def named(kind: Kind) -> str:
    """The name that a test bears."""
    return kind.name
