"""Programs that users write, as functions over tensors and as modules with parameters."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn

from dacergnn.config import Config
from dacergnn.errors import ArrayError
from dacergnn.frontends import ProgramSource
from dacergnn.frontends.parameters import Attributes
from dacergnn.graph import HeteroGraph
from dacergnn.modules.graph_layer import GraphLayer, check_graph
from dacergnn.modules.user_program import LEADING, UserProgram

Result = Tensor | tuple[Tensor, ...]
Shape = int | tuple[int, ...] | None


class UserLayer(GraphLayer):
    """Runs a program of a user on the arrays of a call, in the order of the program's signature."""

    @property
    @abstractmethod
    def user(self) -> UserProgram:
        """Returns the program."""

    @property
    def kind(self) -> str:
        return self.user.name

    @property
    def _names(self) -> tuple[str, ...]:
        return self.user.names

    def _arrays_of(self, graph: HeteroGraph, inputs: Sequence[Any]) -> list[Any]:
        return list(inputs)

    def _program_of(self, graph: HeteroGraph, inputs: Sequence[Any]) -> ProgramSource:
        return self.user.program(self._arrays_of(graph, inputs))

    def _check(self, graph: HeteroGraph, arrays: Sequence[Any]) -> None:
        self.user.check(graph, arrays, self.config)


class ProgramFunction(UserLayer):
    """Represents a program as a function ``f(graph, x, W=W, ...)``, which `dacergnn.compile` makes.

    Returns a tensor for each result of the program, differentiable with respect to all arrays. Rows of edge arrays
    are in the graph's canonical order (`HeteroGraph.to_canonical`). Arrays of one row have no axis for it. Arrays of
    (edge type, source) pairs have one axis for each of the two.

    Args:
        source: The program, a function or text.
        wrapped: The function that the source was made from, if it is another one; gives name and documentation.
    """

    __qualname__: str

    def __init__(
        self,
        source: FunctionType | str,
        bindings: Mapping[str, Any],
        config: Config | None,
        wrapped: Callable[..., Any] | None = None,
    ) -> None:
        user = UserProgram(source, bindings)
        super().__init__(config)
        self._user = user
        functools.update_wrapper(self, source if wrapped is None else wrapped)  # pyright: ignore[reportArgumentType]

    @property
    def user(self) -> UserProgram:
        return self._user

    def __reduce__(self) -> str:  # unpickled by its name, as functions are
        return self.__qualname__

    def __repr__(self) -> str:
        return f"<compiled program {self.__qualname__}({', '.join(self.user.names)})>"

    def forward(self, graph: HeteroGraph, *args: Tensor | None, **kwargs: Tensor | None) -> Result:
        """Returns the results of the program on ``graph``.

        Raises:
            ProgramError: The function is not in program form; with file, line and column.
            ArrayError: An array is missing, too much, or does not fit the graph.
        """
        check_graph(graph)
        if not kwargs and len(args) == len(self.user.names):
            return self.compute(graph, *args)
        return self.compute(graph, *self.user.arrange(args, kwargs, {}))

    def module(
        self,
        graph: HeteroGraph | None = None,
        /,
        *,
        num_edge_types: int | None = None,
        num_node_types: int | None = None,
        **shapes: Shape,
    ) -> FunctionModule:
        """Returns a module whose parameters are the arrays in ``shapes``, which holds the shape of one row of each.

        Args:
            graph: Tells the numbers of edge types, node types and nodes.
            num_edge_types: Rows of arrays that are sliced by edge type, where no graph is given.
            num_node_types: Rows of arrays that are sliced by node type, where no graph is given.
            shapes: Row shapes by name; None for an array that is not there. The others are inputs of the module.

        Raises:
            ArrayError: An array is unknown, has rows of nodes, edges or pairs, or its number of rows is unknown.
        """
        counts = {"R": num_edge_types, "T": num_node_types, "NS": None}
        if graph is not None:
            check_graph(graph)
            counts = {space: graph.size(space) if n is None else n for space, n in counts.items()}
        return FunctionModule(self, counts, shapes)


class FunctionModule(UserLayer):
    """Represents a program with parameters of its own; calls take the graph and the remaining arrays."""

    _function: ProgramFunction

    def __init__(
        self, function: ProgramFunction, counts: Mapping[str, int | None], shapes: Mapping[str, Shape]
    ) -> None:
        super().__init__(function.config)
        object.__setattr__(self, "_function", function)  # past nn.Module, which would make it a submodule
        user = function.user
        user.arrange((), dict.fromkeys(shapes), dict.fromkeys(n for n in user.names if n not in shapes))
        self._absent = frozenset(n for n, s in shapes.items() if s is None)
        spaces = user.spaces(self._absent | frozenset(n for n in user.names if user.bindings.get(n, "") is None))
        for name, shape in shapes.items():
            if shape is not None:
                row = (shape,) if isinstance(shape, int) else tuple(shape)
                size = _parameter_shape(name, spaces.spaces[name], row, counts)
                if hasattr(self, name):
                    raise ArrayError(name, "is a name that modules of torch use themselves; give the array another one")
                self.register_parameter(name, nn.Parameter(torch.empty(size)))
        self._own = frozenset(n for n, s in shapes.items() if s is not None)
        self._count = len(user.names) - len(shapes)
        self.reset_parameters()

    @property
    def user(self) -> UserProgram:
        return self._function.user

    def extra_repr(self) -> str:
        return f"{self.kind}: {', '.join(f'{n} {list(p.shape)}' for n, p in self.named_parameters())}"

    def _arrays_of(self, graph: HeteroGraph, inputs: Sequence[Any]) -> list[Any]:
        own, values = Attributes(self), iter(inputs)
        return [own[n] if n in self._own else None if n in self._absent else next(values) for n in self.user.names]

    def forward(self, graph: HeteroGraph, *args: Tensor | None, **kwargs: Tensor | None) -> Result:
        """Returns the results of the program on ``graph`` for the arrays that are not parameters."""
        check_graph(graph)
        if not kwargs and len(args) == self._count:
            return self.compute(graph, *args)
        taken = {**{n: getattr(self, n) for n in self._own}, **dict.fromkeys(self._absent)}
        arrays = self.user.arrange(args, kwargs, taken)
        return self.compute(graph, *[a for n, a in zip(self.user.names, arrays, strict=True) if n not in taken])


def _parameter_shape(name: str, space: str, row: tuple[int, ...], counts: Mapping[str, int | None]) -> tuple[int, ...]:
    if space not in ("R", "T", "RNS", "ONE"):
        raise ArrayError(name, f"has a row for each of the graph's {space} and is an input of the module; leave it out")
    rows = [counts[s] for s in LEADING.get(space, (space,))]
    if None in rows:
        raise ArrayError(name, "has rows by type; give the module a graph, or num_edge_types and num_node_types")
    return (*[r for r in rows if r is not None], *row)
