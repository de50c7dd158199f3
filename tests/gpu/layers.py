"""Layers for tests on devices: how to make one, call it there, and what float64 on the processor makes of the same."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

import dacergnn
from dacergnn import HeteroGraph
from dacergnn.bench.rates import PRECISIONS
from dacergnn.modules import HGT, RGAT, RGCN
from tests.frontends.cases import Call, Case
from tests.frontends.check import tensors
from tests.frontends.graphs import Edges, edge_dict, type_name, typed_edges
from tests.reference.hgt import pyg_hgt
from tests.reference.rgat import rgat
from tests.reference.rgcn import rgcn

WIDTH = 64
TOLERANCE = {"float64": 1e-10, "float32": 5e-5, "tf32": 1e-2, "float16": 1e-2, "bfloat16": 6e-2}
"""Of each tensor's largest value: a few dozen roundings of the type in which products and results are rounded."""


@dataclass(frozen=True)
class Values:
    """Fixed random numbers that every type holds exactly: those of bfloat16."""

    device: torch.device
    dtype: torch.dtype

    def __call__(self, *shape: int, seed: int) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        return torch.randn(shape, generator=generator).bfloat16().to(self.device, self.dtype)


def hub_edges(hub: int = 120_000) -> Edges:
    """One node with ``hub`` incoming edges, one with as many outgoing ones, and others with a few or none."""
    generator = torch.Generator().manual_seed(0)
    sizes, ends = (3000, 1000, 500, 2), ((0, 1), (1, 3), (0, 0), (2, 1), (1, 0))
    starts = (0, 3000, 4000, 4500)
    parts: list[Tensor] = []
    for relation, count in ((0, hub), (3, hub), (2, 20_000)):
        (s, d) = ends[relation]
        src = starts[s] + torch.randint(sizes[s] - 1, (count,), generator=generator)
        dst = starts[d] + torch.randint(sizes[d] - 1, (count,), generator=generator)
        if relation == 0:
            dst[:] = starts[d]
        if relation == 3:
            src[:] = starts[s]
        parts.append(torch.stack([src, dst, torch.full((count,), relation)]))
    src, dst, types = torch.cat(parts, 1)[:, torch.randperm(2 * hub + 20_000, generator=generator)]
    return Edges(torch.stack([src, dst]), types, sum(sizes), sum(sizes), len(ends), sizes, ends)


GRAPHS: dict[str, Callable[[], Edges]] = {
    "small": partial(typed_edges, 400, 5),
    "without edges": partial(typed_edges, 0, 1),
    "hubs": hub_edges,
}
"""Empty relations, isolated nodes, edges that occur several times; no edges; more than 10^5 edges at one node."""


def _rgcn(edges: Edges) -> nn.Module:
    from torch_geometric.nn import RGCNConv

    return RGCNConv(WIDTH, WIDTH, edges.num_relations)


