"""Tells what a forward is given: the classes of its module, and the arguments of a call."""

from __future__ import annotations

from math import copysign
from typing import Any

from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from dacergnn.modules.contents import FORWARDS


def classes_of(module: nn.Module) -> list[type]:
    """Returns the classes of a module and its parts, with their bases, but those of torch."""
    kinds = dict.fromkeys(kind for part in module.modules() for kind in type(part).__mro__)
    return [kind for kind in kinds if kind.__module__.partition(".")[0] not in ("torch", "builtins")]


def longest_features(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Returns the number of rows of the longest features among the arguments of a call, or of its embeddings."""
    features = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor) and t.is_floating_point()]
    rows = [len(t) for t in features if t.dim() > 1]
    return max(rows or [size for p in module.parameters() for size in p.shape[:-1]], default=0)


def has_negative_zeros(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Returns whether a number among the arguments of a call is -0.0, which torch takes for 0.0 in later calls."""
    numbers = [value for value in (*args, *kwargs.values()) if type(value) is float]
    return any(value == 0 and copysign(1.0, value) < 0 for value in numbers)


def holds_own(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Returns whether arguments of a call, or attributes of modules, are objects of this package, such as graphs."""
    held = [value for part in module.modules() for name, value in vars(part).items() if name != FORWARDS]
    objects = [value for value in tree_leaves((args, kwargs, held)) if not isinstance(value, nn.Module)]
    return any(type(value).__module__.startswith("dacergnn.") for value in objects)
