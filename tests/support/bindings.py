"""What a binding of a front end makes of tensors, done in torch."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from dacergnn.frontends import Binding
from dacergnn.frontends.missing_gradients import Reached


def arrays_of(binding: Binding) -> dict[str, Tensor]:
    """Returns all arrays of the program by name."""
    found = {name: binding.made[name](a) if name in binding.made else a for name, a in binding.arrays.items()}
    return found if binding.stacks is None else found | binding.stacks.arrays(binding.parts)


def result_of(binding: Binding, outputs: tuple[Tensor, ...]) -> Any:
    """Returns what the layer returns for the outputs of the program."""
    reached = () if binding.results is None else (Reached(binding.results.count),)
    return binding.finish(outputs, *reached)
