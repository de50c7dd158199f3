"""Autocast: the type that a call computes in, and the types that its results have."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

from dacergnn.config import Config
from dacergnn.graph.checks import DEVICES
from dacergnn.modules.elements import known_elements, with_parameters


def is_autocast() -> bool:
    """Returns whether autocast is on for a type of device that there are kernels for."""
    return any(map(torch.is_autocast_enabled, DEVICES))


def autocast_type(device: torch.device, config: Config, own: torch.dtype) -> torch.dtype | None:
    """Returns the type of a call's computation and results under autocast; None if autocast is off.

    It is autocast's type if there are kernels for it, else ``own``, the type of the parameters, but float32 at least.
    float64 stays.
    """
    if device.type not in DEVICES or not torch.is_autocast_enabled(device.type):
        return None
    asked = torch.get_autocast_dtype(device.type)
    if own is not torch.float64 and asked in known_elements(config.implementation, device.type):
        return asked
    return torch.promote_types(own, torch.float32)


@contextmanager
def without_autocast() -> Generator[None]:
    """Turns autocast off within the context, for code that computes in the type of its inputs."""
    with ExitStack() as stack:
        for device in DEVICES:
            if torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        yield


class ResultTypes:
    """Knows the types that the original's results have under autocast, which depend on types alone.

    torch promotes what autocast leaves alone, so that a sum in bfloat16 becomes float32 by a weight of float32.
    """

    def __init__(self, original: nn.Module) -> None:
        self._original = original
        self._known: dict[object, list[torch.dtype | None]] = {}

    def of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.dtype | None]:
        """Returns the type of each leaf of the result, None if it is no tensor; an empty list if nobody can tell."""
        types = self.known(args, kwargs)
        if types is None:
            types = self._known[self._key(args, kwargs)] = self._found(args, kwargs)
        return types

    def known(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.dtype | None] | None:
        """Returns the types if a call of this kind has shown them; None before."""
        return self._known.get(self._key(args, kwargs))

    def note(self, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
        """Learns the types from a result of the original, and returns it."""
        self._known[self._key(args, kwargs)] = _types_of(result)
        return result

    def _key(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
        leaves, structure = tree_flatten((args, kwargs))
        kinds = [a.dtype if isinstance(a, Tensor) else a if isinstance(a, bool | str) else type(a) for a in leaves]
        kinds += [p.dtype for p in self._original.parameters()]
        return (str(structure), *kinds, *(torch.get_autocast_dtype(device) for device in DEVICES))

    def _found(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.dtype | None]:
        """Runs the original on a call without edges, or on the call itself where it needs some."""
        for call in (_without_edges((args, kwargs)), (args, kwargs)):
            module = _unused(self._original)
            try:
                with torch.no_grad(), torch.random.fork_rng(devices=[]):
                    result = type(module).forward(module, *call[0], **call[1])
            except Exception:
                continue
            return _types_of(result)
        return []


def _types_of(result: Any) -> list[torch.dtype | None]:
    return [leaf.dtype if isinstance(leaf, Tensor) else None for leaf in tree_leaves(result)]


def with_types(result: Any, types: list[torch.dtype | None]) -> Any:
    """Returns a result whose floating-point leaves have the given types."""
    leaves, structure = tree_flatten(result)
    if len(leaves) != len(types):
        return result
    cast = [
        leaf.to(dtype) if dtype is not None and isinstance(leaf, Tensor) and leaf.is_floating_point() else leaf
        for leaf, dtype in zip(leaves, types, strict=True)
    ]
    return tree_unflatten(cast, structure)


def _unused(module: nn.Module) -> Any:
    """Returns a shallow copy in evaluation whose buffers nobody else reads."""
    copied = with_parameters(module, {})
    for part in copied.modules():
        vars(part).update(training=False, _buffers={n: b if b is None else b.clone() for n, b in part._buffers.items()})
    return copied


def _without_edges(call: Any) -> Any:
    """Returns a call whose arrays [2, E] and [E, ..] have no edges; a call without such arrays is as it was."""
    numbers = {t.shape[1] for t in tree_leaves(call) if isinstance(t, Tensor) and _is_edges(t)}

    def shortened(value: Any) -> Any:
        if not isinstance(value, Tensor) or value.layout is not torch.strided:
            return value
        if _is_edges(value):
            return value[:, :0]
        return value[:0] if value.dim() and value.shape[0] in numbers else value

    return tree_map(shortened, call)


def _is_edges(value: Tensor) -> bool:
    return value.dim() == 2 and value.shape[0] == 2 and not (value.is_floating_point() or value.dtype is torch.bool)
