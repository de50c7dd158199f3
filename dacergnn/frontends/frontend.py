"""The interface of front ends, which turn a module of another library into a program and its arrays."""

from __future__ import annotations

import copy
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from types import FunctionType
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from dacergnn.errors import UnsupportedCallError, UnsupportedLayerError
from dacergnn.frontends.missing_gradients import Results
from dacergnn.frontends.parameters import Attributes
from dacergnn.graph import HeteroGraph
from dacergnn.library_nodes.place import Place
from dacergnn.program.flatten import Activation
from dacergnn.program.source import PlacedText
from dacergnn.runtime.stacks import Gate, Stacks

_STRIDED, _NONE = torch.strided, frozenset[str]()
Outputs = tuple[Tensor, ...]
GraphKey = tuple[tuple[object, ...], tuple[object, ...]]
"""Distinguishes the graphs of calls: objects that are compared by identity, and sizes that are compared by value."""


_ASIDE = ("__init__", "__repr__", "extra_repr", "reset_parameters", "initialize_parameters", "jittable")
"""Methods that no call runs."""
GRAPH_LIBRARIES = ("torch_geometric", "dgl")
_GENERATED = ("_propagate", "_edge_updater")
"""Ends of the names of the modules of methods that PyG generates, and writes onto every class."""


@dataclass(frozen=True)
class ProgramSource:
    """Holds a program in program form with its array specifications and compile-time constants; hashable.

    Args:
        source: A function that is parsed, never run, or text that holds one.
        bindings: Pairs of a name and a specification like ``"NS[64]"``, None (no such array) or a constant.
        then: The activation that is applied to the results.
    """

    source: FunctionType | str
    bindings: tuple[tuple[str, object], ...]
    then: Activation | None = None
    _exact: tuple[str, ...] = field(init=False, repr=False)
    """Bits of the numbers among the bindings: the two zeros are equal, but programs with them are not."""

    def __post_init__(self) -> None:
        numbers = tuple([value.hex() for _, value in self.bindings if type(value) is float])
        object.__setattr__(self, "_exact", numbers)

    @classmethod
    def of(cls, source: FunctionType, **bindings: object) -> ProgramSource:
        """Makes the program of `source` with bindings as keywords, in any order; arrays that are left out are None."""
        code = source.__code__
        names = {*code.co_varnames[1 : code.co_argcount], *bindings}
        return cls(source, tuple((name, bindings.get(name)) for name in sorted(names)))

    @property
    def arrays(self) -> tuple[str, ...]:
        """Returns the arrays that a function takes, in the order of its parameters."""
        source: Any = self.source
        code, bindings = source.__code__, dict(self.bindings)
        return tuple(name for name in code.co_varnames[1 : code.co_argcount] if bindings[name] is not None)


