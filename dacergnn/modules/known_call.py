"""A call that is like one before runs the same program on the same graph, without being examined again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from dacergnn.frontends import Binding
from dacergnn.frontends.missing_gradients import Reached
from dacergnn.frontends.parameters import Parameters
from dacergnn.graph import HeteroGraph
from dacergnn.modules.compiled import CompiledProgram
from dacergnn.modules.signature import CallSignature
from dacergnn.runtime.stacks import stacks_of


class Repeated:
    """Describes how to run calls that are like a known one: their program, and where its tensors come from.

    A tensor of the program is an argument of the call, a parameter of the module, or a view of one of these. Any other
    tensor is kept for all calls, such as coefficients of the graph.

    Args:
        signature: The signature of the known call.
        leaves: The tensors and graphs among its arguments.
        binding: The binding of the known call, which is taken over without its arrays.
    """

    def __init__(
        self,
        signature: CallSignature,
        leaves: Sequence[Any],
        module: nn.Module,
        graph: HeteroGraph,
        compiled: CompiledProgram,
        binding: Binding,
    ) -> None:
        self.signature, self.graph, self.compiled = signature, graph, compiled
        self.binding = replace(binding, arrays={}, parts=[], stacks=binding.stacks or stacks_of(), watched=())
        self._watched = [(tensor, tensor._version) for tensor in binding.watched]
        tensors, self._made = binding.tensors(compiled.inputs)
        places = {id(leaves[i]): i for i in signature.features}
        paths = {id(p): tuple(name.split(".")) for name, p in module.named_parameters()}
        sources: list[Tensor] = [*[leaves[i] for i in signature.features], *module.parameters()]
        self._argument_slots: list[tuple[int, int, torch.Size | None]] = []
        self._own_slots: list[int] = []
        self._own_views: list[tuple[int, int, torch.Size]] = []
        own: list[tuple[str, ...]] = []
        self._arrays: list[Any] = [None] * len(tensors)
        self._kept: list[int] = []
        for slot, tensor in enumerate(tensors):
            viewed = id(tensor) not in places and id(tensor) not in paths
            shown = [s for s in sources if _shows(tensor, s)] if viewed else []
            source = shown[0] if len(shown) == 1 else tensor
            shape = tensor.shape if viewed else None
            if id(source) in places:
                self._argument_slots.append((slot, places[id(source)], shape))
            elif id(source) in paths:
                if shape is not None:
                    self._own_views.append((slot, len(own), shape))
                self._own_slots.append(slot)
                own.append(paths[id(source)])
            else:
                self._arrays[slot] = tensor
                self._kept.append(slot)
        self._module, self._paths, self._dtype = module, Parameters(module, own), binding.dtype
        self.renewed()
        self.unused = frozenset(signature.features) - {place for _, place, _ in self._argument_slots}
        """Positions of features that the program does not take as they are."""
        self.possible = not paths.keys() & places.keys()
        """Tells whether no tensor is both an argument and a parameter."""
        self.settled = not self._kept
        """Tells whether the source of every tensor is known; a tensor that two calls share is kept for all calls."""

    def settle(self, binding: Binding) -> Repeated | None:
        """Returns this object, settled by the binding of another such call; None if calls make some tensor anew.

        The program of the other call must be the same.
        """
        tensors, _ = binding.tensors(self.compiled.inputs)
        same = [tensors[slot] is self._arrays[slot] and not tensors[slot].requires_grad for slot in self._kept]
        self.settled = all(same)
        return self if self.settled else None

    def renewed(self) -> bool:
        """Reads the parameters of the module again, which may have changed; returns whether all of them still exist."""
        try:
            self._own = self._paths.read(self._module)
        except (KeyError, AttributeError):
            return False
        for slot, tensor in zip(self._own_slots, self._own, strict=True):
            self._arrays[slot] = tensor
        return True

    def tensors(self, leaves: Sequence[Any]) -> list[Tensor] | None:
        """Returns arrays of the program, then its parts, for a call's leaves; None if parameters have another type."""
        own = self._own
        if own and own[0].dtype is not self._dtype:
            return None
        if any(tensor._version != version for tensor, version in self._watched):
            return None
        arrays = self._arrays.copy()
        for slot, place, shape in self._argument_slots:
            arrays[slot] = leaves[place] if shape is None else leaves[place].view(shape)
        for slot, place, shape in self._own_views:
            arrays[slot] = own[place].view(shape)
        for slot, function in self._made:
            arrays[slot] = function(arrays[slot])
        return arrays


def run(compiled: CompiledProgram, graph: HeteroGraph, tensors: list[Tensor], binding: Binding) -> Any:
    """Returns the result of a call whose program takes ``tensors``: its arrays, then its parts."""
    if binding.results is None:
        return binding.finish(compiled.stacked(graph, tensors, binding.stacks))
    reached = Reached(binding.results)
    if binding.assemble is None:
        return binding.finish(compiled.stacked(graph, tensors, binding.stacks, reached.gate), reached)
    arrays = binding.assemble(tensors, reached.gate)
    return binding.finish(compiled(graph, [arrays[name] for name in compiled.inputs]), reached)


def _shows(tensor: Tensor, source: Tensor) -> bool:
    """Returns whether a tensor is a view of all numbers of another one, in the same order and with its gradients."""
    base, viewed = tensor._base, source._base  # pyright: ignore[reportPrivateUsage]
    return (
        base is not None
        and base is (source if viewed is None else viewed)
        and tensor.numel() == source.numel() > 0
        and tensor.dtype is source.dtype
        and tensor.is_contiguous()
        and source.is_contiguous()
        and tensor.data_ptr() == source.data_ptr()
        and tensor.requires_grad == source.requires_grad
    )
