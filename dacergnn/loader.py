"""Encodes the graphs of batches where they are loaded: in the worker processes of a loader."""

from __future__ import annotations

import itertools
import os
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves
from torch.utils.data import get_worker_info

from dacergnn.errors import ArrayError
from dacergnn.frontends.dgl.graph_classes import is_graph
from dacergnn.graph.packed import PackedGraphs
from dacergnn.modules.arrivals import EncodedGraph, arrive, collecting
from dacergnn.modules.graph_forward import run_by_layer

_ROOM = 1 << 16
_NUMBERS = itertools.count()
_LIVE: weakref.WeakValueDictionary[tuple[int, int], Encoded] = weakref.WeakValueDictionary()


class Encoded:
    """Transforms batches in loaders, so that they arrive with all encodings that the compiled layers of a model read.

    ``NeighborLoader(..., transform=Encoded(model), num_workers=2)`` of PyG has the workers encode graphs, and the
    process that trains has nothing left to encode. Loaders of DGL take `sampler` in place of a transform. What to
    encode is learned from the first batches. Batches of PyG, and the first graph in batches of DGL, get an attribute
    ``encoded`` and are the same otherwise. Without workers nothing is done, and layers encode what they need.

    Args:
        model: The module with compiled layers. It is called with each batch in the workers, where the layers encode
            their graphs and give zeros.
        call: Calls the model with a batch. By default that is ``model(batch.x, batch.edge_index)``, and
            ``model(batch.x_dict, batch.edge_index_dict)`` for batches of `HeteroData`. Batches of DGL need a function.

    Raises:
        ArrayError: ``model`` is no module, or ``call`` cannot be called.
    """

    def __init__(self, model: nn.Module, call: Callable[[nn.Module, Any], object] | None = None) -> None:
        if not isinstance(model, nn.Module):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArrayError("model", f"is a {type(model).__name__}; pass the module whose layers are compiled")
        if call is not None and not callable(call):
            raise ArrayError("call", f"is a {type(call).__name__}; pass a function of the model and a batch")
        self.model = model
        run_by_layer(model, "its batches arrive with the encodings that layers read")
        self._call = call
        self._names = torch.zeros(_ROOM, dtype=torch.uint8).share_memory_()
        self.key = os.getpid(), next(_NUMBERS)
        """Identifies the object of this process from which a batch comes."""
        _LIVE[self.key] = self

    def __call__(self, batch: Any) -> Any:
        """Returns the batch, with its graphs encoded if this is a worker."""
        if get_worker_info() is not None:
            batch.encoded = self.encode(batch)
        return batch

    def sampler(self, sampler: Any) -> EncodedSampler:
        """Returns a sampler that makes workers of DGL's loaders encode the graphs that another one samples.

        ``dgl.dataloading.DataLoader(graph, seeds, Encoded(model, call).sampler(NeighborSampler([10, 10])),
        num_workers=2)`` calls the model by ``call(model, (input_nodes, output_nodes, blocks))``.

        Args:
            sampler: A sampler of DGL, or any object with a method ``sample(graph, indices)`` that returns graphs.

        Raises:
            ArrayError: ``sampler`` is no sampler, or there is no ``call``; in a worker, a batch holds no graph.
        """
        if not callable(getattr(sampler, "sample", None)):
            problem = "has no method sample; pass a sampler of DGL, such as NeighborSampler([10, 10])"
            raise ArrayError("sampler", f"is a {type(sampler).__name__} and {problem}")
        if self._call is None:
            raise ArrayError("call", "is None; pass a function of the model and what the sampler returns")
        return EncodedSampler(self, sampler)

    def encode(self, batch: Any) -> EncodedGraphs:
        """Returns the graphs that the model's layers read when it is called with a batch."""
        with torch.random.fork_rng(devices=[]), torch.no_grad(), collecting() as graphs:
            (self._call or _call)(self.model, batch)
        names = self.names()
        for item in graphs:
            item.graph.build(names)
        return EncodedGraphs(self.key, graphs)

    def names(self) -> list[str]:
        """Returns the names of the encodings that workers make."""
        length = int(self._names[:8].view(torch.int64))
        return bytes(self._names[8 : 8 + length].tolist()).decode().split()

    def learn(self, name: str) -> None:
        """Makes workers encode something that a layer has read."""
        known = self.names()
        if name in known:
            return
        text = " ".join([*known, name]).encode()
        if 8 + len(text) <= _ROOM:
            self._names[8 : 8 + len(text)] = torch.tensor([*text], dtype=torch.uint8)
            self._names[:8].view(torch.int64).fill_(len(text))  # last, since workers read meanwhile


class EncodedSampler:
    """Wraps a sampler of DGL, so that workers of a loader encode its batches.

    It has the attributes of the wrapped sampler.

    Args:
        encoder: Encodes the batches.
        sampler: Samples them.
    """

    def __init__(self, encoder: Encoded, sampler: Any) -> None:
        self._encoder, self._sampler = encoder, sampler

    def sample(self, g: Any, indices: Any, *args: Any, **kwargs: Any) -> Any:
        """Returns the batch of the wrapped sampler; in a worker, its first graph carries the encoded graphs."""
        batch = self._sampler.sample(g, indices, *args, **kwargs)
        if get_worker_info() is not None:
            graph = next((leaf for leaf in tree_leaves(batch) if is_graph(leaf)), None)
            if graph is None:
                kind = type(batch).__name__
                raise ArrayError("sampler", f"returns a {kind} without a graph of DGL; pass one that samples graphs")
            graph.encoded = self._encoder.encode(batch)
        return batch

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # copy and pickle look for methods of this object
            raise AttributeError(name)
        return getattr(self._sampler, name)


class EncodedGraphs:
    """Holds the graphs of a batch; when another process receives them, its layers find them."""

    def __init__(self, key: tuple[int, int], graphs: list[EncodedGraph]) -> None:
        self._key, self._graphs = key, graphs

    def __reduce__(self) -> tuple[Any, ...]:
        keys = [(item.owner, item.tensors, item.sizes, item.is_numbered) for item in self._graphs]
        return _receive, (self._key, keys, PackedGraphs.of([item.graph for item in self._graphs]))


def _receive(
    key: tuple[int, int], keys: list[tuple[object, tuple[Tensor, ...], tuple[object, ...], bool]], packed: PackedGraphs
) -> EncodedGraphs:
    graphs = [EncodedGraph(*own, graph) for own, graph in zip(keys, packed.graphs(), strict=True)]
    encoder = _LIVE.get(key)
    for item in graphs:
        item.graph.tell(None if encoder is None else encoder.learn)
    arrive(graphs)
    return EncodedGraphs(key, graphs)


def _call(model: nn.Module, batch: Any) -> object:
    if hasattr(batch, "node_types"):
        return model(batch.x_dict, batch.edge_index_dict)
    return model(batch.x, batch.edge_index)
