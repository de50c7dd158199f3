"""Layers of PyG on sparse features, against themselves on dense ones."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import dacergnn
from dacergnn.errors import UnsupportedCallError
from tests.modules.layers import EDGES, compiled, pyg
from tests.support.sparse import as_csr, assert_same, thinned

K, M = 6, 4
F64 = torch.float64


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=F64, generator=torch.Generator().manual_seed(sum(shape)))


def perceptron(width: int) -> nn.Module:
    return nn.Sequential(nn.Linear(width, M), nn.ReLU(), nn.Linear(M, M))


LAYERS: dict[str, Callable[[Any], nn.Module]] = {
    "GCN": lambda nn_: nn_.GCNConv(K, M),
    "SAGE": lambda nn_: nn_.SAGEConv(K, M),
    "GIN": lambda nn_: nn_.GINConv(perceptron(K)),
    "GAT": lambda nn_: nn_.GATConv(K, M, heads=2),
    "GATv2": lambda nn_: nn_.GATv2Conv(K, M, heads=2),
    "EdgeConv": lambda nn_: nn_.EdgeConv(perceptron(2 * K)),
    "GMM": lambda nn_: nn_.GMMConv(K, M, 2, 3),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layer(name: str) -> None:
    torch.manual_seed(1)
    layer = LAYERS[name](pyg()).double()
    own = compiled(copy.deepcopy(layer))
    x, edge_index = thinned(draw(EDGES.num_src, K)), EDGES.edge_index
    others = (draw(edge_index.size(1), 2),) if name == "GMM" else ()
    assert_same(own, [own(as_csr(x), edge_index, *others)], layer, [layer(x, edge_index, *others)])
    assert "nonzeros" in dacergnn.explain(own).layers[0].builds[-1].text


def test_maxima_of_features_are_refused() -> None:
    own = compiled(pyg().SAGEConv(K, M, aggr="max").double())
    with pytest.raises(UnsupportedCallError, match=r"is sparse, but used in .* can only be moved in front of sums"):
        own(as_csr(thinned(draw(EDGES.num_src, K))), EDGES.edge_index)
