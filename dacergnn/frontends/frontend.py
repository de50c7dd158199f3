"""What every front end provides: from a module of another library to a program and its arrays."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from types import FunctionType
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from dacergnn.errors import UnsupportedCallError, UnsupportedLayerError
from dacergnn.frontends.parameters import Attributes
from dacergnn.frontends.reached import Results
from dacergnn.graph import HeteroGraph
from dacergnn.program.flatten import Activation
from dacergnn.runtime.stacks import Gate, Stacks

_STRIDED, _NONE = torch.strided, frozenset[str]()
Outputs = tuple[Tensor, ...]
GraphKey = tuple[tuple[object, ...], tuple[object, ...]]
"""Objects compared by identity and sizes compared by value: what tells the graphs of two calls apart."""


# A subclass that redefines one of these computes something else. PyG writes a generated `propagate` onto
# every class, so that name tells nothing.
_METHODS = ("forward", "edge_update", "message", "message_and_aggregate", "aggregate", "update")


@dataclass(frozen=True)
class ProgramSource:
    """A program in program form with its array specifications and compile-time constants; hashable.

    Args:
        source: A function that is parsed, never run, or text that holds one.
        bindings: Pairs of a name and a specification like ``"NS[64]"``, None (no such array) or a constant.
        then: Applied to the results.
    """

    source: FunctionType | str
    bindings: tuple[tuple[str, object], ...]
    then: Activation | None = None
    _exact: tuple[str, ...] = field(init=False, repr=False)
    """Numbers among the bindings, bit by bit: the two zeros are equal, and programs with them are not."""

    def __post_init__(self) -> None:
        numbers = tuple([value.hex() for _, value in self.bindings if type(value) is float])
        object.__setattr__(self, "_exact", numbers)

    @classmethod
    def of(cls, source: FunctionType, **bindings: object) -> ProgramSource:
        """Program of `source` with bindings as keywords, in any order; arrays that are left out are None."""
        code = source.__code__
        names = {*code.co_varnames[1 : code.co_argcount], *bindings}
        return cls(source, tuple((name, bindings.get(name)) for name in sorted(names)))

    @property
    def arrays(self) -> tuple[str, ...]:
        """The arrays that a function takes, in the order of its parameters."""
        source: Any = self.source
        code, bindings = source.__code__, dict(self.bindings)
        return tuple(name for name in code.co_varnames[1 : code.co_argcount] if bindings[name] is not None)


@dataclass
class Binding:
    """One call of a layer: its program, the program's arrays, and what turns its outputs into the layer's.

    Args:
        program: Equal programs (same source, same bindings) share one build.
        arrays: Contiguous tensors by name, rows of the declared space times the declared row shape in size.
            Parameters are passed as they are, as views or as results of torch operations, so that autograd
            reaches them.
        finish: Takes the program's outputs, returns what the layer returns.
        reshapes: Whether `finish` only gives the one output another shape, so that an activation may come before it.
        activation: What the layer applies to what `finish` returns; in the program where that may come before it.
        stacks: How ``parts`` make up the arrays that are not among ``arrays``.
        parts: Tensors that would be concatenated at every call.
        made: Functions that make arrays of the program of those in ``arrays``, by name, at every call.
        results: What is known of the parts' gradients where the program has several results. `finish` takes the
            `Reached` of the call after the outputs, then. The program's backward must not read its results, which
            users may write to.
        assemble: Makes all arrays of ``parts`` by torch's operations where they are no simple stacks, and there are
            `results`. It shows its second argument what it makes of parts by `torch.stack` or `torch.cat`.
        names: What errors call the parts that ``assemble`` takes.
        repeats: Whether `finish` holds for all calls that are like this one, as it does if it `reshapes`.
    """

    program: ProgramSource
    arrays: dict[str, Tensor]
    finish: Callable[..., Any]
    stacks: Stacks | None = None
    parts: list[Tensor] = field(default_factory=list)
    made: Mapping[str, Callable[[Tensor], Tensor]] = field(default_factory=dict[str, Callable[[Tensor], Tensor]])
    results: Results | None = None
    assemble: Callable[[Sequence[Tensor], Gate], dict[str, Tensor]] | None = None
    names: Sequence[str] = ()
    reshapes: bool = False
    repeats: bool = False
    activation: Callable[[Any], Any] | None = None

    @property
    def dtype(self) -> torch.dtype:
        """Element type of the arrays."""
        return next(chain(self.arrays.values(), self.parts)).dtype

    @property
    def sparse(self) -> frozenset[str]:
        """Names of the arrays that are sparse tensors."""
        for array in self.arrays.values():  # asked for at every call
            if array.layout is not _STRIDED:
                return frozenset([name for name, array in self.arrays.items() if array.layout is not _STRIDED])
        return _NONE

    def tensors(self, inputs: Sequence[str]) -> tuple[list[Tensor], list[tuple[int, Callable[[Tensor], Tensor]]]]:
        """Returns the arrays of a program that takes ``inputs`` and its parts, and what `made` does with which."""
        names = [name for name in inputs if name in self.arrays]
        made = [(names.index(name), function) for name, function in self.made.items()]
        return [*[self.arrays[name] for name in names], *self.parts], made


class Frontend(ABC):
    """Expresses the layers of the classes that `handles` names.

    Options of the layer are read when the front end is made, parameters and `training` at every call from
    `module`, which may be replaced by any object with the same attributes.
    """

    handles: ClassVar[tuple[str, ...]]
    """Qualified names of the classes, such as ``"torch_geometric.nn.conv.rgcn_conv.RGCNConv"``."""
    called: ClassVar[tuple[str, ...] | None] = ()
    """Names of the layer's parts that torch runs; other parts are in the program, and have no hooks. None where the
    front end sees to that itself."""

    def __init__(self, module: nn.Module) -> None:
        """Raise UnsupportedLayerError if the layer has an option that no program expresses."""
        self.module: Any = module
        self._programs: dict[object, ProgramSource] = {}

    joins: ClassVar[bool] = False
    """Tells whether it takes several layers together, which are compiled one by one where it cannot."""

    @abstractmethod
    def edges(self, *args: Any, **kwargs: Any) -> GraphKey | None:
        """Returns what identifies the graph of a call: objects compared by identity, and sizes compared by value.

        None if every call has a graph of its own, which no other call is to find.

        Takes the arguments of the layer; touches no tensor data. Raises UnsupportedCallError for a call that
        the program does not cover, so that the original layer must run it.
        """

    @abstractmethod
    def graph(self, *args: Any, **kwargs: Any) -> HeteroGraph:
        """The graph of a call, encoded anew; GraphError or ArrayError if its tensors describe none."""

    def graph_owner(self) -> object:
        """Returns what `graph` depends on besides `edges`; layers whose owners are equal share encoded graphs."""
        return self

    def result(self, *args: Any, **kwargs: Any) -> Any:
        """Shape of what the layer returns, a tuple of sizes for a tensor, in the structure that it returns.

        A list of shapes stands for a tuple of tensors. Tracers ask for it, which never follow layers that take graph
        objects; so do calls that encode their graphs and compute nothing.
        """
        raise UnsupportedCallError(f"{type(self.module).__name__} cannot be traced.")

    @property
    def repeatable(self) -> bool:
        """Returns whether calls follow from arguments and parameters alone, and draw no random numbers."""
        return True

    @property
    def parameters(self) -> Attributes:
        """The layer's own parameters by name."""
        return Attributes(self.module)

    @abstractmethod
    def bind(self, graph: HeteroGraph, *args: Any, **kwargs: Any) -> Binding:
        """The program and its arrays for a call whose `edges` belong to `graph`."""

    def refuse(self, option: str, value: object, remedy: str) -> UnsupportedLayerError:
        """The error that names an option of this layer as the reason why it stays as it is."""
        return UnsupportedLayerError(option, value, remedy, type(self.module).__name__)

    def program(self, key: object, make: Callable[[], ProgramSource]) -> ProgramSource:
        """The program kept under `key`, made once."""
        program = self._programs.get(key)
        if program is None:
            program = self._programs[key] = make()
        return program


def handled_class(module: nn.Module, names: Container[str]) -> str | None:
    """The qualified name among ``names`` of the class that `module` computes like, or None.

    A subclass computes like its base unless it, or the instance, redefines forward, message, aggregation or update.
    """
    if any(method in vars(module) for method in _METHODS):
        return None
    for cls in type(module).__mro__:
        name = f"{cls.__module__}.{cls.__qualname__}"
        if name in names:
            return name
        if any(method in vars(cls) for method in _METHODS):
            return None
    return None


def only(outputs: Outputs) -> Tensor:
    """The output of a program that has one."""
    return outputs[0]


def spec(space: str, *shape: int) -> str:
    """Array specification: ``spec("NS", 64) == "NS[64]"``, ``spec("E") == "E"``."""
    return f"{space}[{', '.join(map(str, shape))}]" if shape else space
