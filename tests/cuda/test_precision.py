"""Elements of 16 bits, autocast and TF32 products in CUDA programs, in emulation, against float64."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable, Generator

import ml_dtypes
import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.nn import RGCNConv

import dacergnn
from dacergnn import Config, HeteroGraph
from dacergnn.errors import ArrayError
from dacergnn.modules import HGT, RGCN, torch_operator
from dacergnn.modules.functions import ProgramFunction
from dacergnn.modules.native import NativeLayer
from tests.reference import gallery
from tests.reference.scatter import typed_linear
from tests.support.emulated import compile_emulated, device
from tests.support.emulated_device import emulated_device
from tests.support.random_graphs import joined_graph

__all__ = ["emulated_device"]
RGCN_WIDTH, HGT_WIDTH = 16, 12
Make = Callable[[Config], NativeLayer]
TRANSFORMED = """def transformed(g, x, W):
    for e in g.edges():
        e.dst["y"] += linear(e.src.x, W[e.etype])
    return y
"""


def graph_of(nodes: int, edges: int) -> HeteroGraph:
    """With few nodes, blocks of threads share the edges of one."""
    return joined_graph(random.Random(3), nodes, edges, 4, 3).hetero()


def rgcn(config: Config) -> NativeLayer:
    torch.manual_seed(0)
    return RGCN(RGCN_WIDTH, RGCN_WIDTH, 4, config=config)


def hgt(config: Config) -> NativeLayer:
    torch.manual_seed(0)
    return HGT(HGT_WIDTH, 3, 4, heads=2, config=config)


def expected_results(layer: NativeLayer, x: Tensor, graph: HeteroGraph, seed: Tensor) -> list[Tensor]:
    """Output and gradients in float64 for what 16 bits hold of x and the parameters."""
    x = x.detach().double().requires_grad_()
    own = {f"conv.{n}": p.detach().double().requires_grad_() for n, p in layer.named_parameters()}
    edges = gallery.Edges.of(graph)
    if isinstance(layer, RGCN):
        output = gallery.rgcn(own, edges, x)
    else:
        unclassified = {"classify.weight": torch.eye(HGT_WIDTH).double(), "classify.bias": torch.zeros(HGT_WIDTH)}
        output = gallery.hgt({**own, **unclassified}, edges, x)
    return [output.detach(), *torch.autograd.grad(output, [x, *own.values()], seed.double())]


def assert_near(found: list[Tensor], expected: list[Tensor], dtype: torch.dtype, ulps: float = 4) -> None:
    for a, b in zip(found, expected, strict=True):
        error = (a.double() - b).abs().max() / b.abs().max()
        assert error <= ulps * torch.finfo(dtype).eps, (a.shape, float(error))


@pytest.mark.parametrize(
    ("make", "dtype", "graph"),
    [(rgcn, torch.bfloat16, graph_of(5, 2000)), (hgt, torch.float16, graph_of(60, 300))],
    ids=["rgcn-bfloat16", "hgt-float16"],
)
def test_layers(make: Make, dtype: torch.dtype, graph: HeteroGraph, emulated_device: Config) -> None:
    layer = make(emulated_device).to(dtype)
    x = torch.randn(graph.size("NS"), layer.width).to(dtype).requires_grad_()
    output = layer(x, graph)
    seed = torch.linspace(-1, 1, output.numel()).view(output.shape).to(dtype)
    found = [output.detach(), *torch.autograd.grad(output, [x, *layer.parameters()], seed)]
    assert {t.dtype for t in found} == {dtype}
    assert_near(found, expected_results(layer, x, graph, seed), dtype)


def test_autocast(emulated_device: Config) -> None:
    """Arguments and parameters are cast, the result is not, and gradients have the types of what they belong to."""
    graph, layer = graph_of(5, 2000), rgcn(emulated_device)
    x = torch.randn(graph.size("NS"), layer.width, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = layer(x, graph)
    gradients = torch.autograd.grad(output.float().sum(), [x, *layer.parameters()])
    assert output.dtype is torch.bfloat16
    assert all(g.dtype is torch.float32 and g.any() for g in gradients)
    assert torch.equal(output, layer.bfloat16()(x.bfloat16(), graph))


def test_autocast_of_layers_of_others(emulated_device: Config) -> None:
    torch.manual_seed(0)
    layer = RGCNConv(8, 16, 4, root_weight=False)
    edges, types = torch.randint(0, 30, (2, 200)), torch.randint(0, 4, (200,))
    x = torch.randn(30, 8)
    fast = dacergnn.optimize(layer, config=emulated_device)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        found = fast(x, edges, types)
    with torch.no_grad():
        assert torch.equal(found, fast.bfloat16()(x.bfloat16(), edges, types))
        assert_near([found], [layer.double()(x.bfloat16().double(), edges, types)], torch.bfloat16)


def test_elements_of_functions(emulated_device: Config) -> None:
    graph, transform = graph_of(60, 300), ProgramFunction(TRANSFORMED, {}, emulated_device)
    x, w = torch.randn(60, 8), torch.randn(4, 8, 24)
    with torch.autocast("cpu", dtype=torch.float16):
        found = transform(graph, x, w)
    assert torch.equal(found, transform(graph, x.half(), w.half()))
    with pytest.raises(ArrayError) as error:
        transform(graph, x.to(torch.float8_e5m2), w)
    assert str(error.value) == (
        "x has dtype torch.float8_e5m2; compiled layers take torch.float32, torch.float64, torch.bfloat16 or "
        "torch.float16; convert it with .float()."
    )


@pytest.fixture
def tf32() -> Generator[Callable[[bool], None]]:
    """Sets whether torch allows TF32 products."""
    before = torch.backends.cuda.matmul.allow_tf32

    def allow(value: bool) -> None:
        torch.backends.cuda.matmul.allow_tf32 = value

    yield allow
    allow(before)


def test_tf32(tf32: Callable[[bool], None], emulated_device: Config) -> None:
    """Programs look at torch's setting in every call."""
    graph, transform = graph_of(60, 300), ProgramFunction(TRANSFORMED, {}, emulated_device)
    x, w = torch.randn(60, 8), torch.randn(4, 8, 24)
    edges = gallery.Edges.of(graph)
    expected = edges.sum(typed_linear(x[edges.src].double(), w.double(), edges.etype))
    found: list[Tensor] = []
    for value in (False, True, False):
        tf32(value)
        found.append(transform(graph, x, w))
    assert_near([found[0]], [expected], torch.float32, 20)
    assert_near([found[1]], [expected], torch.float16, 2)  # as many bits of fraction
    assert not torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