def _rgat(edges: Edges) -> nn.Module:
    from torch_geometric.nn import RGATConv

    return RGATConv(WIDTH, WIDTH // 4, edges.num_relations, heads=4)


def _hgt(edges: Edges) -> nn.Module:
    from torch_geometric.nn import HGTConv

    names = [type_name(t) for t in range(len(edges.type_sizes))]
    return HGTConv(WIDTH, WIDTH, (names, list(edge_dict(edges))), heads=4)


def _rows(edges: Edges, dtype: torch.dtype) -> Call:
    x = Values(torch.device("cpu"), dtype)(edges.num_src, WIDTH, seed=3).requires_grad_()
    return (x, edges.edge_index, edges.edge_type), {}


def _typed_rows(edges: Edges, dtype: torch.dtype) -> Call:
    make = Values(torch.device("cpu"), dtype)
    x = {type_name(t): make(n, WIDTH, seed=t).requires_grad_() for t, n in enumerate(edges.type_sizes)}
    return (x, edge_dict(edges)), {}


PYG = {
    "rgcn": Case("rgcn", "pyg", _rgcn, _rows, rgcn),
    "rgat": Case("rgat", "pyg", _rgat, _rows, rgat),
    "hgt": Case("hgt", "pyg", _hgt, _typed_rows, pyg_hgt),
}
"""Layers of PyG, 64 features in and out."""


def filled(layer: nn.Module, device: torch.device, dtype: torch.dtype) -> nn.Module:
    """The layer with fixed random parameters, small enough for sums of products to stay near one."""
    layer = layer.to(device, dtype)
    make = Values(device, dtype)
    with torch.no_grad():
        for seed, parameter in enumerate(layer.parameters()):
            parameter.copy_(make(*parameter.shape, seed=seed + 20) * 0.125)
    return layer


def moved(value: Any, device: torch.device, dtype: torch.dtype) -> Any:
    """Arguments on a device, those with a gradient in another type."""
    if isinstance(value, Tensor):
        if not value.is_floating_point():
            return value.to(device)
        return value.detach().to(device, dtype).requires_grad_(value.requires_grad)
    if isinstance(value, dict):
        return {key: moved(item, device, dtype) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(moved(item, device, dtype) for item in value)
    return value


def differentiated(call: Callable[..., Any], layer: nn.Module, arguments: Call) -> list[Tensor]:
    """Outputs, and the gradients of all inputs and parameters for fixed gradients of the outputs."""
    args, kwargs = arguments
    outputs = list(tensors(call(*args, **kwargs)))
    leaves = [t for t in (*tensors(args), *tensors(kwargs)) if t.requires_grad] + list(layer.parameters())
    weights = [Values(t.device, t.dtype)(*t.shape, seed=100 + n) for n, t in enumerate(outputs)]
    found = torch.autograd.grad(outputs, leaves, weights, allow_unused=True)
    gradients = [torch.zeros_like(leaf) if g is None else g for g, leaf in zip(found, leaves, strict=True)]
    return [*(t.detach() for t in outputs), *gradients]


def expected(case: Case, layer: nn.Module, arguments: Call) -> list[Tensor]:
    """What the restatement gives in float64 on the processor."""
    processor = torch.device("cpu")
    exact = copy.deepcopy(layer).to(processor, torch.float64)
    return differentiated(partial(case.reference, exact), exact, moved(arguments, processor, torch.float64))


def errors(found: list[Tensor], wanted: list[Tensor]) -> list[float]:
    """The largest deviation in each tensor, relative to its largest value; infinite where there is a NaN."""
    assert [t.shape for t in found] == [t.shape for t in wanted]
    result: list[float] = []
    for a, b in zip(found, wanted, strict=True):
        difference = (a.cpu().double() - b.cpu().double()).abs()
        worst = (difference / b.abs().max().clamp(min=1e-3).cpu()).max().item() if b.numel() else 0.0
        result.append(math.inf if math.isnan(worst) else worst)
    return result


def assert_close(
    found: list[Tensor],
    wanted: list[Tensor],
    precision: str,
    peer: Callable[[], list[Tensor]] | None = None,
    tolerance: float | None = None,
) -> None:
    """Every tensor is as near to the wanted one as its precision allows.

    Some gradients are small differences of large sums: where a tensor is further off, what ``peer`` computes in the
    same precision may not be three times as near.
    """
    allowed = [TOLERANCE[precision] if tolerance is None else tolerance] * len(wanted)
    deviations = errors(found, wanted)
    if peer is not None and any(e > limit for e, limit in zip(deviations, allowed, strict=True)):
        allowed = [max(limit, 3 * e) for limit, e in zip(allowed, errors(peer(), wanted), strict=True)]
    for number, (error, limit) in enumerate(zip(deviations, allowed, strict=True)):
        shape = list(wanted[number].shape)
        assert error <= limit, f"tensor {number} of shape {shape} is off by {error:.1e} of its largest value"


def check(case: Case, edges: Edges, precision: str, device: torch.device, optimize: Callable[..., Any]) -> None:
    """Output and all gradients of the compiled layer, in two calls, against float64."""
    layer = filled(case.make(edges), device, PRECISIONS[precision])
    arguments = moved(case.inputs(edges, torch.float64), device, PRECISIONS[precision])
    wanted = expected(case, layer, arguments)
    compiled = optimize(layer, on_unsupported="error")

    def peer() -> list[Tensor]:
        return differentiated(layer, layer, arguments)

    for _ in range(2):  # the second call takes the short way
        assert_close(differentiated(compiled, compiled, arguments), wanted, precision, peer)
    with torch.no_grad():
        outputs = list(tensors(compiled(*arguments[0], **arguments[1])))
    assert_close(outputs, wanted[: len(outputs)], precision, lambda: peer()[: len(outputs)])


def typed_graph(edges: Edges, device: torch.device) -> HeteroGraph:
    """The package's graph of the edges."""
    return HeteroGraph.from_arrays(
        edges.edge_index,
        edges.edge_type,
        num_nodes=edges.num_src,
        num_edge_types=edges.num_relations,
        node_type=edges.node_type(),
        num_node_types=len(edges.type_sizes),
    ).to(device)


NATIVE: dict[str, Callable[[Edges, int], nn.Module]] = {
    "rgcn": lambda edges, width: RGCN(width, width, edges.num_relations),
    "rgat": lambda edges, width: RGAT(width, width // 2, edges.num_relations, heads=2),
    "hgt": lambda edges, width: HGT(width, len(edges.type_sizes), edges.num_relations, heads=2),
}
"""Layers of our own, over a `HeteroGraph`."""


def native(name: str, edges: Edges, device: torch.device, dtype: torch.dtype, width: int = 16) -> Any:
    """A layer of our own with fixed parameters, features with a gradient, and the graph, all on a device."""
    layer = filled(NATIVE[name](edges, width), device, dtype)
    x = Values(device, dtype)(edges.num_src, width, seed=3).requires_grad_()
    return layer, x, typed_graph(edges, device)


@dacergnn.compile
def decorated(g: Any, x: Any, W: Any, norm: Any, root: Any) -> Any:
    """RGCN in program form."""
    for n in g.dst_nodes():
        n["h"] = sum(e.norm * linear(e.src.x, W[e.etype]) for e in n.incoming_edges())  # noqa: F821
        n["out"] = n["h"] + linear(n.x, root)  # noqa: F821
    return out  # noqa: F821
