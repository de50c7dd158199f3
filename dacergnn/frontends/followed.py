"""Models of known forms, in which an activation module comes directly after layers."""

from __future__ import annotations

import itertools
from typing import Any

from torch import nn

_MODELS = "torch_geometric.nn."
Followed = list[tuple[tuple[str, ...], str]]
"""Pairs of paths of layers, and the path of the module that takes the result of each of them, and nothing else."""


def followed(module: nn.Module) -> Followed:
    """Returns the layers of a model that an activation follows, whatever else uses them; skips nested models."""
    place = type(module).__module__
    if place == _MODELS + "sequential":
        return _of_sequential(module)
    if place == _MODELS + "models.basic_gnn":
        return _of_basic_gnn(module)
    return []


def _of_sequential(module: Any) -> Followed:
    """Returns the pairs in PyG's `Sequential` of which the second takes and returns the first's result by one name."""
    steps: list[Any] = module._children
    return [
        ((first.name,), second.name)
        for first, second in itertools.pairwise(steps)
        if first.return_names == second.param_names == second.return_names
    ]


def _of_basic_gnn(module: Any) -> Followed:
    """Returns the layers of PyG's models (`GCN`, `GAT`, ...): one activation follows all, except perhaps the last."""
    last = module.num_layers if module.jk_mode is not None else module.num_layers - 1
    between = () if module.act_first else module.norms or ()
    if last < 1 or module.act is None or not all(type(norm) is nn.Identity for norm in between):
        return []
    return [(tuple(f"convs.{i}" for i in range(last)), "act")]