ROUNDING = """
extern "C" void to_small(const float* x, int64_t count, __nv_bfloat16* a, __half* b, float* c, float* d) {
    for (int64_t i = 0; i < count; ++i) {
        a[i] = x[i], b[i] = x[i];
        c[i] = a[i], d[i] = b[i];
    }
}
"""


def test_emulated_numbers_are_rounded_to_the_nearest() -> None:
    bits = np.random.default_rng(0).integers(0, 1 << 32, 20_000, dtype=np.uint32)
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
    halves = halves[np.isfinite(halves)]
    ties = halves + np.float32(2.0**-11) * np.abs(halves)  # of normal numbers with an even fraction, and near them
    x = np.concatenate([bits.view(np.float32), halves, ties, ((bits >> 16 << 16) | 0x8000).view(np.float32)])
    x = device(x[np.isfinite(x)].astype(np.float32))
    found = [device(np.zeros(len(x), t)) for t in (ml_dtypes.bfloat16, np.float16, np.float32, np.float32)]
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in (x, *found)]
    compile_emulated(ROUNDING).to_small(pointers[0], ctypes.c_int64(len(x)), *pointers[1:])
    with np.errstate(over="ignore"):
        expected = x.astype(ml_dtypes.bfloat16), x.astype(np.float16)
    for small, wide, reference in zip(found[:2], found[2:], expected, strict=True):
        assert np.array_equal(small.view(np.uint16), reference.view(np.uint16))
        assert np.array_equal(wide, reference.astype(np.float32))


def test_autocast_of_traced_calls(monkeypatch: pytest.MonkeyPatch, emulated_device: Config) -> None:
    """Casts are part of the traced graph: the operator in it runs without autocast."""
    graph, layer = graph_of(5, 2000), rgcn(emulated_device)
    x = torch.randn(graph.size("NS"), layer.width, requires_grad=True)
    monkeypatch.setattr(torch_operator, "autocast_type", lambda *_: torch.bfloat16)
    output = torch.compile(layer, backend="aot_eager", fullgraph=True)(x, graph)
    gradients = torch.autograd.grad(output.float().sum(), [x, *layer.parameters()])
    assert output.dtype is torch.bfloat16
    assert all(g.dtype is torch.float32 and g.any() for g in gradients)
