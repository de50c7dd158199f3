"""Graphs, features and full forwards that tests of layer-wise inference share."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.frontends.graphs import edge_dict, type_name, typed_edges

N, E, K, M, R = 30, 120, 6, 8, 3
BATCHES = (1, 7, 100)
"""Destinations in a range: one, several ranges of which the last is shorter, more than there are."""


def pyg() -> Any:
    return pytest.importorskip("torch_geometric.nn")


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


def edges(seed: int = 0) -> Tensor:
    """Returns edges among the first 25 of 30 nodes, some of them self loops or repeated."""
    found = torch.randint(0, N - 5, (2, E), generator=torch.Generator().manual_seed(seed))
    found[:, 1] = found[:, 0]
    found[1, 2] = found[0, 2]
    return found


def edge_types() -> Tensor:
    return torch.arange(E) * 7 % R


def edge_weights() -> Tensor:
    return draw(E).abs()


EDGE_ARRAYS = {"edge_type": edge_types(), "edge_weight": edge_weights(), "edge_attr": draw(E, 2)}

TYPED = typed_edges()
TYPED_EDGES = edge_dict(TYPED)
METADATA = ([type_name(i) for i in range(len(TYPED.type_sizes))], list(TYPED_EDGES))


def typed_features() -> dict[str, Tensor]:
    return {type_name(i): draw(size, M, seed=i) for i, size in enumerate(TYPED.type_sizes)}


def drawn(model: Any) -> Any:
    """Returns the model in inference mode, with parameters that do not depend on what was drawn before."""
    for seed, parameter in enumerate(model.parameters()):
        parameter.data = draw(*parameter.shape, seed=seed) * 0.5
    return model.eval()


def assert_same(found: Any, expected: Any) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
