"""Runs the stages of a captured model: for each, one range of destinations after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx
from torch.fx.node import map_arg

from dacergnn.config import Config
from dacergnn.errors import GraphError
from dacergnn.layerwise.arrays import Array, Results, Target, take
from dacergnn.layerwise.capture import GRAPH
from dacergnn.layerwise.ranges import ByDestination, numbers_among
from dacergnn.layerwise.reading import Reading
from dacergnn.layerwise.stages import Count, Input, Own, Plan, Read, Stage
from dacergnn.modules.capture.backend import GraphCore
from dacergnn.modules.capture.captured_forward import CapturedForward
from dacergnn.modules.graphs import GraphCache

_LEAST = 2
"""Rows that a range needs in all inputs to run compiled: torch captures smaller sizes as constants."""


class StageRuns:
    """Runs the stages of one inference.

    Args:
        arguments: The arguments by name; features, and what has rows of nodes, are read range by range.
        batch: The number of destinations in a range.
        device: The device that stages run on.
    """

    def __init__(
        self, reading: Reading, plan: Plan, arguments: Mapping[str, Array], nodes: int, batch: int, device: torch.device
    ) -> None:
        self._reading, self._plan, self._arguments = reading, plan, arguments
        self._nodes, self._batch, self._device = nodes, batch, device
        self._values: dict[fx.Node, Any] = self._before()
        self._found = {end: ByDestination(self._values[end]) for stage in plan.stages for end in stage.ends}

    def results(self, config: Config, target: Target | None, scratch: Path | None, home: torch.device) -> Tensor:
        """Returns the results of the last stage.

        Args:
            target: What takes them; None for memory.
            scratch: A folder for what lies between stages; None for memory.
            home: The device of what lies in memory.
        """
        *stages, last = self._plan.stages
        for place, stage in enumerate(stages, 1):
            self._values.update(self._computed(stage, config, {}, scratch, home))
            self._forget([node for s in stages[:place] for node in s.outputs], self._plan.stages[place:])
        result = self._reading.captured.result
        targets = {} if target is None else {result: target}
        return self._computed(last, config, targets, scratch, home)[result]

    def _forget(self, nodes: list[fx.Node], later: list[Stage]) -> None:
        """Drops results that no later stage takes."""
        used = {given.array for stage in later for given in stage.inputs if isinstance(given, Own | Read)}
        for node in nodes:
            if node not in used:
                self._values.pop(node, None)

    def _computed(
        self, stage: Stage, config: Config, targets: Mapping[fx.Node, Target], scratch: Path | None, home: torch.device
    ) -> dict[fx.Node, Tensor]:
        """Returns the outputs of a stage for all nodes."""
        written = {node: Results(self._nodes, targets.get(node), scratch, home) for node in stage.outputs}
        try:
            run = self._runner(stage, config)
            for start in range(0, self._nodes, self._batch):
                inputs = self._inputs(stage, start, min(start + self._batch, self._nodes))
                for result, rows in zip(written.values(), run(*inputs), strict=True):
                    result.write(start, rows)
            return {node: result.finished() for node, result in written.items()}
        finally:
            for result in written.values():
                result.drop()

    def _runner(self, stage: Stage, config: Config) -> Callable[..., Any]:
        """Returns a function that runs a stage for a range: compiled, if rows move along edges."""
        values = {name: self._values[node] for name, node in stage.constants.items()}
        module = fx.GraphModule(values, stage.graph, self._reading.who)
        if not any(isinstance(given, Read) for given in stage.inputs):
            return module
        core = GraphCore(module, config, GraphCache(config.check_graph), "warn")
        forward = CapturedForward(core, type(module).forward)

        def run(*args: Any) -> Any:
            sizes = [len(a) if isinstance(a, Tensor) else a for a in args]
            return forward.call(args, {}) if min(sizes) >= _LEAST else module(*args)

        return run

    def _inputs(self, stage: Stage, start: int, stop: int) -> list[Any]:
        positions = {end: self._found[end].positions(start, stop) for end in stage.ends}
        own = torch.arange(start, stop)
        read: dict[tuple[fx.Node, fx.Node], Tensor] = {}

        def rows_read(source: fx.Node, end: fx.Node) -> Tensor:
            """Returns the nodes that the edges of a range read, each once."""
            if (source, end) not in read:
                read[source, end] = self._values[source][positions[end]].long().unique()
            return read[source, end]

        def made(given: Input) -> Any:
            if isinstance(given, Count):
                return stop - start if given.end is None else len(positions[given.end])
            if isinstance(given, Own):
                which = own if given.end is None else positions[given.end]
                return take(self._values[given.array], which, self._device)
            if isinstance(given, Read):
                return take(self._values[given.array], rows_read(given.source, given.end), self._device)
            nodes = self._values[given.source][positions[given.end]].long()
            if given.source is given.end:
                return nodes - start
            return numbers_among(rows_read(given.source, given.end), nodes)

        return [made(given) for given in stage.inputs]

    def _before(self) -> dict[fx.Node, Any]:
        """Returns the arguments, and what is computed before all ranges, by their nodes."""
        reading, values = self._reading, dict[fx.Node, Any]()
        needed, open_nodes = {*self._plan.before}, [*self._plan.before]
        while open_nodes:
            node = open_nodes.pop()
            new = [] if reading.is_known_size(node) else [n for n in node.all_input_nodes if n not in needed]
            needed.update(new)
            open_nodes += new
        edges = self._arguments[GRAPH].shape[1]
        for node in reading.graph.nodes:
            if node in needed:
                values[node] = self._value(node, values, edges)
        arguments = {node: self._arguments[name] for node, name in reading.captured.arguments.items()}
        kept = {node: value for node, value in values.items() if node in self._plan.before}
        for end in kept.keys() & self._ends():
            self._check(kept[end])
        return arguments | kept

    def _ends(self) -> set[fx.Node]:
        sources = {i.source for stage in self._plan.stages for i in stage.inputs if not isinstance(i, Count | Own)}
        return sources.union(*(stage.ends for stage in self._plan.stages))

    def _check(self, numbers: Tensor) -> None:
        if numbers.numel() and not 0 <= int(numbers.min()) <= int(numbers.max()) < self._nodes:
            lies = f"lie between {int(numbers.min())} and {int(numbers.max())}"
            raise GraphError(f"edges that the model computes {lies}, but there are {self._nodes} nodes.")

    def _value(self, node: fx.Node, values: Mapping[fx.Node, Any], edges: int) -> Any:
        reading = self._reading
        if reading.is_known_size(node):
            counts = reading.counts
            size = counts.expression(node.meta["example_value"])
            return (
                size if isinstance(size, int) else int(size.xreplace({counts.nodes: self._nodes, counts.edges: edges}))
            )
        if node in reading.captured.given:
            return reading.captured.given[node]
        if node.op == "placeholder":
            array = self._arguments[reading.captured.arguments[node]]
            whole = array if isinstance(array, Tensor) else take(array, torch.arange(len(array)), self._device)
            return whole.to(self._device)
        if node.op == "get_attr":
            return getattr(reading.captured.module, str(node.target))
        target: Any = node.target
        args, kwargs = map_arg((node.args, node.kwargs), lambda n: values[n])
        return getattr(args[0], target)(*args[1:], **kwargs) if node.op == "call_method" else target(*args, **kwargs)
