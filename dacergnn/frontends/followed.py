"""Models of known forms, in which an activation module comes right behind layers."""

from __future__ import annotations

import itertools
from typing import Any

from torch import nn

_MODELS = "torch_geometric.nn."
Followed = list[tuple[tuple[str, ...], str]]
"""Paths of layers, and of the module that takes the result of each of them, and nothing else."""


def followed(module: nn.Module) -> Followed:
    """The layers of a model that an activation follows, whatever else uses them; deeper inside is not looked at."""
    place = type(module).__module__
    if place == _MODELS + "sequential":
        return _of_sequential(module)
    if place == _MODELS + "models.basic_gnn":
        return _of_basic_gnn(module)
    return []


def _of_sequential(module: Any) -> Followed:
    """Of PyG's `Sequential`: the second takes what the first gave, and gives it back under the same name."""
    steps: list[Any] = module._children
    return [
        ((first.name,), second.name)
        for first, second in itertools.pairwise(steps)
        if first.return_names == second.param_names == second.return_names
    ]


def _of_basic_gnn(module: Any) -> Followed:
    """Of PyG's models (`GCN`, `GAT`, `GraphSAGE`, ...): one activation, behind all layers but perhaps the last."""
    last = module.num_layers if module.jk_mode is not None else module.num_layers - 1
    between = () if module.act_first else module.norms or ()
    if last < 1 or module.act is None or not all(type(norm) is nn.Identity for norm in between):
        return []
    return [(tuple(f"convs.{i}" for i in range(last)), "act")]
