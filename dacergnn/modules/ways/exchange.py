"""Runs programs on graphs that are divided over processes: exchanges whatever takes the fewest bytes.

A program exchanges the rows of its sources; or values of these that it computes first, as the projected features of
attention; or parts of its sums over edges.
"""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from dacergnn.errors import ArrayError, DistributedError, ProgramError
from dacergnn.graph import HeteroGraph
from dacergnn.graph.encodings import Encodings
from dacergnn.graph.hetero_graph import Features
from dacergnn.graph.profile import Profile
from dacergnn.modules.compiled import CompiledProgram
from dacergnn.modules.ways.cuts import Cuts
from dacergnn.program import Program
from dacergnn.runtime.stacks import Stacks
from dacergnn.runtime.transformed import is_transformed
from dacergnn.sdfg_passes.destination_ranges import RangeProgram
from dacergnn.sdfg_passes.partial_sums import SumsProgram

Wanted = frozenset[str]
"""The inputs whose gradients are needed."""


class ExchangingGraph(HeteroGraph, ABC):
    """Represents the nodes of one process and their in-edges; programs that run on it take rows of these nodes only.

    Attributes:
        profile: Sizes by which programs are cut; the same in all processes.
        num_own: The nodes of this process.
        rows, sums, edges: The rows that all processes together read of each other, the sums that they have parts of for
            each other, and the edges between them.
        read: The graph of the in-edges: destinations are own nodes; sources are own nodes, then those that are read.
        nodes: The graph of own nodes without edges.
    """

    profile: Profile
    num_own: int
    rows: int
    sums: int
    edges: int
    read: HeteroGraph
    nodes: HeteroGraph

    @property
    @abstractmethod
    def written(self) -> HeteroGraph:
        """Returns the graph of the out-edges: sources are own nodes; destinations are own nodes, then others."""

    @abstractmethod
    def with_read(self, rows: Tensor) -> Tensor:
        """Returns the rows of all sources of ``read``, for those of own nodes; differentiable."""

    @abstractmethod
    def added_up(self, sums: Tensor) -> Tensor:
        """Returns the sums of own nodes, for parts of those of the destinations of ``written``; differentiable."""

    @abstractmethod
    def at_sources(self, values: Tensor) -> Tensor:
        """Returns values of the edges of ``written``, for those of the in-edges; differentiable."""

    def size(self, space: str) -> int:
        return self.num_own if space == "NS" else super().size(space)

    @abstractmethod
    def agree(self, key: str, text: str) -> None:
        """Raises DistributedError unless all processes call this with the same key; ``text`` tells users what it is."""

    def addresses(self, names: Sequence[str]) -> tuple[list[int], Encodings]:
        raise DistributedError("kernels cannot run on a graph whose sources are elsewhere; pass it to layers.")

    def encoding(self, name: str) -> Tensor:
        raise DistributedError(f"{name} has numbers of other processes' nodes; use `DistributedGraph.hetero_graph`.")

    def index(self, space: str, path: str) -> Tensor:
        return self.encoding(f"idx_{space}_{path}")

    def with_features(self, src: Tensor | None = None, dst: Tensor | None = None) -> Features:
        raise DistributedError("sparse features are not exchanged; pass dense ones.")

    def symmetric_weights(self, dtype: torch.dtype = torch.float32) -> Tensor:
        raise self._without_degrees()

    def degree_roots(self, dtype: torch.dtype = torch.float32) -> Tensor:
        raise self._without_degrees()

    def degrees(self, end: str, dtype: torch.dtype = torch.float32) -> Tensor:
        raise self._without_degrees()

    @staticmethod
    def _without_degrees() -> DistributedError:
        return DistributedError(
            "a process does not know the degrees of nodes that belong to others; compute weights on the whole graph."
        )