@dataclass
class Binding:
    """Holds one call of a layer: its program, the arrays, and a function from outputs to results of the layer.

    Args:
        program: Equal programs (same source, same bindings) share one build.
        arrays: Contiguous tensors by name, rows of the declared space times the declared row shape in size.
            Parameters are passed as they are, as views or as results of torch operations, so that autograd
            reaches them.
        finish: Takes the program's outputs, returns what the layer returns.
        reshapes: Whether `finish` only gives the one output another shape, so that an activation may come before it.
        activation: The layer's activation of what `finish` returns; in the program if it may come before `finish`.
        stacks: How ``parts`` make up the arrays that are not among ``arrays``.
        parts: Tensors that would be concatenated at every call.
        made: Functions that make arrays of the program of those in ``arrays``, by name, at every call.
        results: The results that the parts lead to, if the program has several. Then `finish` takes the `Reached` of
            the call after the outputs. The program's backward must not read its results, since users may write to
            them.
        assemble: Makes all arrays of ``parts`` by torch's operations if they are no simple stacks, and there are
            `results`. It passes what it makes of parts by `torch.stack` or `torch.cat` to its second argument.
        names: Names of the parts that ``assemble`` takes, for error messages.
        repeats: Whether `finish` is right for all calls like this one, as it is if it `reshapes`.
        watched: Tensors that the program does not read, although its form depends on that nobody writes to them.
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
    watched: Sequence[Tensor] = ()
    activation: Callable[[Any], Any] | None = None

    @property
    def dtype(self) -> torch.dtype:
        """Returns the element type of the arrays."""
        return next(chain(self.arrays.values(), self.parts)).dtype

    @property
    def sparse(self) -> frozenset[str]:
        """Returns the names of the arrays that are sparse tensors."""
        for array in self.arrays.values():  # asked for at every call
            if array.layout is not _STRIDED:
                return frozenset([name for name, array in self.arrays.items() if array.layout is not _STRIDED])
        return _NONE

    def tensors(self, inputs: Sequence[str]) -> tuple[list[Tensor], list[tuple[int, Callable[[Tensor], Tensor]]]]:
        """Returns the arrays that ``inputs`` names and the parts; and positions of arrays with functions of `made`."""
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
    """Names of the layer's parts that torch runs; other parts are in the program, and have no hooks. None if the
    front end checks the parts itself."""
    inlined: ClassVar[bool] = False
    """Tells whether programs are as good that come of the layer's own Python, captured together with its model."""

    def __init__(self, module: nn.Module) -> None:
        """Raises UnsupportedLayerError if the layer has an option that no program expresses."""
        self.module: Any = module
        self._programs: dict[object, ProgramSource] = {}

    def of(self, module: Any) -> Self:
        """Returns the front end of a module that stands in for this one."""
        other = copy.copy(self)
        other.module = module
        return other

    joins: ClassVar[bool] = False
    """Tells whether it takes several layers together; they are compiled one by one where it cannot."""

    @abstractmethod
    def edges(self, *args: Any, **kwargs: Any) -> GraphKey | None:
        """Returns what identifies the graph of a call: objects compared by identity, and sizes compared by value.

        None if every call has a graph of its own, which other calls must not find.

        Takes the arguments of the layer; touches no tensor data. Raises UnsupportedCallError for a call that
        the program does not cover, so that the original layer must run it.
        """

    @abstractmethod
    def graph(self, *args: Any, **kwargs: Any) -> HeteroGraph:
        """Encodes the graph of a call anew; raises GraphError or ArrayError if its tensors describe none."""

    def graph_owner(self) -> object:
        """Returns all that `graph` depends on besides `edges`; layers with equal owners share encoded graphs."""
        return self

    def result(self, *args: Any, **kwargs: Any) -> Any:
        """Returns the shape of the layer's result, a tuple of sizes for each tensor, in the structure of the result.

        A list of shapes stands for a tuple of tensors. The shape is for tracers, which never follow layers that take
        graph objects, and for calls that encode their graphs and compute nothing.
        """
        raise UnsupportedCallError(f"{type(self.module).__name__} cannot be traced.")

    @classmethod
    def takes_graphs(cls) -> bool:
        """Returns whether calls take graph objects, into which tracers cannot look."""
        return any(name.startswith("dgl.") for name in cls.handles)

    @property
    def repeatable(self) -> bool:
        """Returns whether results depend on arguments and parameters alone, and calls draw no random numbers."""
        return True

    @property
    def parameters(self) -> Attributes:
        """Returns the layer's own parameters by name."""
        return Attributes(self.module)

    @abstractmethod
    def bind(self, graph: HeteroGraph, *args: Any, **kwargs: Any) -> Binding:
        """Returns the program and its arrays for a call whose `edges` belong to `graph`."""

    def refuse(self, option: str, value: object, remedy: str) -> UnsupportedLayerError:
        """Returns the error that names an option of this layer as the reason why it stays as it is."""
        return UnsupportedLayerError(option, value, remedy, type(self.module).__name__)

    def program(self, key: object, make: Callable[[], ProgramSource]) -> ProgramSource:
        """Returns the program that is kept under `key`; it is made once."""
        program = self._programs.get(key)
        if program is None:
            program = self._programs[key] = self._placed(make())
        return program

    def _placed(self, program: ProgramSource) -> ProgramSource:
        """Returns the program; if it is a text, with the place of the method that it expresses."""
        layer = type(self.module)
        method = getattr(layer, "message", getattr(layer, "forward", None))
        if not isinstance(program.source, str) or not isinstance(method, FunctionType):
            return program
        place = Place(method.__code__.co_filename, method.__code__.co_firstlineno)
        return replace(program, source=PlacedText(program.source, [place] * len(program.source.splitlines())))


