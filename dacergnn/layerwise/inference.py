"""Computes the results of a model for all nodes, layer after layer, without the memory of a full forward."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, overload

import torch
from torch import Tensor

from dacergnn.errors import ArrayError
from dacergnn.layerwise.arguments import by_type, check_batch, check_edge_arrays, check_features, check_types
from dacergnn.layerwise.arrays import Array, Results, Target, take
from dacergnn.layerwise.calls import ONLY, Given, call
from dacergnn.layerwise.locality import Trial
from dacergnn.layerwise.ranges import Key, Range, SortedEdges
from dacergnn.layerwise.steps import Stage, device_of, stages_of


@overload
def inference(
    model: object, graph: Tensor, x: Array, *, batch: int = ..., out: Target | None = ..., **edge_arrays: Array
) -> Tensor: ...
@overload
def inference(
    model: object,
    graph: Mapping[Key, Tensor],
    x: Mapping[str, Array],
    *,
    batch: int = ...,
    out: Mapping[str, Target] | None = ...,
    **edge_arrays: Mapping[Key, Array],
) -> dict[str, Tensor]: ...
def inference(
    model: object, graph: Any, x: Any, *, batch: int = 4096, out: Any = None, **edge_arrays: Any
) -> Tensor | dict[str, Tensor]:
    """Returns the results of a trained model for all nodes, computed layer by layer and range by range.

    A layer is called with the in-edges of ``batch`` destinations at a time, and with the rows that these edges read.
    Hence a call takes the memory of one range, and each result is computed once. Results equal those of a full forward
    up to rounding. A layer that depends on more than these edges and rows is refused, after a trial on a small graph.

    Args:
        model: A graph layer; or a list, `torch.nn.Sequential`, `ModuleList`, PyG `Sequential` or PyG model such as
            `GraphSAGE`. Its steps are graph layers, called as ``layer(x, edges)``, and functions of rows.
        graph: [2, E] integers, sources and destinations; or a dictionary of these by (source type, relation,
            destination type), with which layers are called as ``layer(x_dict, edges_dict)``.
        x: [N, ...] features, or a dictionary of these by node type: tensors, or NumPy arrays, which may be mapped
            from files (`numpy.load` with ``mmap_mode="r"``). Rows are read when a range needs them.
        batch: The number of destinations in a range.
        out: An array, or the path of a ``.npy`` file that is written, for the results, [N, ...]; by node type if ``x``
            is. With a path, results between layers are in temporary files beside it.
        edge_arrays: Further arguments of layers by name, such as ``edge_type`` or ``edge_weight``, with a row for each
            edge; dictionaries by relation if ``graph`` is one. A layer gets those that its forward names.

    Returns:
        The results, [N, ...] or by node type, on the device of ``x``; with ``out``, they share its memory.

    Raises:
        ArrayError: An argument has the wrong type, shape, dtype or number of rows.
        GraphError: A node is out of range.
        UnsupportedLayerError: A step is in training mode, returns no rows of nodes, or is not part of a chain.
        UnsupportedCallError: Results of a step depend on more than in-edges and their sources.
    """
    check_batch(batch)
    typed = isinstance(graph, Mapping)
    features: dict[str, Array] = by_type("x", x, typed, "")
    edges: dict[Key, Tensor] = by_type("graph", graph, typed, ONLY)
    targets: dict[str, Target] = {} if out is None else by_type("out", out, typed, "")
    arrays: dict[str, dict[Key, Array]] = {name: by_type(name, a, typed, ONLY) for name, a in edge_arrays.items()}
    stages = stages_of(model)
    check_features(features, targets)
    check_types(edges, features, "x has")
    sorted_edges = SortedEdges(edges, {kind: len(array) for kind, array in features.items()})
    check_edge_arrays(arrays, sorted_edges.edges, [stage.layer for stage in stages if stage.layer is not None])
    with torch.no_grad():
        results = _Run(sorted_edges, arrays, batch, device_of(model)).all(stages, features, targets)
    return results if typed else results[""]


class _Run:
    """Runs the stages of one inference, and holds what they have in common."""

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
