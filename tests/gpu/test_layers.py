"""Layers on a device against float64 on the processor: outputs and all gradients, in every precision."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import Any

import pytest
import torch

import dacergnn
from dacergnn.bench.rates import PRECISIONS
from dacergnn.bench.rates import precision as matmul_precision
from dacergnn.errors import ArrayError
from tests.frontends.cases import CASES
from tests.frontends.graphs import typed_edges
from tests.gpu import layers
from tests.gpu.layers import GRAPHS, NATIVE, PYG, TOLERANCE, assert_close, check, differentiated, native

MODES = (
    *("pyg-rgcn-x-max", "pyg-rgcn-x-bases", "pyg-rgcn-x-blocks", "pyg-rgcn-none-mean", "pyg-rgcn-pair-mean"),
    *("pyg-rgat-within-additive-None", "pyg-rgat-edges-heads", "pyg-hgt-widths"),
)
"""Of the modes of layers, one of each kind of kernel; odd widths."""
SANITIZED = {("rgat", "hubs", "float32"), ("hgt", "small", "bfloat16"), ("rgcn", "small", "tf32")}
"""What compute-sanitizer looks at besides plain products and short groups: hubs, 16 bits, matrix units."""


@pytest.mark.sanitizer
@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("name", NATIVE)
def test_same_as_on_the_processor(name: str, precision: str, device: torch.device) -> None:
    """What is quickest to say whether kernels are right: narrow layers of our own on a graph of 400 edges."""
    edges, results = typed_edges(400, 5), []
    for place, dtype in ((torch.device("cpu"), torch.float64), (device, PRECISIONS[precision])):
        layer, x, graph = native(name, edges, place, dtype)
        results.append(differentiated(layer, layer, ((x, graph), {})))
    assert_close(results[1], results[0], precision, tolerance={"float32": 1e-3, "float64": 1e-9}[precision])


@pytest.mark.parametrize(
    ("name", "graph", "precision"),
    [pytest.param(*case, marks=[pytest.mark.sanitizer] if case in SANITIZED else [])
     for case in product(PYG, GRAPHS, TOLERANCE)],
)  # fmt: skip
def test_every_precision(name: str, graph: str, precision: str, device: torch.device) -> None:
    pytest.importorskip("torch_geometric")
    with matmul_precision(precision):
        check(PYG[name], GRAPHS[graph](), precision, device, dacergnn.optimize)


@pytest.mark.parametrize("name", PYG)
def test_hector_level(name: str, device: torch.device) -> None:
    pytest.importorskip("torch_geometric")
    optimize = partial(dacergnn.optimize, config=dacergnn.Config(level="hector"))
    check(PYG[name], GRAPHS["hubs"](), "float32", device, optimize)


@pytest.mark.parametrize("name", MODES)
def test_modes(name: str, device: torch.device) -> None:
    pytest.importorskip("torch_geometric")
    case = next(c for c in CASES if c.name == name)
    check(case, case.edges(), "float32", device, dacergnn.optimize)


@pytest.mark.parametrize("name", PYG)
def test_autocast(name: str, device: torch.device) -> None:
    """Parameters stay float32, products are of bfloat16."""
    pytest.importorskip("torch_geometric")
    case, edges = PYG[name], typed_edges(400, 5)
    layer = layers.filled(case.make(edges), device, torch.float32)
    arguments = layers.moved(case.inputs(edges, torch.float64), device, torch.float32)
    wanted = layers.expected(case, layer, arguments)
    compiled = dacergnn.optimize(layer, on_unsupported="error")

    def run(module: Any) -> list[torch.Tensor]:
        def call(*args: Any) -> Any:
            with torch.autocast("cuda", torch.bfloat16):
                return module(*args)

        return differentiated(call, module, arguments)

    assert_close(run(compiled), wanted, "bfloat16", lambda: run(layer))


def test_decorated_function(device: torch.device) -> None:
    edges = typed_edges(400, 5)
    results = []
    for place in (torch.device("cpu"), device):
        graph, make = layers.typed_graph(edges, place), layers.Values(place, torch.float32)
        x, w, root = make(15, 64, seed=1), make(5, 64, 32, seed=2) * 0.125, make(64, 32, seed=3) * 0.125
        leaves = [t.requires_grad_() for t in (x, w, root)]
        out = layers.decorated(graph, x, w, graph.pair_mean_weights(torch.float32), root)
        weights = make(*out.shape, seed=4)
        results.append([out.detach(), *torch.autograd.grad(out, leaves, weights)])
    assert_close(results[1], results[0], "float32", tolerance=1e-3)


@pytest.mark.parametrize("kind", ["SAGEConv", "GATConv", "GATv2Conv", "TransformerConv"])
def test_traced_layers(kind: str, device: torch.device) -> None:
    """Layers without a front end against themselves in float64."""
    pyg: Any = pytest.importorskip("torch_geometric.nn")
    edges = typed_edges(400, 5)
    options = {"add_self_loops": False} if "GAT" in kind else {}
    plain = layers.filled(getattr(pyg, kind)(32, 16, **options), device, torch.float64)
    x = layers.Values(device, torch.float64)(edges.num_src, 32, seed=1).requires_grad_()
    index = edges.edge_index.to(device)
    wanted = differentiated(plain, plain, ((x, index), {}))
    compiled = dacergnn.optimize(plain, on_unsupported="error")
    assert_close(differentiated(compiled, compiled, ((x, index), {})), wanted, "float64")


def test_a_graph_on_another_device_is_refused(device: torch.device) -> None:
    layer, x, graph = native("rgcn", typed_edges(40, 5), device, torch.float32)
    with pytest.raises(ArrayError, match="is on c"):
        layer(x, graph.to("cpu"))
