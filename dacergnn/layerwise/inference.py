"""Computes the results of a model for all nodes, layer after layer, without the memory of a full forward."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, overload

import torch
from torch import Tensor, nn

from dacergnn.config import Config
from dacergnn.errors import ArrayError, UnsupportedCallError
from dacergnn.layerwise.arguments import (
    Argument,
    arguments_of,
    by_type,
    check_batch,
    check_features,
    check_targets,
    check_types,
)
from dacergnn.layerwise.arrays import Array, Target
from dacergnn.layerwise.capture import Uncaptured, captured
from dacergnn.layerwise.parts import Part, is_layer, is_operation, parts_among, standing_in
from dacergnn.layerwise.ranges import ONLY, Key, checked_edges
from dacergnn.layerwise.reading import Reading
from dacergnn.layerwise.stage_runs import StageRuns
from dacergnn.layerwise.stages import Plan, plan_of
from dacergnn.layerwise.steps import Step, device_of, in_a_row, in_words, modules_of, steps_of
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
    out: Mapping[str, Target] | Target | None = ...,
    **arrays: Mapping[Key, Array] | Mapping[str, Array],
) -> Any: ...
def inference(model: object, graph: Any, x: Any, *, batch: int = 4096, out: Any = None, **arrays: Any) -> Any:
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
            destination type).
        x: [N, ...] features, or a dictionary of these by node type: tensors, or NumPy arrays, which may be mapped
            from files (`numpy.load` with ``mmap_mode="r"``). Rows are read when a range needs them.
        batch: The number of destinations in a range.
        out: An array, or the path of a ``.npy`` file that is written, for the results, [N, ...]; a dictionary of these
            if the model returns one. With a path, results between stages are in temporary files beside it.
        arrays: Further arguments of the model by name, with a row for each edge, such as ``edge_type`` or
            ``edge_weight``, or for each node, such as positions; dictionaries by relation or by node type, if ``graph``
            is one. Where there are as many nodes as edges, those whose names begin with "edge" are of edges.

    Returns:
        The results, [N, ...], or a dictionary of these as the model returns it, on the device of ``x``; with ``out``,
        they share its memory.

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
    targets: dict[Any, Target] = dict(out) if isinstance(out, Mapping) else {} if out is None else {None: out}
    steps = steps_of(model)
    check_features(features)
    check_targets(targets, features)
    check_types(edges, features)
    edges = checked_edges(edges, {kind: len(array) for kind, array in features.items()})
    others = {name: by_type(name, array, typed, ONLY) for name, array in arrays.items()}
    arguments = arguments_of(features, edges, others, steps, typed)
    home = next((a.device for a in features.values() if isinstance(a, Tensor)), torch.device("cpu"))
    paths = [Path(target) for target in targets.values() if isinstance(target, str | os.PathLike)]
    device, scratch = device_of(model) or home, paths[0].parent if paths else None
    config = next((core_of(m).config for m in modules_of(model) if isinstance(m, CompiledLayer)), Config())

    def results(reading: Reading, plan: Plan) -> dict[Any, Tensor]:
        _check_keys(targets, [*reading.captured.results])
        return StageRuns(reading, plan, batch, device).results(config, targets, scratch, home)

    with torch.no_grad():
        found = _first(steps, arguments, device, results)
    return found.get(None, found)


_Results = Callable[[Reading, Plan], dict[Any, Tensor]]


def _first(
    steps: Sequence[Step], arguments: Sequence[Argument], device: torch.device, results: _Results
) -> dict[Any, Tensor]:
    """Returns the results by their keys, in the first way that is possible.

    torch may look into no layers, into those alone that are not compiled, into all, or into no steps. What it looks
    into is proven to keep rows apart. That takes long for layers over several node types, which are called first.

    Raises:
        UnsupportedCallError: In no way are rows computed apart.
    """
    functions = [step.function for step in steps]
    operations = parts_among(functions, is_operation)
    originals = {number: core_of(part.function).original for number, part in operations.items()}
    layers, each = parts_among(functions, is_layer), {id(s.function): Part(s.function, s.name) for s in steps}
    ways = (layers, originals, each) if arguments[0].typed else (operations, originals, layers, each)
    problems: list[Exception] = []
    for number, parts in enumerate(ways):
        refused = any(isinstance(problem, UnsupportedCallError) for problem in problems)
        if parts in ways[:number] or (parts is each and refused):
            continue
        try:
            return results(*_read(steps, parts, arguments, device))
        except (Uncaptured, UnsupportedCallError) as problem:
            problems.append(problem)
    raise _joined(
        problems, in_words(steps), next((part.problem for part in each.values() if part.problem is not None), None)
    )


def _read(
    steps: Sequence[Step], parts: Mapping[int, nn.Module], arguments: Sequence[Argument], device: torch.device
) -> tuple[Reading, Plan]:
    """Returns what torch captures, where parts stand for modules and steps, and the stages of it."""
    functions, who = [parts.get(id(step.function), step.function) for step in steps], in_words(steps)
    for part in parts.values():
        if isinstance(part, Part) and any(getattr(module, "cached", False) for module in modules_of(part.function)):
            words = f"{part.name} cannot be computed range by range: it keeps the edges of its first call."
            raise UnsupportedCallError(f"{words} Set cached=False.")
    # in inference mode torch does not tell elementary operations
    with standing_in(functions, parts), torch.inference_mode(False), torch.no_grad():
        found = captured(in_a_row(steps, functions), modules_of(functions), arguments, device, who)
        reading = Reading(found, who)
        return reading, plan_of(reading)


def _joined(problems: Sequence[Exception], who: str, failure: Exception | None) -> UnsupportedCallError:
    """Returns the error for a model that can be computed in no way.

    Args:
        failure: What a call of a step with a few rows has raised.
    """
    refused = next((problem for problem in problems if isinstance(problem, UnsupportedCallError)), None)
    if refused is not None and refused is problems[0]:
        return refused
    whole = f"torch does not capture the model whole: {problems[0]}."
    if refused is not None:
        return UnsupportedCallError(f"{refused} {whole}")
    if failure is not None:
        whole = f"a call with a few rows ends with {type(failure).__name__}: {failure}. {whole}"
    return UnsupportedCallError(f"{who} cannot be computed range by range: {whole}")


def _check_keys(targets: Mapping[Any, Target], keys: Sequence[Any]) -> None:
    """Raises ArrayError unless the model has results for all targets."""
    for key, target in targets.items():
        if (key is None) != (None in keys):
            returned = "a tensor" if None in keys else "a dictionary"
            rule = f"is a {type(target).__name__}" if key is None else "is a dictionary"
            raise ArrayError("out", f"{rule}, and the model returns {returned}; give what takes results of this kind")
        if key not in keys:
            raise ArrayError("out", f"has a target for {key!r}, a type that the model gives no results for")
