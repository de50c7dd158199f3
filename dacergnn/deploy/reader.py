"""Reads the graph of an exported program, and writes it as the steps of a network."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import sympy
import torch
from torch import Tensor, fx
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils import _pytree as pytree

from dacergnn.config import Config
from dacergnn.deploy.builder import NetworkBuilder
from dacergnn.deploy.network import Array, Constant, Input, Network
from dacergnn.deploy.operations import OPERATIONS
from dacergnn.deploy.places import refusal
from dacergnn.deploy.sizes import size_of
from dacergnn.deploy.types import check_dtype
from dacergnn.errors import UnsupportedCallError
from dacergnn.frontends.symbolic.edges import SIDES, EndIndex, PairedEdges, end_index
from dacergnn.frontends.symbolic.expr import Untranslatable
from dacergnn.frontends.symbolic.value import Value
from dacergnn.modules.capture.ends import find_ends
from dacergnn.modules.capture.integers import Integers
from dacergnn.modules.capture.uses import last_uses, needed


class Reader(NetworkBuilder):
    """Reads an exported program from its inputs to its outputs.

    Args:
        parameters: The names of the parameters of the model's call.
        config: How programs are compiled; None for the targets and plans that they were exported with.
    """

    def __init__(
        self, program: torch.export.ExportedProgram, parameters: Sequence[str], config: Config | None = None
    ) -> None:
        super().__init__(config)
        self.program, self.parameters = program, parameters

    def read(self) -> Network:
        """Returns the network.

        Raises:
            UnsupportedCallError: An operation has no form in a C library; the error names it and its place.
        """
        graph = self.program.graph
        for node in graph.nodes:
            node.meta["example_value"] = node.meta.get("val")  # as in graphs that Dynamo makes
        self.integers = Integers(graph)
        self._find_edges()
        last = last_uses(graph)
        labels = iter(_labels(self.program, self.parameters))
        specs = {spec.arg.name: spec for spec in self.program.graph_signature.input_specs}
        outputs: list[tuple[str, Array]] = []
        for node in graph.nodes:
            if node.op == "placeholder":
                spec = specs[node.name]
                if spec.kind is InputKind.USER_INPUT:
                    self.known[node] = self._input(node, next(labels))
                else:
                    self.known[node] = self.constant(self._tensor(spec), spec.target or node.name)
        for node in needed(graph, self.ends, lambda node: node.all_input_nodes):
            self._read(node)
        for node in graph.nodes:
            if node.op == "output":
                outputs = self._outputs(node)
            else:
                self._read(node)
            for dead in last.get(node, ()):
                if type(self.known.get(dead)) is Value:
                    del self.known[dead]
        self._check_ranges()
        return Network(self.inputs, outputs, self.constants, self.steps)

    def _find_edges(self) -> None:
        """Finds the nodes that hold ends of edges, before anything is read along these."""
        graph, recorder, integers = self.program.graph, self.recorder, self.integers
        for ends in find_ends(graph, integers.same):
            counts = [{*map(recorder.number, sizes)} for sizes in ends.nodes]
            if any(len(sizes) != 1 for sizes in counts):
                continue  # the same edges among other nodes
            sides = {"src": ends.src, "dst": ends.dst, "etype": ends.types}
            rows = {node: (side, recorder.integers(node.meta["val"].shape[0])) for side, node in sides.items() if node}
            edges = PairedEdges(recorder, rows[ends.src][1], rows[ends.dst][1])
            for side, sizes in zip(SIDES, counts, strict=True):
                edges.set_rows(side, *sizes)
            for node in graph.nodes:
                if integers.same(node) in rows:
                    self.ends[node] = end_index(edges, *rows[integers.same(node)])

    def _read(self, node: fx.Node) -> None:
        if node in self.known and node not in self.ends:
            return
        made = self.known[node] if node in self.known else self._made(node)
        if node in self.ends and isinstance(made, Array):
            self.recorder.set_integers(self.ends[node].plain, made)
        self.known[node] = made

    def _made(self, node: fx.Node) -> Any:
        """Makes the steps of a node; returns what is known of it then."""
        value: Any = node.meta.get("val")
        if isinstance(value, int | float | bool | torch.SymInt) and not isinstance(value, torch.SymBool):
            return value
        first = self.integers.same(node)
        if isinstance(known := self.known.get(first), Array):
            if first in self.ends:
                self.ends[node] = self.ends[first]
            for size, other in zip(node.meta["val"].shape, known.shape, strict=True):
                self.same_size(size_of(size), other)
            return known
        if node.target is operator.getitem:
            source, place = node.args
            return self.known[source][place]  # type: ignore[index]
        if node.op != "call_function" or not hasattr(node.target, "_schema"):
            return None  # conditions between sizes, which checks read
        if self._fold(node):
            return self.known[node]
        recorded = self.is_recorded(node)
        made = self._recorded(node) if recorded else None
        if isinstance(made, EndIndex):
            self.ends[node] = made  # an array holds these integers, too, where it can
        elif made is not None:
            return made
        target: Any = node.target
        handler = OPERATIONS.get(target._schema.name)
        if handler is not None:
            with suppress(Untranslatable):
                return handler(self, node)
        made = made if recorded else self._recorded(node)
        if made is None:
            raise refusal(node)
        return made

    def _recorded(self, node: fx.Node) -> Any:
        """Returns what `record` returns, and None for operations that it refuses."""
        with suppress(Untranslatable, UnsupportedCallError, IndexError, TypeError):
            return self.record(node)
        return None

    def _fold(self, node: fx.Node) -> bool:
        """Computes an operation whose arguments are all the same in all calls; tells whether they are."""
        if torch.Tag.nondeterministic_seeded in node.target.tags:  # type: ignore[union-attr]
            return False  # random numbers, which differ from call to call
        leaves = pytree.tree_leaves((node.args, node.kwargs))
        nodes = [leaf for leaf in leaves if isinstance(leaf, fx.Node)]
        if not all(isinstance(self.known.get(n), Constant | int | float) for n in nodes):
            return False
        if any(isinstance(leaf, torch.SymInt) for leaf in leaves) or (not nodes and not _makes(node)):
            return False
        if any(isinstance(size, torch.SymInt) for size in _sizes(node)):
            return False

        def plain(n: fx.Node) -> Any:
            known = self.known[n]
            return known.value if isinstance(known, Constant) else known

        args, kwargs = pytree.tree_map_only(fx.Node, plain, (node.args, node.kwargs))
        kwargs = {key: value for key, value in kwargs.items() if key != "pin_memory"}
        with torch.no_grad():
            result = node.target(*args, **kwargs)  # type: ignore[operator]
        if isinstance(result, Tensor):
            self.known[node] = self.constant(result, node.name)
        elif isinstance(result, tuple | list):
            self.known[node] = [self.constant(t, f"{node.name}_{i}") for i, t in enumerate(result)]
        else:
            self.known[node] = result
        return True

    def _tensor(self, spec: Any) -> Tensor:
        known: Any = self.program.state_dict.get(spec.target)
        return self.program.constants[spec.target] if known is None else known  # pyright: ignore[reportReturnType]

    def _input(self, node: fx.Node, label: str) -> Any:
        value = node.meta.get("val")
        if value is None or isinstance(value, int | float | bool | str):
            return value
        array = self.array(node)
        check_dtype(array.dtype, label)
        made = Input(array.name, array.dtype, array.shape, label=label)
        self.inputs.append(made)
        return made

    def _outputs(self, node: fx.Node) -> list[tuple[str, Array]]:
        specs = self.program.graph_signature.output_specs
        written = [spec for spec in specs if spec.kind is not OutputKind.USER_OUTPUT]
        if written:
            raise UnsupportedCallError(
                f"the model writes to its {written[0].target!r} in a call; a C library keeps nothing between calls."
            )
        values: Any = node.args[0]
        self.recorder.compute([v for n in values if type(v := self.known.get(n)) is Value])
        names = _output_labels(self.program, len(values))
        outputs: list[tuple[str, Array]] = []
        for name, value in zip(names, values, strict=True):
            known = self.get(value)
            if not isinstance(known, Array):
                raise UnsupportedCallError(f"the result {name} of the model is {known!r}; return tensors.")
            outputs.append((name, known))
        return outputs

    def _check_ranges(self) -> None:
        """Adds the conditions on sizes that the model was exported under."""
        own = {size for array in self.inputs for size in array.shape for size in size.free_symbols}
        others, self.steps = self.steps, []
        for symbol, bounds in self.program.range_constraints.items():
            low, high = bounds.lower, bounds.upper
            if symbol in own and isinstance(low, sympy.Integer) and int(low) > 2:  # torch takes 2 for every open size
                self.check_sizes(sympy.Ge(symbol, low), f"a size of at least {low}")
            if symbol in own and isinstance(high, sympy.Integer):
                self.check_sizes(sympy.Le(symbol, high), f"a size of at most {high}")
        self.steps += others


def _makes(node: fx.Node) -> bool:
    """Tells whether an operation without operands makes a tensor of known numbers."""
    return isinstance(node.meta.get("val"), Tensor)


def _sizes(node: fx.Node) -> Sequence[Any]:
    value = node.meta.get("val")
    return value.shape if isinstance(value, Tensor) else ()


def _labels(program: torch.export.ExportedProgram, parameters: Sequence[str]) -> list[str]:
    """Returns names of the user's arguments, such as x_dict.paper and edge_index_dict.author__writes__paper."""
    spec = program.call_spec.in_spec
    assert spec is not None
    paths = pytree.tree_flatten_with_path(pytree.tree_unflatten([0] * spec.num_leaves, spec))[0]
    return [_label(path, parameters) for path, _ in paths]


def _label(path: Any, names: Sequence[str]) -> str:
    (kind, place, *rest) = path
    base = names[int(place.idx)] if kind.idx == 0 else str(place.key)
    return ".".join([base, *map(_key, rest)])


def _key(key: Any) -> str:
    own: Any = next(getattr(key, name) for name in ("key", "idx", "name") if hasattr(key, name))
    return "__".join(map(str, own)) if isinstance(own, tuple | list) else str(own)


def _output_labels(program: torch.export.ExportedProgram, count: int) -> list[str]:
    spec = program.call_spec.out_spec
    if spec is None:
        return [f"out{i}" for i in range(count)]
    paths = pytree.tree_flatten_with_path(pytree.tree_unflatten([0] * spec.num_leaves, spec))[0]
    return [".".join(["out", *[_key(key) for key in path]]) for path, _ in paths]
