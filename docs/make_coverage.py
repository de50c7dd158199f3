"""Makes coverage.md: which layers of other libraries are compiled, and what the others are left for.

    python docs/make_coverage.py [names of layers]

Every class of `torch_geometric.nn.conv` is made and called as `CASES` says, as it is and optimized, and outputs and
gradients of inputs and parameters are compared. With names, prints what it finds and writes nothing.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch_geometric
from torch import Tensor, nn
from torch_geometric.nn import conv

import dacergnn
from dacergnn.errors import DacergnnError
from dacergnn.modules import CompiledLayer

N, E, K, M, D = 23, 90, 6, 8, 4
TOLERANCES = {torch.float32: 2e-4, torch.float64: 1e-9}
TYPES = ["a", "b"]
RELATIONS = [("a", "to", "b"), ("b", "to", "a")]
Case = Callable[[], tuple[nn.Module, tuple[Any, ...]]]


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape)


def x(channels: int = K) -> Tensor:
    return draw(N, channels)


def edges(count: int = E) -> Tensor:
    return torch.randint(0, N, (2, count))


def types(count: int, number: int) -> Tensor:
    return torch.randint(0, number, (count,))


def mlp(*channels: int) -> nn.Module:
    return nn.Sequential(nn.Linear(channels[0], channels[1]), nn.ReLU(), nn.Linear(channels[1], channels[-1]))


def hetero() -> tuple[dict[str, Tensor], dict[tuple[str, str, str], Tensor]]:
    return {name: x() for name in TYPES}, {key: edges() for key in RELATIONS}


CASES: dict[str, Case] = {
    "SimpleConv": lambda: (conv.SimpleConv(combine_root="sum"), (x(), edges(), torch.rand(E))),
    "GCNConv": lambda: (conv.GCNConv(K, M), (x(), edges(), torch.rand(E))),
    "ChebConv": lambda: (conv.ChebConv(K, M, 3), (x(), edges())),
    "SAGEConv": lambda: (conv.SAGEConv(K, M), (x(), edges())),
    "GraphConv": lambda: (conv.GraphConv(K, M), (x(), edges(), torch.rand(E))),
    "GatedGraphConv": lambda: (conv.GatedGraphConv(M, 2), (x(), edges())),
    "ResGatedGraphConv": lambda: (conv.ResGatedGraphConv(K, M, edge_dim=D), (x(), edges(), draw(E, D))),
    "GATConv": lambda: (conv.GATConv(K, M, heads=2, edge_dim=D), (x(), edges(), draw(E, D))),
    "FusedGATConv": lambda: (conv.FusedGATConv(K, M, heads=2, add_self_loops=False), fused_gat()),
    "GATv2Conv": lambda: (conv.GATv2Conv(K, M, heads=2, edge_dim=D), (x(), edges(), draw(E, D))),
    "TransformerConv": lambda: (conv.TransformerConv(K, M, heads=2, beta=True, edge_dim=D), (x(), edges(), draw(E, D))),
    "AGNNConv": lambda: (conv.AGNNConv(), (x(), edges())),
    "TAGConv": lambda: (conv.TAGConv(K, M), (x(), edges())),
    "GINConv": lambda: (conv.GINConv(mlp(K, M, M), train_eps=True), (x(), edges())),
    "GINEConv": lambda: (conv.GINEConv(mlp(K, M, M), edge_dim=D), (x(), edges(), draw(E, D))),
    "ARMAConv": lambda: (conv.ARMAConv(K, M, num_stacks=2, num_layers=2), (x(), edges())),
    "SGConv": lambda: (conv.SGConv(K, M, 2), (x(), edges())),
    "SSGConv": lambda: (conv.SSGConv(K, M, 0.1, 2), (x(), edges())),
    "APPNP": lambda: (conv.APPNP(3, 0.1), (x(), edges())),
    "MFConv": lambda: (conv.MFConv(K, M), (x(), edges())),
    "RGCNConv": lambda: (conv.RGCNConv(K, M, 3), (x(), edges(), types(E, 3))),
    "FastRGCNConv": lambda: (conv.FastRGCNConv(K, M, 3), (x(), edges(), types(E, 3))),
    "RGATConv": lambda: (conv.RGATConv(K, M, 3), (x(), edges(), types(E, 3))),
    "SignedConv": lambda: (conv.SignedConv(K, M, True), (x(), edges(), edges())),
    "DNAConv": lambda: (conv.DNAConv(M, heads=2), (draw(N, 3, M), edges())),
    "PointNetConv": lambda: (conv.PointNetConv(mlp(K + 3, M, M)), (x(), x(3), edges())),
    "GMMConv": lambda: (conv.GMMConv(K, M, D, 3), (x(), edges(), draw(E, D))),
    "NNConv": lambda: (conv.NNConv(K, M, mlp(D, M, K * M)), (x(), edges(), draw(E, D))),
    "CGConv": lambda: (conv.CGConv(K, D), (x(), edges(), draw(E, D))),
    "EdgeConv": lambda: (conv.EdgeConv(mlp(2 * K, M, M)), (x(), edges())),
    "PPFConv": lambda: (conv.PPFConv(mlp(K + 4, M, M)), (x(), x(3), nn.functional.normalize(x(3)), edges())),
    "FeaStConv": lambda: (conv.FeaStConv(K, M, heads=2), (x(), edges())),
    "PointTransformerConv": lambda: (conv.PointTransformerConv(K, M), (x(), x(3), edges())),
    "HypergraphConv": lambda: (conv.HypergraphConv(K, M), (x(), torch.stack([types(E, N), types(E, 9)]))),
    "LEConv": lambda: (conv.LEConv(K, M), (x(), edges(), torch.rand(E))),
    "PNAConv": lambda: (
        conv.PNAConv(K, M, ["mean", "max"], ["identity", "amplification"], torch.tensor([3, 5, 8, 4])),
        (x(), edges()),
    ),
    "ClusterGCNConv": lambda: (conv.ClusterGCNConv(K, M), (x(), edges())),
    "GENConv": lambda: (conv.GENConv(K, M, learn_t=True, edge_dim=D), (x(), edges(), draw(E, D))),
    "GCN2Conv": lambda: (conv.GCN2Conv(K, 0.1, 0.5, 1), (x(), x(), edges())),
    "PANConv": lambda: (conv.PANConv(K, M, 2), (x(), edges())),
    "WLConv": lambda: (conv.WLConv(), (types(N, 3), edges())),
    "WLConvContinuous": lambda: (conv.WLConvContinuous(), (x(), edges(), torch.rand(E))),
    "FiLMConv": lambda: (conv.FiLMConv(K, M, num_relations=2), (x(), edges(), types(E, 2))),
    "SuperGATConv": lambda: (conv.SuperGATConv(K, M, heads=2), (x(), edges())),
    "FAConv": lambda: (conv.FAConv(K), (x(), x(), edges())),
    "EGConv": lambda: (conv.EGConv(K, M, ["sum", "mean", "max"], 2, 2), (x(), edges())),
    "PDNConv": lambda: (conv.PDNConv(K, M, D, M), (x(), edges(), draw(E, D))),
    "GeneralConv": lambda: (conv.GeneralConv(K, M, D, attention=True, heads=2), (x(), edges(), draw(E, D))),
    "HGTConv": lambda: (conv.HGTConv(K, M, (TYPES, RELATIONS), 2), hetero()),
    "HEATConv": lambda: (
        conv.HEATConv(K, M, 2, 3, 2, D, 2, heads=2),
        (x(), edges(), types(N, 2), types(E, 3), draw(E, D)),
    ),
    "HeteroConv": lambda: (conv.HeteroConv({key: conv.SAGEConv((K, K), M) for key in RELATIONS}), hetero()),
    "HANConv": lambda: (conv.HANConv(K, M, (TYPES, RELATIONS), 2), hetero()),
    "LGConv": lambda: (conv.LGConv(), (x(), edges(), torch.rand(E))),
    "PointGNNConv": lambda: (conv.PointGNNConv(mlp(K, M, 3), mlp(K + 3, M, M), mlp(M, M, K)), (x(), x(3), edges())),
    "GPSConv": lambda: (conv.GPSConv(M, conv.GCNConv(M, M), 2), (x(M), edges())),
    "AntiSymmetricConv": lambda: (conv.AntiSymmetricConv(K, conv.GCNConv(K, K, bias=False)), (x(), edges())),
    "DirGNNConv": lambda: (conv.DirGNNConv(conv.SAGEConv(K, M)), (x(), edges())),
    "MixHopConv": lambda: (conv.MixHopConv(K, M), (x(), edges())),
    "MeshCNNConv": lambda: (conv.MeshCNNConv(K, M), (x(), mesh())),
}
NEEDS = {
    "SplineConv": "needs pyg-lib", "DynamicEdgeConv": "needs pyg-lib", "GravNetConv": "needs pyg-lib",
    "XConv": "needs pyg-lib", "CuGraphSAGEConv": "needs pylibcugraphops", "CuGraphGATConv": "needs pylibcugraphops",
    "CuGraphRGCNConv": "needs pylibcugraphops", "PANConv": "needs torch-sparse", "MessagePassing": "the base class",
}  # fmt: skip


def fused_gat() -> tuple[Any, ...]:
    csr, csc, perm = conv.FusedGATConv.to_graph_format(edges(), size=(N, N))
    return x(), csr, csc, perm


def mesh() -> Tensor:
    return torch.stack([torch.randint(0, N, (4 * N,)), torch.arange(N).repeat_interleave(4)])


@dataclass
class Finding:
    """What became of one layer: compiled, or why not."""

    name: str
    compiled: bool
    reason: str


def convert(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, Tensor) and value.is_floating_point():
        return value.to(dtype).requires_grad_()
    if isinstance(value, dict):
        return {k: convert(v, dtype) for k, v in value.items()}
    return value


def leaves(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value] if value.is_floating_point() else []
    if isinstance(value, dict):
        value = list(value.values())
    return [t for v in value for t in leaves(v)] if isinstance(value, tuple | list) else []


def outcome(layer: nn.Module, args: tuple[Any, ...]) -> list[Tensor]:
    """Outputs, and gradients of a weighted sum of them by inputs and parameters."""
    torch.manual_seed(7)
    outputs = leaves(layer(*args))
    total = sum((o * torch.arange(1.0, o.numel() + 1, dtype=o.dtype).cos().view(o.shape)).sum() for o in outputs)
    wrt = [t for t in [*leaves(args), *layer.parameters()] if t.requires_grad]
    if not isinstance(total, Tensor) or not total.requires_grad:
        return outputs
    found = torch.autograd.grad(total, wrt, allow_unused=True)
    return [*outputs, *[torch.zeros_like(t) if g is None else g for t, g in zip(wrt, found, strict=True)]]


def examine(name: str) -> Finding:
    if name in NEEDS:
        return Finding(name, False, NEEDS[name])
    torch.manual_seed(3)
    try:
        layer, args = CASES[name]()
    except ImportError as error:
        return Finding(name, False, f"needs {error.name or error}")
    layer.train()
    worst = 0.0
    for dtype, tolerance in TOLERANCES.items():
        layer = layer.to(dtype)
        given = tuple(convert(a, dtype) for a in args)
        optimized = dacergnn.optimize(layer, on_unsupported="ignore")
        parts = [m for m in optimized.modules() if isinstance(m, CompiledLayer)]
        if not parts:
            return Finding(name, False, "no message passing layer")
        expected = outcome(layer, given)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = outcome(optimized, given)
        except DacergnnError as error:
            return Finding(name, False, f"ERROR {error}")
        reasons = [p.refusal for p in parts if p.refusal]
        for a, b in zip(found, expected, strict=True):
            worst = max(worst, float((a - b).abs().max() / (1 + b.abs().max())) / tolerance)
        if worst > 1:
            return Finding(name, False, f"ERROR: off by {worst:.1g} tolerances in {dtype}")
        if reasons:
            return Finding(name, False, reasons[0])
        if not any(p.last_call for p in parts):
            return Finding(name, False, "nothing to compile in this call")
    return Finding(name, True, "front end" if type(parts[0]) is CompiledLayer else "traced")


def table(findings: list[Finding]) -> str:
    rows = [f"| `{f.name}` | {'compiled' if f.compiled else 'original'} | {f.reason} |" for f in findings]
    return "\n".join(["| layer | runs | how, or why not |", "|---|---|---|", *rows])


HEAD = """# Coverage

Made by `docs/make_coverage.py`: every layer is called as it is and optimized, in float32 and in float64, and outputs
and gradients of inputs and parameters are compared. Layers that are not compiled run as they are, with a warning.
"Traced" layers have no front end of their own: their Python is run with recorded values.

## PyTorch Geometric {version}

{compiled} of {total} classes of `torch_geometric.nn.conv` are compiled.

{table}
"""


def main(names: list[str]) -> None:
    findings: list[Finding] = []
    for name in names or conv.__all__:
        start = time.time()
        findings.append(examine(name))
        finding = findings[-1]
        outcome = "compiled" if finding.compiled else "original"
        sys.stdout.write(f"{name}: {outcome}, {finding.reason} ({time.time() - start:.0f} s)\n")
    if not names:
        count = sum(f.compiled for f in findings)
        text = HEAD.format(
            version=torch_geometric.__version__, compiled=count, total=len(findings), table=table(findings)
        )
        Path(__file__).with_name("coverage.md").write_text(text)


if __name__ == "__main__":
    main(sys.argv[1:])
