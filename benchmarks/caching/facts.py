"""Finds facts of a candidate besides its time: bytes that it keeps for the backward, and predictions of its cost."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from benchmarks.relational.candidate import Built
from dacergnn.api import explain
from dacergnn.config import Config
from dacergnn.cost import Cost
from dacergnn.graph import HeteroGraph
from dacergnn.modules.compiled import CompiledProgram
from dacergnn.modules.compiled_parts import compiled_parts
from dacergnn.modules.programs import measured
from dacergnn.modules.variant import Variant


def saved_bytes(built: Built) -> int:
    """Returns the bytes that a forward keeps for its backward.

    Memory that two forwards both keep does not count: parameters, features, edges.
    """
    first, before = _kept(built)
    second, after = _kept(built)
    own = sum(v.forward.prepare(graph).saved for v, graph in _variants(built))
    del first, second  # kept until now, so that no address is used twice
    return own + sum(size for address, size in after.items() if address not in before)


def _kept(built: Built) -> tuple[Any, dict[int, int]]:
    """Returns the result of a forward, and the memory that autograd keeps for it: address and bytes of each piece."""
    kept: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        for part in _parts(tensor):
            storage = part.untyped_storage()
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        return built.forward(), kept


def _parts(tensor: Tensor) -> list[Tensor]:
    """Returns the dense tensors that a tensor is made of."""
    if tensor.layout == torch.sparse_csr:
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    if tensor.layout == torch.sparse_csc:
        return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    if is_traceable_wrapper_subclass(tensor):
        names, _ = tensor.__tensor_flatten__()
        return [getattr(tensor, name) for name in names]
    return [tensor] if tensor.layout == torch.strided else []


def predicted(built: Built, config: Config) -> dict[str, float]:
    """Returns milliseconds and bytes of the compiled layers by the cost model, forward and backward."""
    builds = [next((b for b in reversed(layer.builds) if b.gradients), None) for layer in explain(built.layer).layers]
    parts: dict[str, Callable[[Any], Cost | None]] = {"forward": lambda b: b.forward, "backward": lambda b: b.backward}
    costs: dict[str, float] = {}
    for name, cost_of in parts.items():
        total = sum((cost_of(b) or Cost() for b in builds if b is not None), Cost())
        costs[f"predicted_{name}_ms"] = 1e3 * total.seconds(config.machine)
        costs[f"predicted_{name}_bytes"] = total.streamed + total.gathered
    return costs


def program_of(built: Built) -> str:
    """Returns a name of the compiled layers' code; candidates with the same code share it. It is empty without code."""
    codes: list[str] = []
    for compiled, _ in _programs(built):
        parts = [part for v in compiled.variants for part in (v.forward, v.backward) if part is not None]
        codes += sorted({part.lowered.code for part in parts})
    return hashlib.sha256("\n".join(codes).encode()).hexdigest()[:16] if codes else ""


def _variants(built: Built) -> list[tuple[Variant, HeteroGraph]]:
    """Returns the builds that training runs, each with its graph."""
    variants: list[tuple[Variant, HeteroGraph]] = []
    for compiled, graph in _programs(built):
        training = [v for v in compiled.variants if v.backward is not None]
        variants += [(v, graph) for v in training[-1:]]
    return variants


def _programs(built: Built) -> list[tuple[CompiledProgram, HeteroGraph]]:
    """Returns the programs that the compiled layers ran last, each with the graph that tells the sizes."""
    calls = [part.last_call for _, part, _ in compiled_parts(built.layer)]
    return [(compiled, measured(compiled, graph)) for compiled, graph in (call for call in calls if call is not None)]
