"""An exported model as steps over arrays: what a call of the C library does, one step after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import sympy
import torch
from torch import Tensor

from dacergnn.deploy.sizes import Size, product
from dacergnn.modules.compiled import CompiledProgram


@dataclass(eq=False)
class Array:
    """Represents the rows of a tensor in memory, without gaps.

    Args:
        name: Its name in C++.
        dtype: The type of its elements.
        shape: Its sizes.
        source: The array that it shows a part of; None for an array of its own.
        start: The first element of that part.
    """

    name: str
    dtype: torch.dtype
    shape: tuple[Size, ...]
    source: Array | None = None
    start: Size | None = None

    @property
    def owner(self) -> Array:
        """Returns the array that holds the memory."""
        return self if self.source is None else self.source.owner

    @property
    def offset(self) -> Size:
        """Returns its first element in the array that holds the memory."""
        if self.source is None:
            return sympy.Integer(0)
        own = self.start if self.start is not None else sympy.Integer(0)
        return self.source.offset + own  # pyright: ignore[reportReturnType]

    @property
    def elements(self) -> Size:
        """Returns the number of elements."""
        return product(self.shape)

    @property
    def width(self) -> Size:
        """Returns the number of elements of a row."""
        return product(self.shape[1:])


@dataclass(eq=False)
class Constant(Array):
    """Represents a tensor that is the same in all calls: a parameter, a buffer, or what follows from these."""

    value: Tensor = field(default_factory=lambda: torch.empty(0))


@dataclass(eq=False)
class Input(Array):
    """Represents an argument of the model; ``label`` is its name for users."""

    label: str = ""


@dataclass(eq=False)
class Graph:
    """Represents the sorted edges of a call.

    Args:
        name: Its name in C++.
        sizes: Numbers of sources, destinations, edge types and node types.
        typed: Whether nodes have types.
    """

    name: str
    sizes: tuple[Size, Size, int, int]
    typed: bool
    edges: Size

    @property
    def rows(self) -> dict[str, Size]:
        """Returns the numbers of rows by row spaces."""
        sources, destinations, types, node_types = self.sizes
        return {"NS": sources, "ND": destinations, "E": self.edges, "R": sympy.Integer(types),
                "T": sympy.Integer(node_types), "ONE": sympy.Integer(1)}  # fmt: skip


class Step:
    """Represents one step of a call, which makes what its field ``made`` holds from what its other fields hold."""

    label: str
    """The place in the model, for errors of calls."""

    @property
    def reads(self) -> Sequence[Array]:
        """Returns the arrays that it reads."""
        return _arrays([value for name, value in vars(self).items() if name != "made"])

    @property
    def writes(self) -> Sequence[Array]:
        """Returns the arrays that it makes."""
        return _arrays(vars(self).get("made"))

    @property
    def graph(self) -> Graph | None:
        """Returns the graph that it reads."""
        return vars(self).get("of")


def _arrays(value: Any) -> list[Array]:
    """Returns the arrays in a field of a step."""
    if isinstance(value, Array):
        return [value]
    if isinstance(value, RelationPart):
        return _arrays([*vars(value).values()])
    if isinstance(value, dict):
        value = [*value.values()]  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return [array for item in value for array in _arrays(item)] if isinstance(value, list | tuple) else []


@dataclass(eq=False)
class SortEdges(Step):
    """Sorts the edges [2, E] of one list, whose types, and the types of the nodes, may be given."""

    made: Graph
    edges: Array
    types: Array | None
    label: str
    node_types: Array | None = None


@dataclass(frozen=True)
class RelationPart:
    """Describes the edges of one relation: [2, E], its number, the types of its ends, its name for users."""

    edges: Array
    number: int
    ends: tuple[int, int]
    label: str


@dataclass(eq=False)
class JoinEdges(Step):
    """Sorts the edges of several relations; ``counts`` are the nodes of each type."""

    made: Graph
    parts: Sequence[RelationPart]
    counts: Sequence[Size]
    label: str = "edges"


@dataclass(eq=False)
class AddLoops(Step):
    """Copies edges [2, E] without self loops, and adds one at each of ``count`` nodes; ``found`` is the new E."""

    made: Array
    edges: Array
    count: Size
    nodes: tuple[Size, Size]
    found: Size
    label: str


@dataclass(eq=False)
class Call(Step):
    """Calls a function of the headers: with the arrays that it makes, then with what it is given.

    Args:
        function: Its name in C++.
        given: Arrays, which stand for their addresses, sizes and conditions, and C++ as it is.
        of: The graph that it reads.
    """

    function: str
    made: Sequence[Array]
    given: Sequence[Array | Size | str]
    label: str
    of: Graph | None = None


@dataclass(eq=False)
class RunProgram(Step):
    """Runs a compiled program.

    Args:
        of: The graph that it runs on; None for a program over the rows of nodes alone, of which there are ``rows``.
        inputs: Arrays by name.
        made: Results in the order of the program's outputs.
    """

    program: CompiledProgram
    of: Graph | None
    rows: Size | None
    inputs: dict[str, Array]
    made: Sequence[Array]
    label: str


@dataclass(eq=False)
class ScatterRows(Step):
    """Reduces rows by an index into a copy of ``first``."""

    KINDS: ClassVar[dict[str, str]] = {"sum": "kSum", "mean": "kMean", "amax": "kMax", "amin": "kMin"}

    made: Array
    first: Array
    index: Array
    source: Array
    reduce: str
    include: bool
    label: str


@dataclass(eq=False)
class SameSize(Step):
    """Gives a size that another step has found a second name."""

    name: Size
    known: Size
    label: str = ""


@dataclass
class Network:
    """Holds an exported model.

    Args:
        inputs: The arguments, in order.
        outputs: The results with their names for users.
        constants: Tensors that are the same in all calls, by their names in C++.
        steps: What a call does.
    """

    inputs: list[Input]
    outputs: list[tuple[str, Array]]
    constants: dict[str, Constant]
    steps: list[Step]
