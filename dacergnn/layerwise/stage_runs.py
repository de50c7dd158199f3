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
from dacergnn.layerwise.arrays import Results, Target, take
from dacergnn.layerwise.locality import Trial
from dacergnn.layerwise.ranges import ByDestination, numbers_among
from dacergnn.layerwise.reading import Reading
from dacergnn.layerwise.stages import Count, Hood, Input, Own, Plan, Read, Stage
from dacergnn.modules.capture.backend import GraphCore
from dacergnn.modules.capture.captured_forward import CapturedForward
from dacergnn.modules.capture.uses import needed
from dacergnn.modules.graphs import GraphCache

_LEAST = 2
"""Rows that a range needs in all inputs to run compiled: torch captures smaller sizes as constants."""


class StageRuns:
    """Runs the stages of one inference.

    Args:
        batch: The number of destinations in a range.
        device: The device that stages run on.
    """

    def __init__(self, reading: Reading, plan: Plan, batch: int, device: torch.device) -> None:
        self._reading, self._plan, self._batch, self._device = reading, plan, batch, device
        self._arguments = {node: argument.array for node, argument in reading.captured.arguments.items()}
        groups = reading.counts.groups
        self._sizes = {groups[a.group]: a.array.shape[a.axis] for a in reversed(reading.captured.arguments.values())
                       if a.group in groups}  # fmt: skip
        """The numbers of nodes and edges, by their symbols."""
        self._values: dict[fx.Node, Any] = self._before()
        self._found = {end: ByDestination(self._values[end]) for stage in plan.stages for end in stage.ends}

    def results(
        self, config: Config, targets: Mapping[Any, Target], scratch: Path | None, home: torch.device
    ) -> dict[Any, Tensor]:
        """Returns the results by their keys.

        Args:
            targets: What takes them; others are in memory.
            scratch: A folder for what lies between stages; None for memory.
            home: The device of what lies in memory.
        """
        results = self._reading.captured.results
        written: dict[fx.Node, Results] = {}
        try:
            for key, node in results.items():
                count = self._reading.count(node)
                written[node] = Results(self._sizes.get(count, 0), targets.get(key), scratch, home)
                if count is None:  # of a type without nodes
                    written[node].write(0, self._values[node])
            for place, stage in enumerate(self._plan.stages, 1):
                self._compute(stage, config, written, scratch, home)
                self._forget([node for s in self._plan.stages[:place] for node in s.outputs], self._plan.stages[place:])
            return {key: written[node].finished() for key, node in results.items()}
        finally:
            for result in written.values():
                result.drop()

    def _forget(self, nodes: list[fx.Node], later: list[Stage]) -> None:
        """Drops results that no later stage takes."""
        used = {given.array for stage in later for given in stage.inputs if isinstance(given, Own | Read)}
        for node in nodes:
            if node not in used:
                self._values.pop(node, None)

    def _compute(
        self, stage: Stage, config: Config, written: Mapping[fx.Node, Results], scratch: Path | None, home: torch.device
    ) -> None:
        """Computes the outputs of a stage for all nodes."""
        size = self._sizes[stage.kind]
        outputs = {node: written.get(node) or Results(size, None, scratch, home) for node in stage.outputs}
        run = self._runner(stage, config)
        for start in range(0, size, self._batch):
            rows = run(*self._inputs(stage, start, min(start + self._batch, size)))
            for call in stage.calls if start == 0 else ():  # after compiled layers have made choices for the range
                self._check_part(call, stage.kind)
            for result, found in zip(outputs.values(), rows, strict=True):
                result.write(start, found)
        self._values.update({node: result.rows for node, result in outputs.items()})

    def _check_part(self, node: fx.Node, kind: Any) -> None:
        """Tests a part on small graphs, for the results of one node type."""
        call = self._reading.calls[node]
        places = [user.args[1] for user in node.users if self._reading.count(user) == kind]

        def sample(given: fx.Node, count: int) -> Tensor:
            value, array = given.meta["example_value"], self._values.get(given)
            shape = (count, *value.shape[1:])
            if value.is_floating_point():
                made = torch.rand(shape, generator=torch.Generator().manual_seed(0))
            elif array is None or not len(array):
                made = torch.zeros(shape)
            else:  # integers may be types, of which not all are known
                made = take(array, torch.arange(count) * 7919 % len(array), self._device)
            return made.to(self._device, value.dtype)

        def run(given: Mapping[fx.Node, Tensor]) -> Tensor:
            args, kwargs = map_arg((node.args, node.kwargs), lambda n: given[n] if n in given else self._values[n])
            results: Any = node.target
            found = results(*args, **kwargs)
            return torch.cat([found[place].reshape(len(found[place]), -1) for place in places], 1)

        Trial(call, kind, sample, run).check()

    def _runner(self, stage: Stage, config: Config) -> Callable[..., Any]:
        """Returns a function that runs a stage for a range: compiled, if rows move along edges in its own Python."""
        values = {name: self._values[node] for name, node in stage.constants.items()}
        module = fx.GraphModule(values, stage.graph, self._reading.who)
        if stage.calls or not any(isinstance(given, Read) for given in stage.inputs):
            return module
        core = GraphCore(module, config, GraphCache(config.check_graph), "warn")
        forward = CapturedForward(core, type(module).forward)

        def run(*args: Any) -> Any:
            sizes = [len(a) if isinstance(a, Tensor) else a for a in args]
            return forward.call(args, {}) if min(sizes) >= _LEAST else module(*args)

        return run

    def _inputs(self, stage: Stage, start: int, stop: int) -> list[Any]:
        positions = {end: self._found[end].positions(start, stop) for end in stage.ends}
        own = torch.arange(start, stop, device=self._device)
        read: dict[Hood, Tensor] = {}

        def rows_of(hood: Hood) -> Tensor:
            """Returns the nodes whose rows are in memory."""
            if hood not in read:
                sources = [self._values[source][positions[end]].long() for source, end in hood.reads]
                read[hood] = torch.cat([*sources, own[: len(own) * hood.own]]).unique()
            return read[hood]

        def made(given: Input) -> Any:
            if isinstance(given, Count):
                return stop - start if given.end is None else len(positions[given.end])
            if isinstance(given, Own):
                which = own if given.end is None else positions[given.end]
                return take(self._values[given.array], which, self._device)
            if isinstance(given, Read):
                return take(self._values[given.array], rows_of(given.hood), self._device)
            nodes = own if given.ends is None else self._values[given.ends[0]][positions[given.ends[1]]].long()
            return nodes - start if given.hood is None else numbers_among(rows_of(given.hood), nodes)

        return [made(given) for given in stage.inputs]

    def _before(self) -> dict[fx.Node, Any]:
        """Returns the arguments, and what is computed before all ranges, by their nodes."""
        reading, values = self._reading, dict[fx.Node, Any]()
        for node in needed(
            reading.graph, self._plan.before, lambda n: () if reading.is_known_size(n) else n.all_input_nodes
        ):
            values[node] = self._value(node, values)
        kept = {node: value for node, value in values.items() if node in self._plan.before}
        for end in kept.keys() & reading.kinds.keys():
            self._check(kept[end], self._sizes[reading.kinds[end]])
        return self._arguments | kept

    def _check(self, numbers: Tensor, nodes: int) -> None:
        if numbers.numel() and not 0 <= int(numbers.min()) <= int(numbers.max()) < nodes:
            lies = f"lie between {int(numbers.min())} and {int(numbers.max())}"
            raise GraphError(f"edges that the model computes {lies}, but there are {nodes} nodes.")

    def _value(self, node: fx.Node, values: Mapping[fx.Node, Any]) -> Any:
        reading = self._reading
        if reading.is_known_size(node):
            size = reading.counts.expression(node.meta["example_value"])
            return size if isinstance(size, int) else int(size.xreplace(self._sizes))
        if node in reading.captured.given:
            return reading.captured.given[node]
        if node.op == "placeholder":
            array = self._arguments[node]
            whole = array if isinstance(array, Tensor) else take(array, torch.arange(len(array)), self._device)
            return whole.to(self._device)
        if node.op == "get_attr":
            return getattr(reading.captured.module, str(node.target))
        target: Any = node.target
        args, kwargs = map_arg((node.args, node.kwargs), lambda n: values[n])
        return getattr(args[0], target)(*args[1:], **kwargs) if node.op == "call_method" else target(*args, **kwargs)
