"""An activation behind a layer: done by the layer's program, while its rows are at hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import nn

from dacergnn.frontends import Binding, Program
from dacergnn.frontends.activations import activation_of


class Follower:
    """Puts an activation into the programs of a layer whose result only it takes."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self._programs: dict[int, tuple[Program, Program]] = {}

    def bind(self, binding: Binding) -> Binding:
        """The call with the activation behind it: in its program, or where that is not the last step, behind that."""
        activation, program = activation_of(self.module), binding.program
        if activation is None or not binding.reshapes or program.then is not None:
            finish, module = binding.finish, self.module
            return replace(binding, finish=lambda outputs: module(finish(outputs)))
        if id(program) not in self._programs:  # kept beside it, so that its id stays its own
            self._programs[id(program)] = program, replace(program, then=activation)
        return replace(binding, program=self._programs[id(program)][1])

    def __reduce__(self) -> tuple[Any, ...]:
        return Follower, (self.module,)


class DoneBefore(nn.Module):
    """Stands where an activation stood that the layers before it compute."""

    original: nn.Module

    def __init__(self, original: nn.Module) -> None:
        super().__init__()
        self.__dict__["original"] = original

    def forward(self, x: Any) -> Any:
        return x

    def extra_repr(self) -> str:
        return f"{self.original} is in the layers before"
