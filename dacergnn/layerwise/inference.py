"""Computes the results of a model for all nodes, layer after layer, without the memory of a full forward."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, overload

import torch
from torch import Tensor

from dacergnn.config import Config
from dacergnn.errors import ArrayError, UnsupportedCallError
from dacergnn.layerwise.arguments import by_type, check_arrays, check_batch, check_features, check_types
from dacergnn.layerwise.arrays import Array, Results, Target, take
from dacergnn.layerwise.calls import ONLY, Given, call, checked
from dacergnn.layerwise.capture import FEATURES, GRAPH, Uncaptured, captured
from dacergnn.layerwise.locality import Trial
from dacergnn.layerwise.ranges import Key, Range, SortedEdges
from dacergnn.layerwise.reading import Reading
from dacergnn.layerwise.stage_runs import StageRuns
from dacergnn.layerwise.stages import plan_of
from dacergnn.layerwise.steps import Stage, Step, device_of, in_a_row, modules_of, stages_of, steps_of
from dacergnn.modules.layer import CompiledLayer, core_of


@overload
def inference(
    model: object, graph: Tensor, x: Array, *, batch: int = ..., out: Target | None = ..., **arrays: Array
) -> Tensor: ...
@overload
def inference(
    model: object,
    graph: Mapping[Key, Tensor],
    x: Mapping[str, Array],
    *,
    batch: int = ...,
    out: Mapping[str, Target] | None = ...,
    **arrays: Mapping[Key, Array],
) -> dict[str, Tensor]: ...
def inference(
    model: object, graph: Any, x: Any, *, batch: int = 4096, out: Any = None, **arrays: Any
) -> Tensor | dict[str, Tensor]:
    """Returns the results of a trained model for all nodes, computed stage by stage and range by range.

    torch captures the forward of the model. A value of nodes that edges read from their sources is computed for all
    nodes first, in a stage of its own. A stage runs for ``batch`` destinations at a time, on their in-edges and the
    rows that these read, and its programs are compiled once. Hence a call takes the memory of one range, and each
    value is computed once. Results equal those of a full forward up to rounding. A model that depends on all rows at
    once, as a softmax over nodes does, is refused.

    Args:
        model: A model that is called as ``model(x, graph, **arrays)``; or a list, `torch.nn.Sequential` or
            `ModuleList` of graph layers, called in this way, and functions of rows.
        graph: [2, E] integers, sources and destinations; or a dictionary of these by (source type, relation,
            destination type), with which layers are called as ``layer(x_dict, edges_dict)``.
        x: [N, ...] features, or a dictionary of these by node type: tensors, or NumPy arrays, which may be mapped
            from files (`numpy.load` with ``mmap_mode="r"``). Rows are read when a range needs them.
        batch: The number of destinations in a range.
        out: An array, or the path of a ``.npy`` file that is written, for the results, [N, ...]; by node type if ``x``
            is. With a path, results between stages are in temporary files beside it.
        arrays: Further arguments of the model by name, with a row for each edge, such as ``edge_type`` or
            ``edge_weight``, or for each node, such as positions; dictionaries by relation, with rows for edges, if
            ``graph`` is one. Where there are as many nodes as edges, those whose names begin with "edge" are of edges.

    Returns:
        The results, [N, ...] or by node type, on the device of ``x``; with ``out``, they share its memory.

    Raises:
        ArrayError: An argument has the wrong type, shape, dtype or number of rows.
        GraphError: A node is out of range.
        UnsupportedLayerError: A part is in training mode, or returns no rows of nodes.
        UnsupportedCallError: A part is not computed row by row.
    """
    check_batch(batch)
    typed = isinstance(graph, Mapping)
    features: dict[str, Array] = by_type("x", x, typed, "")
    edges: dict[Key, Tensor] = by_type("graph", graph, typed, ONLY)
    targets: dict[str, Target] = {} if out is None else by_type("out", out, typed, "")
    others: dict[str, dict[Key, Array]] = {name: by_type(name, a, typed, ONLY) for name, a in arrays.items()}
    steps = steps_of(model)
    check_features(features, targets)
    check_types(edges, features, "x has")
    sorted_edges = SortedEdges(edges, {kind: len(array) for kind, array in features.items()})
    with torch.no_grad():
        if typed:
            check_arrays(others, sorted_edges.edges, {}, steps)
            return _chain(model, sorted_edges, others, batch, features, targets)
        check_arrays(others, sorted_edges.edges, {ONLY: len(features[""])}, steps)
        given = {name: array[ONLY] for name, array in others.items()}
        try:
            return _captured(model, steps, sorted_edges.edges[ONLY], features[""], given, batch, targets.get(""))
        except Uncaptured as reason:
            check_arrays(others, sorted_edges.edges, {}, steps)
            try:
                return _chain(model, sorted_edges, others, batch, features, targets)[""]
            except UnsupportedCallError as problem:
                raise UnsupportedCallError(f"{problem} torch does not capture the model whole: {reason}") from problem


def _chain(
    model: object,
    edges: SortedEdges,
    arrays: dict[str, dict[Key, Array]],
    batch: int,
    features: dict[str, Array],
    targets: dict[str, Target],
) -> dict[str, Tensor]:
    """Returns the results of a chain of layers, each of which is called for one range after the other."""
    return _Run(edges, arrays, batch, device_of(model)).all(stages_of(model), features, targets)


def _captured(
    model: object,
    steps: list[Step],
    edges: Tensor,
    x: Array,
    others: dict[str, Array],
    batch: int,
    target: Target | None,
) -> Tensor:
    """Returns the results of a model that torch captures whole.

    Raises:
        Uncaptured: torch does not.
    """
    home = _home(x)
    device = device_of(model) or home
    who = ", ".join(step.name for step in steps)
    forward = in_a_row(steps)
    arguments: dict[str, Array] = {FEATURES: x, GRAPH: edges, **others}
    path = Path(target).parent if isinstance(target, str | os.PathLike) else None
    if min(len(x), edges.size(1)) < 2:  # torch captures such sizes as constants
        return _whole(forward, arguments, device, Results(len(x), target, path, home), who)
    of_edges = {n for n, a in others.items() if len(a) != len(x) or (len(x) == edges.size(1) and n.startswith("edge"))}
    of_nodes = {FEATURES: True, **{name: name not in of_edges for name in others}}
    parts = modules_of(model)
    with torch.inference_mode(False), torch.no_grad():  # in that mode torch does not tell elementary operations
        reading = Reading(captured(forward, parts, arguments, device, who), of_nodes, len(x), who)
        plan = plan_of(reading)
    runs = StageRuns(reading, plan, arguments, len(x), batch, device)
    config = next((core_of(part).config for part in parts if isinstance(part, CompiledLayer)), Config())
    return runs.results(config, target, path, home)


def _whole(
    forward: Callable[..., Any], arguments: dict[str, Array], device: torch.device, written: Results, who: str
) -> Tensor:
    """Returns the results of a graph that has not two nodes, or not two edges, from a single call."""
    x, graph, *others = (
        (a if isinstance(a, Tensor) else take(a, torch.arange(len(a)), device)).to(device) for a in arguments.values()
    )
    names = [*arguments][2:]
    rows = checked(forward(x, graph, **dict(zip(names, others, strict=True))), len(x), who)
    try:
        written.write(0, rows)
        return written.finished()
    finally:
        written.drop()


class _Run:
    """Runs the layers of a chain, and holds what they have in common."""

    def __init__(
        self, edges: SortedEdges, arrays: dict[str, dict[Key, Array]], batch: int, device: torch.device | None
    ) -> None:
        self._edges, self._arrays, self._batch, self._device = edges, arrays, batch, device

    def all(self, stages: list[Stage], x: dict[str, Array], targets: dict[str, Target]) -> dict[str, Tensor]:
        """Returns the results of the last stage by node type."""
        paths = [Path(target) for target in targets.values() if isinstance(target, str | os.PathLike)]
        scratch = paths[0].parent if paths else None
        for stage in stages[:-1]:
            x = dict(self._stage(stage, x, {}, scratch))
        return self._stage(stages[-1], x, targets, scratch)

    def _stage(
        self, stage: Stage, x: dict[str, Array], targets: dict[str, Target], scratch: Path | None
    ) -> dict[str, Tensor]:
        """Returns the results of one stage, for the node types that have any."""
        if stage.layer is not None:
            check_types(self._edges.edges, x, f"{stage.name} gets")
        written = {kind: Results(len(x[kind]), targets.get(kind), scratch, _home(x[kind])) for kind in x}
        try:
            kinds = [kind for kind in x if self._ranges(stage, x, kind, written[kind])]
            for kind in targets:
                if kind not in kinds:
                    raise ArrayError("out", f"has a target for {kind!r}, a type that the model gives no results for")
            return {kind: written[kind].finished() for kind in kinds}
        finally:
            for result in written.values():
                result.drop()

    def _ranges(self, stage: Stage, x: dict[str, Array], kind: str, written: Results) -> bool:
        """Writes the results of a node type range by range; returns False if the stage returns none for it."""
        size, device = len(x[kind]), self._device or _home(x[kind])
        for start in range(0, max(size, 1), self._batch):
            stop = min(start + self._batch, size)
            subgraph = self._edges.range(kind, start, stop, x) if stage.layer else _rows(kind, start, stop)
            rows = call(stage, self._given(subgraph, x, device), kind, subgraph.destinations)
            if rows is None:
                return False
            if start == 0:  # after a call, since compiled layers make choices for their first graph
                self._trial(stage, x, device).check(stage, kind)
            written.write(start, rows)
        return True

    def _given(self, subgraph: Range, x: dict[str, Array], device: torch.device) -> Given:
        """Returns the arguments of a stage for a range."""
        arrays = {
            name: {key: take(array, subgraph.positions[key], device) for key, array in by_key.items()}
            for name, by_key in (self._arrays.items() if subgraph.edges else ())
        }
        rows = {name: take(x[name], ids, device) for name, ids in subgraph.rows.items()}
        return Given(rows, {key: edges.to(device) for key, edges in subgraph.edges.items()}, arrays)

    def _trial(self, stage: Stage, x: dict[str, Array], device: torch.device) -> Trial:
        if stage.layer is None:
            return Trial(x, {}, {}, device)
        return Trial(x, {key: index.size(1) for key, index in self._edges.edges.items()}, self._arrays, device)


def _rows(kind: str, start: int, stop: int) -> Range:
    """Returns a range without edges, for functions of rows."""
    return Range({kind: torch.arange(start, stop)}, slice(None), {}, {})


def _home(array: Array) -> torch.device:
    return array.device if isinstance(array, Tensor) else torch.device("cpu")
