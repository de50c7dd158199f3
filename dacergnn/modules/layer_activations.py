"""Lets the programs of layers apply the layers' own activations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from dacergnn.frontends import Binding, ProgramSource
from dacergnn.frontends.activations import activation_of
from dacergnn.program.flatten import Activation


class Activated:
    """Holds the programs of a layer together with its activation."""

    def __init__(self) -> None:
        self._programs: dict[tuple[int, Activation], tuple[ProgramSource, ProgramSource]] = {}

    def bind(self, binding: Binding, function: Callable[[Any], Any]) -> Binding:
        """Returns a call with its activation, which is part of its program if possible, else a step after it."""
        activation, program = activation_of(function), binding.program
        if activation is None or not binding.reshapes or program.then is not None:
            finish, repeats = binding.finish, binding.repeats or binding.reshapes
            return replace(binding, finish=lambda *results: function(finish(*results)), reshapes=False, repeats=repeats)
        key = id(program), activation
        if key not in self._programs:  # the program is kept, so that no other one gets its id
            self._programs[key] = program, replace(program, then=activation)
        return replace(binding, program=self._programs[key][1])
