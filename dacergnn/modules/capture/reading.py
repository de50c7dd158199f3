"""Runs a captured graph once with recorded values: what it does along edges becomes programs, all else torch does."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, fx
from torch._ops import HigherOrderOperator

from dacergnn.errors import UnsupportedCallError
from dacergnn.frontends.symbolic import Trace, callers
from dacergnn.frontends.symbolic.edges import EdgeIndex, EdgeSet, EndIndex, JoinedIndex, PairedEdges, end_index, plain
from dacergnn.frontends.symbolic.expr import Untranslatable, const
from dacergnn.frontends.symbolic.indexing import INDEXING
from dacergnn.frontends.symbolic.names import Names
from dacergnn.frontends.symbolic.record import ABOUT, writes
from dacergnn.frontends.symbolic.sizes import Size
from dacergnn.frontends.symbolic.tape import Tape
from dacergnn.frontends.symbolic.trace import is_alias_of
from dacergnn.frontends.symbolic.value import Value, values_in
from dacergnn.modules.capture.counted_nodes import count_nodes
from dacergnn.modules.capture.ends import Ends, along_parts, find_ends, gather_of, is_view
from dacergnn.modules.capture.integers import Integers
from dacergnn.modules.capture.refusals import public_name
from dacergnn.modules.capture.self_loops import join_self_loops
from dacergnn.modules.capture.sources import is_number, label, own_path, reads_number
from dacergnn.modules.capture.stacked_sums import add_stacked
from dacergnn.modules.capture.structures import flat, mapped, tensors_in, with_numbers
from dacergnn.modules.capture.uses import last_uses, results_in_use
from dacergnn.modules.torch_operator import run_layer

_RECORDED = (Value, EdgeIndex, EndIndex, JoinedIndex)
_WITHOUT_EFFECT = ("sym_", "_check", "_assert_scalar", "_log_api_usage")
"""Beginnings of the names of functions of numbers, and of one that counts how often parts of torch are used."""
_SETS_MODES = (torch._C._set_grad_enabled,)  # pyright: ignore[reportPrivateUsage]
_INSTEAD: dict[Any, Callable[..., Any]] = {
    operator.setitem: Tensor.__setitem__,
    torch.ops.dacergnn.layer.default: run_layer,
}
"""Maps functions to what is called in their place, and does the same."""
_DATA = torch._C._autograd._get_data_attr  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
_CONSTANTS: dict[Any, float] = {torch.zeros: 0.0, torch.ones: 1.0}


class Reader:
    """Reads one graph.

    Args:
        module: The graph, as torch hands it to a back end.
    """

    def __init__(self, module: fx.GraphModule) -> None:
        join_self_loops(module)
        count_nodes(module)
        add_stacked(module)
        self.module = module
        self.inputs = [node for node in module.graph.nodes if node.op == "placeholder"]
        # torch drops what it knows of inputs when it has captured the graph.
        self.paths = {node: path for node in self.inputs if (path := own_path(node)) is not None}
        """The paths of inputs that are parameters or buffers."""
        self.labels = {i: self.paths.get(node) or label(node) for i, node in enumerate(self.inputs)}
        """The names of the inputs by their positions."""
        self.integers = Integers(module.graph)
        self.ends = [e for e in find_ends(module.graph, self.integers.same) if self._computable(e)]
        self.views = self._views()
        """Nodes that hold ends of edges in another shape; what they are of is known."""
        self.parted = any(gather_of(node, along_parts) is not None for node in module.graph.nodes)
        """Tells whether nodes stand along another axis than the first."""
        self.results = results_in_use(module.graph)
        """Results of the graph that it computes others from."""
        self.compiles = bool(self.ends) or any(_INSTEAD.get(n.target) is run_layer for n in module.graph.nodes)
        """Tells whether the graph runs compiled programs, of its own or of layers in it."""
        self.numbers = [i for i, node in enumerate(self.inputs) if is_number(node)]
        """The positions of inputs that are numbers in the form of a tensor."""
        self.read_number = next(
            (n for n in module.graph.nodes if reads_number(n) and n.args[0] not in self.inputs), None
        )
        """The first node that reads a number that is no integer, and no argument."""
        self.last_uses = last_uses(module.graph)
        """The nodes that nobody uses after a node."""

    def _views(self) -> set[fx.Node]:
        ends = {node for e in self.ends for node in (e.src, e.dst, e.types, e.node_types) if node is not None}
        views: set[fx.Node] = set()
        for node in self.module.graph.nodes:
            source = self.integers.same(node.args[0]) if node.args and isinstance(node.args[0], fx.Node) else None
            if is_view(node) and (source in ends or source in views) and self.integers.same(node) not in ends:
                views.add(self.integers.same(node))
        return views

    def _computable(self, ends: Ends) -> bool:
        return all(node in self.integers.nodes for node in (ends.src, ends.dst))

    def names(self, kind: str, args: Sequence[Any]) -> Names:
        """Returns the names of the programs of a call, and of the parameters and buffers among its arguments."""
        paths = [(self.paths[node], a) for node, a in zip(self.inputs, args, strict=True) if node in self.paths]
        return Names.of_paths(kind, paths)

    @property
    def constants(self) -> Mapping[int, Tensor]:
        """Returns the tensors that belong to the graph itself, by their ids."""
        found = [_attribute(self.module, str(n.target)) for n in self.module.graph.nodes if n.op == "get_attr"]
        return {id(v): v for v in found if isinstance(v, Tensor)}

    def run(self, trace: Trace, tape: Tape, args: Sequence[Any]) -> Any:
        """Returns the result of the graph for arguments, with recorded values in it."""
        try:
            return _Run(self, trace, tape).run(args)
        finally:
            callers.reads(None)


class _Run:
    """Holds the objects that the nodes of a graph have made so far."""

    def __init__(self, reader: Reader, trace: Trace, tape: Tape) -> None:
        self.reader, self.trace, self.tape = reader, trace, tape
        self.made: dict[fx.Node, Any] = {}
        self.sizes: dict[str, Any] = {}
        """Sizes by their symbolic expressions."""

    def run(self, args: Sequence[Any]) -> Any:
        reader, graph = self.reader, self.reader.module.graph
        self.numbers = [args[i] for i in reader.numbers]
        for node, value in zip(reader.inputs, args, strict=True):
            self._know(node, value)
        for node, value in zip(reader.inputs, args, strict=True):
            self.made[node] = self._input(node, value)
        for node in graph.nodes:  # integers depend on nothing else
            first = reader.integers.nodes.get(node)
            if first is not None and node.op != "placeholder":
                self.made[node] = self.made[first] if first is not node else self._computed(node)
        self.tape.integers = len(self.tape.steps)
        for ends in reader.ends:
            self._mark(ends)
        for node in graph.nodes:
            if node.op == "output":
                return self._filled(node.args[0])
            first = reader.integers.nodes.get(node)
            if node.op != "placeholder" and (first is None or first in reader.views):
                self.made[node] = self._computed(node)
            for dead in reader.last_uses.get(node, ()):
                self.made.pop(dead, None)
            if node in reader.results:
                self._leads_through(node)
        raise AssertionError("a graph ends with its output")

    def _leads_through(self, node: fx.Node) -> None:
        """Computes a result of which others are made: gradients of these by it lead through its tensor.

        What is used later, and depends on edges, is computed by the same program.
        """
        value = self.made[node]
        if isinstance(value, Value) and value.requires_grad and not self.trace.given(value.node.real):
            others = [v for v in self.made.values() if type(v) is Value and v.node.expr.edges is not None]
            real, *_ = self.trace.results((value, *others))
            if type(value) is Value:
                value.node = self.trace.written(real, value.shape)
            else:
                self.made[node] = self.trace.own_value(real)

    def _know(self, node: fx.Node, value: Any) -> None:
        """Notes the sizes that an input has by its symbols."""
        example = node.meta.get("example_value")
        if isinstance(example, Tensor):
            self._tie(example, value)
        elif isinstance(example, torch.SymInt):
            self.sizes[_expr(example)] = self.tape.given(value)

    def _input(self, node: fx.Node, value: Any) -> Any:
        example = node.meta.get("example_value")
        if isinstance(example, torch.SymInt):
            return self.sizes[_expr(example)]
        if not isinstance(value, Tensor) or isinstance(value, torch.nn.Parameter) or node in self.reader.paths:
            return value
        return self.trace.wrap(value)

    def _mark(self, ends: Ends) -> None:
        """Puts indices that know their edges in the places of the integers at the ends of edges."""
        src, dst = self.made[ends.src], self.made[ends.dst]
        rows = ends.rows
        if rows is not None and rows[0] in self.made:
            edges: EdgeSet = self.trace.edge_set(self.made[rows[0]], rows[1] == 1)
        else:
            edges = PairedEdges(self.trace, src, dst)
        sides = {ends.src: ("src", src), ends.dst: ("dst", dst)}
        if ends.types is not None and ends.types in self.made:
            sides[ends.types] = "etype", self.made[ends.types]
        if ends.node_types is not None and ends.node_types in self.made:
            sides[ends.node_types] = "ntype", self.made[ends.node_types]
        for node in self.reader.integers.nodes:
            entry = sides.get(self.reader.integers.same(node))
            if entry is not None:
                self.made[node] = end_index(edges, entry[0], entry[1])

    def _computed(self, node: fx.Node) -> Any:
        callers.reads(node.meta.get("stack_trace"))
        example = node.meta.get("example_value")
        if node.op == "get_attr":
            return _attribute(self.reader.module, str(node.target))
        if isinstance(example, torch.SymInt) and _expr(example) in self.sizes:
            return self.sizes[_expr(example)]
        args, kwargs = self._filled(node.args), self._filled(node.kwargs)
        if node.op == "call_method":
            function = getattr(Tensor, str(node.target)) if isinstance(args[0], Tensor) else None
            if function is None:
                return getattr(args[0], str(node.target))(*args[1:], **kwargs)
        elif node.op == "call_function":
            function: Any = _INSTEAD.get(node.target, node.target)
            if function is operator.getitem and isinstance(args[0], Tensor):
                function = Tensor.__getitem__
        else:
            raise UnsupportedCallError(f"{node.op} {node.target} is in the graph.")
        if isinstance(example, torch.SymInt):
            return self._size(_expr(example), function, args, kwargs)
        if function is _DATA and isinstance(args[0], Value):
            return args[0].detach()
        if _always_true(node):
            return True
        if function in (operator.getitem, getattr) and not isinstance(args[0], Tensor):
            return function(*args)  # a part of several results
        known = function in (*_SETS_MODES, torch.Size) or _of_numbers(function)
        if not (tensors_in(example) or tensors_in((args, kwargs)) or known):
            raise UnsupportedCallError(f"{public_name(function)} is called ({callers.caller_text()}).")
        result = self._called(function, args, kwargs)
        self._tie(example, result)
        apart = function is run_layer  # results of a layer share memory, but no rows
        return self._recorded(result, args, apart=apart) if apart or values_in(args) else result

    def _recorded(self, result: Any, args: tuple[Any, ...], *, apart: bool) -> Any:
        """Returns what torch has computed of rows as values, so that what is computed of it joins a program."""
        several = type(result) in (tuple, list)
        parts = [*result] if several else [result]
        given = [v.node.real for v in values_in(args) if v.node.real is not None]

        def value(part: Any) -> Any:
            if type(part) is not Tensor or part.layout is not torch.strided or part.dim() < 2:
                return part
            others = [*given, *[t for t in parts if isinstance(t, Tensor) and t is not part and not apart]]
            shared = any(is_alias_of(part, other) for other in others)  # a write to another one changes it
            fits = part.device == self.trace.device and self.trace.takes(part.dtype)
            return self.trace.own_value(part) if fits and not shared else part

        return type(result)(map(value, parts)) if several else value(result)

    def _size(self, expr: str, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Returns a size that follows from others; the tape notes how."""
        sizes = [a for a in flat(args) if isinstance(a, int)]
        if function is Tensor.item:  # of integers, which are others in other calls
            args = (plain(args[0]),)
        result = function(*with_numbers(args), **with_numbers(kwargs))
        if function is Tensor.item or any(type(size) is Size for size in sizes):
            result = self.tape.derived(function, args, kwargs, int(result))
        self.sizes[expr] = result
        return result

    def _called(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        trace = self.trace
        if function in _SETS_MODES:
            return function(*args)
        if isinstance(function, HigherOrderOperator):
            return trace.alone(function, args, kwargs)
        if function is run_layer:
            return trace.torch(function, *trace.results(args))
        if function is torch.Size:
            return torch.Size(*args)
        if function is Tensor.size and isinstance(args[0], Tensor) and not isinstance(args[0], _RECORDED):
            shape = trace.shape(args[0])
            return shape[args[1]] if len(args) > 1 else shape[kwargs["dim"]] if kwargs else shape
        constant = _CONSTANTS.get(function)
        if constant is not None and (made := self._constant(constant, function, args, kwargs)) is not None:
            return made
        recorded = [v for v in flat((args, kwargs)) if isinstance(v, _RECORDED)]
        if not recorded:
            return self._plain(function, args, kwargs)
        if not any(isinstance(v, Value) for v in recorded):
            return self._of_ends(function, args, kwargs)
        if any(isinstance(v, EndIndex) for v in recorded):
            trace.begin_anew([v for v in recorded if isinstance(v, Value) and not v.node.expr.on_edges])
        try:
            return function(*args, **kwargs)
        except UnsupportedCallError:
            if writes(function, kwargs):
                raise
            return trace.alone(function, args, kwargs)

    def _of_ends(self, function: Any, args: Any, kwargs: Any) -> Any:
        """Calls a function of ends of edges, and of tensors that hold numbers."""
        handler, result = INDEXING.get(function), None
        if handler is not None:
            with suppress(Untranslatable, UnsupportedCallError):
                result = handler(self.trace, *args, **kwargs)
        return self._plain(function, plain(args), plain(kwargs)) if result is None else result

    def _plain(self, function: Any, args: Any, kwargs: Any) -> Any:
        """Calls a function of tensors that hold numbers, or of none."""
        if function is Tensor.item:
            if any(args[0] is number for number in self.numbers):
                return args[0].item()
            raise UnsupportedCallError("a number is read from a tensor (.item()).")
        if writes(function, kwargs) and _is_floating(args):  # values that wait may read that memory by another view
            self.trace.results([value for value in self.made.values() if isinstance(value, Value)])
        result = function(*args, **kwargs)
        if tensors_in(result) or (result is None and tensors_in((args, kwargs))):
            self.tape.called(function, args, kwargs, result)
        elif function not in ABOUT and not _of_numbers(function):
            raise UnsupportedCallError(f"{public_name(function)} is called ({callers.caller_text()}).")
        return result

    def _constant(self, value: float, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Returns zeros or ones that others may be added to; None if they are not rows of numbers of the call."""
        with torch.device("meta"):
            result = function(*with_numbers(args), **{k: v for k, v in with_numbers(kwargs).items() if k != "device"})
        device = torch.device(kwargs.get("device") or torch.get_default_device())
        if (
            not result.dim()
            or result.requires_grad
            or device != self.trace.device
            or not self.trace.takes(result.dtype)
        ):
            return None
        given = args[0] if args and not isinstance(args[0], int) else args or kwargs.get("size")
        shape = torch.Size(given) if isinstance(given, tuple | list) else result.shape
        return self.trace.record(const(value), shape, result.dtype, (function, args, kwargs, None))

    def _tie(self, example: Any, result: Any) -> None:
        """Notes the sizes of new tensors that may differ in other calls, by their symbols."""
        for fake, tensor in zip(tensors_in(example), tensors_in(result), strict=False):
            if not isinstance(tensor, _RECORDED) and fake.dim() == tensor.dim():
                open_sizes = {axis: size for axis, size in enumerate(fake.shape) if isinstance(size, torch.SymInt)}
                self.tape.tie(tensor, dict.fromkeys(open_sizes))
                shape = self.tape.shape(tensor)
                known = {axis: self.sizes.setdefault(_expr(size), shape[axis]) for axis, size in open_sizes.items()}
                self.tape.tie(tensor, known)
            elif self.reader.parted and type(tensor) is Value and fake.dim() == tensor.dim() > 1:
                *axes, last = zip(fake.shape, tensor.shape, strict=True)
                sizes = [self.sizes.get(_expr(size), n) if isinstance(size, torch.SymInt) else n for size, n in axes]
                tensor.node.shape = torch.Size([*sizes, last[1]])

    def _filled(self, tree: Any) -> Any:
        """Returns arguments of a node with what other nodes have made; lists as torch's own functions take them."""
        return mapped(tree, lambda leaf: self.made[leaf] if isinstance(leaf, fx.Node) else leaf)


def _of_numbers(function: Any) -> bool:
    """Returns whether a function of numbers has no other effect than its result."""
    module = str(getattr(function, "__module__", ""))
    name = str(getattr(function, "__name__", function))
    return module in ("_operator", "builtins", "math") or name.startswith(_WITHOUT_EFFECT)


def _always_true(node: fx.Node) -> bool:
    """Returns whether a node asks if a size is at least zero, as torch does of each size that depends on numbers."""
    size: Any = node.args[0].meta.get("example_value") if node.args and isinstance(node.args[0], fx.Node) else None
    depends = isinstance(size, torch.SymInt) and _expr(size).startswith("u")  # torch's name for such sizes
    return depends and node.target is operator.ge and node.args[1:] == (0,)


def _expr(size: torch.SymInt) -> str:
    """Returns the expression of a size in the symbols of the graph."""
    return str(size.node.expr)


def _attribute(module: Any, path: str) -> Any:
    for name in path.split("."):
        module = getattr(module, name)
    return module


def _is_floating(args: Sequence[Any]) -> bool:
    """Returns whether what a function writes to may be rows."""
    return any(t.is_floating_point() for t in tensors_in(args[:1])) or not args