def handled_class(module: nn.Module, names: Container[str], *, around: str | None = None) -> str | None:
    """Returns the qualified name among ``names`` of the class that `module` computes like, or None.

    It does if all methods of that class, and the functions that these call, are those that its library defines, and
    neither a subclass nor the instance redefines one.

    Args:
        around: A method that the instance may have, since it runs around the one that is compiled.
    """
    classes = type(module).__mro__
    kind = next((c for c in classes if f"{c.__module__}.{c.__qualname__}" in names), None)
    if kind is None:
        return None
    bases = kind.__mro__[: kind.__mro__.index(nn.Module)]
    library = {name for base in bases for name, _ in methods(base)}
    own = {name for cls in classes[: classes.index(kind)] for name, _ in methods(cls)}
    set_on_it = {n for n, value in vars(module).items() if n != around and not is_method(type(module), value)}
    replaced = any(f.__globals__ is not vars(sys.modules[b.__module__]) for b in bases for _, f in methods(b))
    replaced |= not all(_is_own_helper(name, f) for b in bases for name, f in helpers(b))
    return None if replaced or library & (own | set_on_it) else f"{kind.__module__}.{kind.__qualname__}"


def has_foreign_methods(cls: type) -> bool:
    """Returns whether somebody has put a method of their own in the place of one of a library's class."""
    return not all(_is_library(f) for _, f in methods(cls))


def is_method(cls: type, value: object) -> bool:
    """Returns whether a value binds a function of a class, as PyG sets other methods of the class on a layer."""
    function = getattr(value, "__func__", None)
    return function is not None and any(function is own for c in cls.__mro__ for own in vars(c).values())


def methods(cls: type) -> list[tuple[str, FunctionType]]:
    """Returns the methods that a class itself defines and that calls may run, without those that PyG generates."""
    own = [(name, f) for name, f in vars(cls).items() if isinstance(f, FunctionType)]
    found = [(name, f) for name, f in own if name not in _ASIDE and not name.startswith("_orig_")]
    return [(name, f) for name, f in found if not str(f.__globals__.get("__name__")).endswith(_GENERATED)]


def helpers(cls: type) -> list[tuple[str, Callable[..., Any]]]:
    """Returns the callables that the methods of a class of a graph library find among the names of their module.

    Classes are not among them.
    """
    if cls.__module__.partition(".")[0] not in GRAPH_LIBRARIES:
        return []
    known = vars(sys.modules[cls.__module__])
    names = dict.fromkeys(name for _, function in methods(cls) for name in function.__code__.co_names)
    return [(n, known[n]) for n in names if callable(known.get(n)) and not isinstance(known[n], type)]


def _is_own_helper(name: str, helper: object) -> bool:
    """Returns whether a graph library has given its function this name; torch's may stand there by a user's will."""
    if not isinstance(helper, FunctionType) or helper.__name__ != name:
        return False
    return str(helper.__globals__.get("__name__")).partition(".")[0] in GRAPH_LIBRARIES


def _is_library(function: FunctionType) -> bool:
    return str(function.__globals__.get("__name__")).partition(".")[0] in (*GRAPH_LIBRARIES, "torch")


def only(outputs: Outputs) -> Tensor:
    """Returns the output of a program that has one."""
    return outputs[0]


def in_shape(rows: Tensor, *shape: int) -> Tensor:
    """Returns rows in a shape, as they are if they have it: torch crashes at a hook of a view that was written to."""
    same = rows.dim() == len(shape) > 0 and rows.shape[1:] == shape[1:] and shape[0] in (-1, len(rows))
    return rows if same else rows.view(shape)


def spec(space: str, *shape: int) -> str:
    """Returns an array specification: ``spec("NS", 64) == "NS[64]"``, ``spec("E") == "E"``."""
    return f"{space}[{', '.join(map(str, shape))}]" if shape else space
