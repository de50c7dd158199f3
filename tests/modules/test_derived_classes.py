"""Classes of compiled layers: one for each class of users while it is in use, and none longer."""

from __future__ import annotations

import copy
import gc
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import GCNConv, MessagePassing

import dacergnn
from dacergnn.modules.graph_forward import compile_forward

EDGES = torch.randint(20, (2, 60), generator=torch.Generator().manual_seed(0))


def traced() -> tuple[nn.Module, Any]:
    class Own(MessagePassing):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.propagate(edge_index, x=x)

        def message(self, x_j: Tensor) -> Tensor:
            return x_j.tanh()

    return dacergnn.optimize(Own(), on_unsupported="error"), EDGES


def with_a_front_end() -> tuple[nn.Module, Any]:
    class Own(GCNConv):
        pass

    return dacergnn.optimize(Own(4, 4), on_unsupported="error"), EDGES


def over_a_graph() -> tuple[nn.Module, Any]:
    dgl: Any = pytest.importorskip("dgl", reason="dgl 1.1.3 needs Python 3.11")

    class Own(nn.Module):
        def forward(self, x: Tensor, g: Any) -> Tensor:
            with g.local_scope():
                g.ndata["h"] = x
                g.update_all(dgl.function.copy_u("h", "m"), dgl.function.sum("m", "out"))
                return g.ndata["out"]

    return compile_forward(Own(), on_unsupported="error"), dgl.graph(tuple(EDGES), num_nodes=20)


@pytest.mark.parametrize("make", [traced, with_a_front_end, over_a_graph])
def test_a_class_goes_with_its_last_layer(make: Any) -> None:
    layer, graph = make()
    assert type(copy.deepcopy(layer)) is type(layer)
    for _ in range(3):
        layer(torch.randn(20, 4, requires_grad=True), graph).sum().backward()
    classes = [weakref.ref(c) for c in type(layer).__mro__ if c.__name__ == "Own"]
    assert len(classes) == 2
    del layer
    gc.collect()
    assert [c() for c in classes] == [None, None]
