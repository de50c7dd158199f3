"""Functions in program form as modules: parameters, copies, training, torch.compile, reports."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import nn

import dacergnn
from dacergnn import Config
from dacergnn.errors import DacergnnError
from tests.frontends.graphs import typed_edges
from tests.modules.functions import ETYPE, GRAPH, SRC, draw, rgat, rgcn, two_results
from tests.modules.layers import EDGES, K, R, assert_close, hetero_graph
from tests.reference.scatter import typed_linear


def test_module_has_parameters_for_the_given_shapes() -> None:
    net = rgcn.module(GRAPH, W=(K, 3), root=(K, 3), bias=3)
    assert {n: tuple(p.shape) for n, p in net.named_parameters()} == {"W": (R, K, 3), "root": (K, 3), "bias": (3,)}
    assert not net.bias.any()
    assert 0 < net.W.abs().max() <= (6 / (K + 3)) ** 0.5
    x, norm = draw(EDGES.num_src, K, dtype=torch.float32), draw(len(SRC), dtype=torch.float32)
    expected = rgcn(GRAPH, x, net.W, norm, net.root, net.bias)
    assert_close(net(GRAPH, x, norm), expected)
    assert_close(net(GRAPH, norm=norm, x=x), expected)
    assert repr(net) == f"FunctionModule(rgcn: W [{R}, {K}, 3], root [{K}, 3], bias [3])"
    counted = rgcn.module(num_edge_types=R, W=(K, 3), root=(K, 3), bias=3)
    assert [p.shape for p in counted.parameters()] == [p.shape for p in net.parameters()]


def test_names_and_types_of_parameters() -> None:
    net = rgcn.module(GRAPH, W=(K, 3), root=(K, 3), bias=3)
    x, norm = draw(EDGES.num_src, K), draw(len(SRC))
    model = nn.ModuleDict({"conv": net})
    assert list(model.state_dict()) == ["conv.W", "conv.root", "conv.bias"]
    assert copy.deepcopy(rgcn) is rgcn
    assert net(GRAPH, x.float(), norm.float()).dtype is torch.float32
    assert net.double()(GRAPH, x, norm).dtype is torch.float64


def test_training_reaches_all_parameters() -> None:
    net = rgat.module(GRAPH, W=(K, 8), q=(2, 4), k=(2, 4), bias=(2, 4))
    net(GRAPH, draw(EDGES.num_src, K, dtype=torch.float32)).square().sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in net.parameters())


@pytest.mark.usefixtures("fresh_dynamo")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_torch_compile_of_a_function_with_two_results() -> None:
    x = draw(EDGES.num_src, K, dtype=torch.float32)
    w, b = draw(R, K, 3, dtype=torch.float32), draw(3, dtype=torch.float32)
    many = torch.compile(lambda x: two_results(GRAPH, x, W=w, b=b)[0].relu(), fullgraph=True, backend="aot_eager")
    assert_close(many(x), two_results(GRAPH, x, W=w, b=b)[0].relu())


def test_reports_and_saved_steps(tmp_path: Path) -> None:
    config = Config("O0")
    function = dacergnn.compile(config=config)(rgcn.user.source)
    with pytest.raises(DacergnnError, match="this rgcn has not been called yet"):
        function.save_sdfg(tmp_path)
    net = function.module(GRAPH, W=(K, 3), root=(K, 3), bias=3)
    net(GRAPH, draw(EDGES.num_src, K, dtype=torch.float32), draw(len(SRC), dtype=torch.float32))
    assert net.config is config
    assert str(dacergnn.explain(net)).startswith("(model): rgcn compiled")
    assert next(p.name for p in net.save_sdfg(tmp_path)) == "00_frontend.sdfg"


def test_autocast() -> None:
    x, w = draw(EDGES.num_src, K, dtype=torch.float32), draw(R, K, 3, dtype=torch.float32)
    b = draw(3, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = two_results(GRAPH, x, w, b)[1]
    assert torch.equal(found, two_results(GRAPH, x.bfloat16(), w.bfloat16(), b.bfloat16())[1])


def test_other_shapes_are_compiled_anew() -> None:
    for k, m in ((K, 3), (3, K)):
        x, w = draw(EDGES.num_src, k, dtype=torch.float32), draw(R, k, m, dtype=torch.float32)
        assert_close(two_results(GRAPH, x, w, torch.zeros(m))[1], typed_linear(x[SRC], w, ETYPE))
    small = hetero_graph(typed_edges(7, 3))
    x, w = draw(small.size("NS"), K, dtype=torch.float32), draw(R, K, 3, dtype=torch.float32)
    ends = [small.index("E", path).long() for path in ("src", "etype")]
    assert_close(two_results(small, x, w, torch.zeros(3))[1], typed_linear(x[ends[0]], w, ends[1]))
