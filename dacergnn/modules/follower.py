"""Lets the programs of layers apply the activations that follow the layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from torch import nn

from dacergnn.frontends import Binding, ProgramSource
from dacergnn.frontends.activations import activation_of
from dacergnn.program.flatten import Activation


class Followed:
    """Holds the programs of a layer together with activations that follow them."""

    def __init__(self) -> None:
        self._programs: dict[tuple[int, Activation], tuple[ProgramSource, ProgramSource]] = {}

    def bind(self, binding: Binding, function: Callable[[Any], Any]) -> Binding:
        """Returns a call followed by an activation, which is part of its program if possible, else a step after it."""
        activation, program = activation_of(function), binding.program
        if activation is None or not binding.reshapes or program.then is not None:
            finish, repeats = binding.finish, binding.repeats or binding.reshapes
            return replace(binding, finish=lambda *results: function(finish(*results)), reshapes=False, repeats=repeats)
        key = id(program), activation
        if key not in self._programs:  # the program is kept, so that no other one gets its id
            self._programs[key] = program, replace(program, then=activation)
        return replace(binding, program=self._programs[key][1])


class DoneBefore(nn.Module):
    """Replaces an activation that the layers before it compute; runs it if hooks see the layers' own results."""

    original: nn.Module

    def __init__(self, original: nn.Module, layers: Sequence[nn.Module]) -> None:
        super().__init__()
        self.__dict__.update(original=original, layers=[*layers], training=original.training)

    def forward(self, x: Any) -> Any:
        seen = any(layer._forward_hooks for layer in self.__dict__["layers"])
        return self.original(x) if seen else x

    def extra_repr(self) -> str:
        return f"{self.original} is in the layers before"
