"""A call that the original refuses is refused by the compiled layer, in our words, and caught by the same handlers."""

from __future__ import annotations

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn

import dacergnn
from dacergnn.errors import GraphError, UnsupportedCallError
from tests.compatibility.kinds import F, M, N, R, UserLayer, edges

LAYERS: dict[str, tuple[nn.Module, tuple[Tensor, ...]]] = {
    "with a front end": (pyg.RGCNConv(F, M, R), (edges()[1],)),
    "traced": (UserLayer(), ()),
}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("index", [-1, N])
def test_indices_out_of_bounds_are_index_errors(name: str, index: int) -> None:
    layer, types = LAYERS[name]
    edge_index = edges()[0].clone()
    edge_index[0, 2] = index
    fast = dacergnn.optimize(layer)
    with pytest.raises(IndexError, match="valid indices"):
        layer(torch.randn(N, F), edge_index, *types)
    with pytest.raises(IndexError):
        fast(torch.randn(N, F), edge_index, *types)
    with pytest.raises(GraphError, match=rf"^edge_index\[0\] holds {index} at position 2"):
        fast(torch.randn(N, F), edge_index, *types)


def test_features_of_another_width_are_errors_of_torch() -> None:
    layer, (types,) = LAYERS["with a front end"]
    fast = dacergnn.optimize(layer)
    for module in (layer, fast):
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            module(torch.randn(N, F + 1), edges()[0], types)
    with pytest.raises(UnsupportedCallError):
        fast(torch.randn(N, F + 1), edges()[0], types)


def test_an_explained_layer_without_a_mask_says_what_is_missing() -> None:
    layer = UserLayer()
    layer.explain = True
    for module in (layer, dacergnn.optimize(layer)):
        with pytest.raises(ValueError, match="pre-defined 'edge_mask'"):
            module(torch.randn(N, F), edges()[0])
