"""Batches whose graphs are encoded where they are loaded: in the worker processes of a loader."""

from __future__ import annotations

import itertools
import os
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import get_worker_info

from dacergnn.errors import ArrayError
from dacergnn.graph.packed import PackedGraphs
from dacergnn.modules.arrivals import EncodedGraph, arrive, collecting

_ROOM = 1 << 16
_NUMBERS = itertools.count()
_LIVE: weakref.WeakValueDictionary[tuple[int, int], Encoded] = weakref.WeakValueDictionary()


class Encoded:
    """A transform for PyG's loaders, so that batches arrive with what the compiled layers of a model read of graphs.

    ``NeighborLoader(..., transform=Encoded(model), num_workers=2)`` has the workers encode graphs, and the process that
    trains has nothing left to encode. What to encode is learned from the first batches. Batches get an attribute
    ``encoded`` and are the same otherwise. Without workers nothing is done, and layers encode what they need.

    Args:
        model: The module with compiled layers. It is called with each batch in the workers, where the layers encode
            their graphs and give zeros.
        call: Calls the model with a batch. By default that is ``model(batch.x, batch.edge_index)``, and
            ``model(batch.x_dict, batch.edge_index_dict)`` for batches of `HeteroData`.

    Raises:
        ArrayError: ``model`` is no module, or ``call`` cannot be called.
    """

    def __init__(self, model: nn.Module, call: Callable[[nn.Module, Any], object] | None = None) -> None:
        if not isinstance(model, nn.Module):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArrayError("model", f"is a {type(model).__name__}; pass the module whose layers are compiled")
        if call is not None and not callable(call):
            raise ArrayError("call", f"is a {type(call).__name__}; pass a function of the model and a batch")
        self.model = model
        self._call = call or _call
        self._names = torch.zeros(_ROOM, dtype=torch.uint8).share_memory_()
        self.key = os.getpid(), next(_NUMBERS)
        """Tells which object of this process a batch comes from."""
        _LIVE[self.key] = self

    def __call__(self, batch: Any) -> Any:
        """Returns the batch, with its graphs encoded if this is a worker."""
        if get_worker_info() is None:
            return batch
        with torch.random.fork_rng(devices=[]), torch.no_grad(), collecting() as found:
            self._call(self.model, batch)
        names = self.names()
        for item in found:
            item.graph.build(names)
        batch.encoded = EncodedGraphs(self.key, found)
        return batch

    def names(self) -> list[str]:
        """Returns what is encoded of graphs, by the names of the encodings."""
        length = int(self._names[:8].view(torch.int64))
        return bytes(self._names[8 : 8 + length].tolist()).decode().split()

    def learn(self, name: str) -> None:
        """Have workers encode something that a layer has read."""
        known = self.names()
        if name in known:
            return
        text = " ".join([*known, name]).encode()
        if 8 + len(text) <= _ROOM:
            self._names[8 : 8 + len(text)] = torch.tensor([*text], dtype=torch.uint8)
            self._names[:8].view(torch.int64).fill_(len(text))  # last, since workers read meanwhile


class EncodedGraphs:
    """The graphs of a batch; when they are received by another process, layers there find them."""

    def __init__(self, key: tuple[int, int], found: list[EncodedGraph]) -> None:
        self._key, self._found = key, found

    def __reduce__(self) -> tuple[Any, ...]:
        keys = [(item.owner, item.tensors, item.sizes) for item in self._found]
        return _receive, (self._key, keys, PackedGraphs.of([item.graph for item in self._found]))


def _receive(
    key: tuple[int, int], keys: list[tuple[object, tuple[Tensor, ...], tuple[object, ...]]], packed: PackedGraphs
) -> EncodedGraphs:
    found = [EncodedGraph(*own, graph) for own, graph in zip(keys, packed.graphs(), strict=True)]
    encoder = _LIVE.get(key)
    for item in found:
        item.graph.tell(None if encoder is None else encoder.learn)
    arrive(found)
    return EncodedGraphs(key, found)


def _call(model: nn.Module, batch: Any) -> object:
    if hasattr(batch, "node_types"):
        return model(batch.x_dict, batch.edge_index_dict)
    return model(batch.x, batch.edge_index)
