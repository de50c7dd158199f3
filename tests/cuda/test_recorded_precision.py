"""Elements of 16 bits in calls that are recorded: layers without a front end, and forwards over DGL graphs."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import ResGatedGraphConv

import dacergnn
from dacergnn import Config
from tests.cuda.test_precision import assert_near
from tests.support.emulated_device import emulated_device

__all__ = ["emulated_device"]


class Attention(nn.Module):
    """Attention of one head, then the mean of what reaches a node, over a DGL graph."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 6)

    def forward(self, g: Any, x: Tensor) -> Tensor:
        import dgl.function as fn
        from dgl.nn.functional import edge_softmax

        with g.local_scope():
            g.ndata["h"] = self.linear(x)
            g.apply_edges(fn.u_dot_v("h", "h", "e"))
            g.edata["a"] = edge_softmax(g, torch.tanh(g.edata["e"]))
            g.update_all(fn.u_mul_e("h", "a", "m"), fn.sum("m", "out"))
            g.update_all(fn.copy_u("out", "m"), fn.mean("m", "far"))
            return g.ndata["far"]


def results(run: Callable[[Tensor], Tensor], x: Tensor, layer: nn.Module) -> list[Tensor]:
    x = x.detach().requires_grad_()
    output = run(x)
    seed = torch.linspace(-1, 1, output.numel()).view(output.shape).to(output.dtype)
    return [output.detach(), *torch.autograd.grad(output, [x, *layer.parameters()], seed)]


@pytest.mark.filterwarnings("error::UserWarning")
def test_layers_without_a_front_end(emulated_device: Config) -> None:
    torch.manual_seed(0)
    layer, edges = ResGatedGraphConv(8, 6).half(), torch.randint(0, 30, (2, 200))
    x = torch.randn(30, 8).half()
    fast = dacergnn.optimize(copy.deepcopy(layer), config=emulated_device)
    wide = layer.double()
    expected = results(lambda x: wide(x, edges), x.double(), wide)
    for _ in range(3):  # recorded, then run again
        found = results(lambda x: fast(x, edges), x, fast)
        assert {t.dtype for t in found} == {torch.float16}
        assert_near(found, expected, torch.float16)


@pytest.mark.filterwarnings("error::UserWarning")
def test_forwards_over_dgl_graphs(emulated_device: Config) -> None:
    dgl = pytest.importorskip("dgl", reason="dgl 1.1.3 needs Python 3.11")
    torch.manual_seed(0)
    src, dst = torch.randint(0, 30, (2, 200))
    graph, x = dgl.graph((src, dst), num_nodes=30), torch.randn(30, 8).bfloat16()
    fast: Any = dacergnn.compile(Attention().bfloat16(), config=emulated_device)
    wide = Attention().double()
    wide.load_state_dict(fast.state_dict())
    found = results(lambda x: fast(graph, x), x, fast)
    assert {t.dtype for t in found} == {torch.bfloat16}
    assert_near(found, results(lambda x: wide(graph, x), x.double(), wide), torch.bfloat16)
