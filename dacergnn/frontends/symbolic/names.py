"""Names of recorded programs and of their inputs: the layer's class, and paths of parameters."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from torch import Tensor

from dacergnn.library_nodes.form import ENTITY, GRADIENT
from dacergnn.library_nodes.operators import OPERATORS
from dacergnn.program.names import name_problem

_TAKEN = frozenset(("g", *ENTITY.values(), *OPERATORS))
"""Words of the program form, which could be names of arrays but would be hard to read as such."""
_MADE = re.compile(rf"v\d+$|{GRADIENT}")
"""Names that recording and passes give."""


@dataclass(frozen=True)
class Names:
    """Holds the name of a layer's programs, and names of inputs by the ids of their tensors; some may be equal."""

    program: str = "layer"
    inputs: dict[int, str] = field(default_factory=dict[int, str])

    @classmethod
    def of_paths(cls, kind: str, tensors: Iterable[tuple[str, Tensor]]) -> Names:
        """Returns the names of a layer of a class: ``lin_weight`` for the tensor ``lin.weight``.

        Equal parts of a layer, ``first.lin.weight`` and ``second.lin.weight``, share names, since programs are known by
        their texts. What cannot be the name of an array is left out.
        """
        named = [(_short(path), tensor) for path, tensor in tensors]
        inputs = {id(tensor): name for name, tensor in reversed(named) if _is_readable(name)}
        return cls(kind if _is_readable(kind) else cls.program, inputs)

    def follow(self, made: Tensor, tensor: Tensor) -> None:
        """Gives what is made of a tensor its name."""
        if id(tensor) in self.inputs:
            self.inputs[id(made)] = self.inputs[id(tensor)]


def _short(path: str) -> str:
    """Returns the last two names of a path, without numbers of parts."""
    return "_".join([part for part in path.split(".") if not part.isdigit()][-2:])


def _is_readable(name: str) -> bool:
    return name_problem(name) is None and name not in _TAKEN and not _MADE.match(name)