class Exchange:
    """Runs a program on graphs that are divided over processes."""

    takes_parts = True

    def __init__(self, cuts: Cuts) -> None:
        self._cuts = cuts

    def run(self, graph: HeteroGraph, inputs: list[Tensor], stacks: Stacks | None = None) -> tuple[Tensor, ...] | None:
        return self.on(graph).run(inputs) if isinstance(graph, ExchangingGraph) else None

    def on(self, graph: ExchangingGraph) -> Exchanged:
        """Returns how the program runs on a graph."""
        program = self._cuts.program
        if program not in graph.derived:
            graph.derived[program] = Exchanged(graph, self._cuts)
        return graph.derived[program]


class _Message(NamedTuple):
    """Describes what processes may send to each other.

    Args:
        bytes: What all processes receive in a forward, and in its backward if there is one.
    """

    name: str
    bytes: int
    run: Callable[[dict[str, Tensor]], tuple[Tensor, ...]]


class Exchanged:
    """Runs one program on one divided graph.

    Args:
        cuts: The parts of the program.
    """

    def __init__(self, graph: ExchangingGraph, cuts: Cuts) -> None:
        self._graph = weakref.ref(graph)  # the graph holds this
        self.program, self.cuts = cuts.program, cuts
        self._messages: dict[Wanted, _Message] = {}
        self._last: _Message | None = None

    @property
    def graph(self) -> ExchangingGraph:
        """Returns the divided graph."""
        graph = self._graph()
        assert graph is not None, "whoever runs on a graph holds it"
        return graph

    def run(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Returns the results of the program for own nodes; differentiable.

        Args:
            inputs: The inputs of the program, in its order; of sources those of own nodes.

        Raises:
            ArrayError: An input has not one row for each own node.
            DistributedError: The program has arrays that cannot be exchanged, or another process has failed.
        """
        if is_transformed():
            raise DistributedError("functions of torch.func do not see what other processes do; use torch.autograd.")
        arrays = dict(zip(self.program.inputs, inputs, strict=True))
        for name in self._of_sources:
            if len(arrays[name]) != self.graph.num_own:
                counts = f"has {len(arrays[name])} rows, but this process has {self.graph.num_own} own nodes"
                raise ArrayError(name, counts)
        wanted = frozenset(n for n, a in arrays.items() if a.requires_grad and torch.is_grad_enabled())
        if wanted not in self._messages:
            self._messages[wanted] = self._cheapest(wanted)
        self._last = self._messages[wanted]
        return self._last.run(arrays)

    @cached_property
    def _of_sources(self) -> list[str]:
        """Returns the inputs that have a row for each source."""
        program = self.program
        for name in program.inputs:
            if program.space(name) == "RNS":
                raise DistributedError(f'"{name}" has a row for each relation and source, which is not exchanged.')
        for name in program.outputs:
            if program.space(name) not in ("ND", "E"):
                raise DistributedError(f'"{name}" has rows of {program.space(name)}; return rows of destinations.')
        return [name for name in program.inputs if program.space(name) == "NS"]

    def _cheapest(self, wanted: Wanted) -> _Message:
        """Returns the message with the fewest bytes.

        It follows from the program and from sizes that all processes have in common: if these sent different messages,
        they would wait for each other for ever.

        Raises:
            DistributedError: Another process calls another program, or needs other gradients.
        """
        messages = [self._by_rows(wanted), *self._by_values(wanted), *self._by_sums(wanted)]
        names = ", ".join(sorted(wanted)) or "nothing"
        self.graph.agree(f"{self.program.key} {names}", f"{self.program.title} with gradients of {names}")
        return min(messages, key=lambda message: message.bytes)

    @property
    def summary(self) -> str | None:
        """Returns a text for reports on what the last call exchanged; None before the first one."""
        return None if self._last is None else f"processes exchange {self._last.name}, {self._last.bytes} bytes in all"

    def _bytes(self, rows: int, width: int, *, differentiated: bool) -> int:
        return rows * width * self.program.dtype.itemsize * (2 if differentiated else 1)

    def _of_text(self, text: str, graph: HeteroGraph) -> CompiledProgram:
        """Returns the program of a part for a graph; it keeps to the limit of memory."""
        return self.cuts.of_text(text, graph.index_dtype, limited=True)

    # Rows of sources

    def _by_rows(self, wanted: Wanted) -> _Message:
        widths = {name: self.program.width(name) for name in self._of_sources}
        sizes = [self._bytes(self.graph.rows, width, differentiated=name in wanted) for name, width in widths.items()]
        return _Message("rows of sources", sum(sizes), self._run_rows)

    def _run_rows(self, arrays: dict[str, Tensor]) -> tuple[Tensor, ...]:
        read = {name: self.graph.with_read(arrays[name]) for name in self._of_sources}
        return self.program.run(self.graph.read, [*(arrays | read).values()])

    # Values of sources

    @cached_property
    def _parts(self) -> RangeProgram | None:
        """Returns a program on sources and one on destinations; None if the program cannot be cut."""
        try:
            parts = self.cuts.ranges_alike(self.graph.profile)
        except ProgramError:
            return None
        if parts.nodes is None:
            return parts
        # Own nodes have no edges there, which would tell the node types that a relation joins.
        operators = Program(self._of_text(parts.nodes, self.graph.nodes).sdfg).operators
        reads = [ref for operator in operators for statement in operator.statements for ref in statement.reads]
        return None if any(ref.path in ("srctype", "dsttype") for ref in reads) else parts

    def _by_values(self, wanted: Wanted) -> list[_Message]:
        if self._parts is None:
            return []
        after = self._of_text(self._parts.text, self.graph.read)
        size = 0
        for name, array in self._parts.inputs.items():
            if array.kind == "sources":
                of = [array.source] if array.source in self.program.inputs else self._parts.nodes_inputs
                differentiated = not wanted.isdisjoint(of)
                size += self._bytes(self.graph.rows, after.width(name), differentiated=differentiated)
        return [_Message("values of sources", size, self._run_values)]

    def _run_values(self, arrays: dict[str, Tensor]) -> tuple[Tensor, ...]:
        parts, graph = self._parts, self.graph
        assert parts is not None, "the program has been cut"
        if parts.nodes is not None:
            before = self._of_text(parts.nodes, graph.nodes)
            made = before.run(graph.nodes, [arrays[name] for name in before.inputs])
            arrays = arrays | dict(zip(parts.nodes_outputs, made, strict=True))
        after = self._of_text(parts.text, graph.read)
        rows = {
            array.source: graph.with_read(arrays[array.source])
            for array in parts.inputs.values()
            if array.kind == "sources"
        }
        inputs = [parts.inputs[name] for name in after.inputs]
        return after.run(graph.read, [(rows if a.kind == "sources" else arrays)[a.source] for a in inputs])

    # Partial sums

    @cached_property
    def _sums(self) -> SumsProgram | None:
        """Returns a program of partial sums and one of what follows; None if there are no such sums."""
        try:
            return self.cuts.sums()
        except ProgramError:
            return None

    def _by_sums(self, wanted: Wanted) -> list[_Message]:
        if self._sums is None:
            return []
        program = self._of_text(self._sums.sums, self.graph.read)
        differentiated = not wanted.isdisjoint(program.inputs)
        width = sum(program.width(name) for name in self._sums.names)
        size = self._bytes(self.graph.sums, width, differentiated=differentiated)
        for name in program.inputs:
            if program.space(name) == "E":
                size += self._bytes(self.graph.edges, program.width(name), differentiated=name in wanted)
        return [_Message("partial sums", size, self._run_sums)]

    def _run_sums(self, arrays: dict[str, Tensor]) -> tuple[Tensor, ...]:
        parts, graph = self._sums, self.graph
        assert parts is not None, "the program has been cut"
        written = graph.written
        before = self._of_text(parts.sums, written)
        inputs = [graph.at_sources(arrays[n]) if before.space(n) == "E" else arrays[n] for n in before.inputs]
        made = [graph.added_up(sums) for sums in before.run(written, inputs)]
        arrays = arrays | dict(zip(parts.names, made, strict=True))
        if parts.rest is not None:
            after = self._of_text(parts.rest, graph.nodes)
            results = after.run(graph.nodes, [arrays[name] for name in after.inputs])
            arrays |= dict(zip(parts.rest_names, results, strict=True))
        return tuple(arrays[name] for name in self.program.outputs)
