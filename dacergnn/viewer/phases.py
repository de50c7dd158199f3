"""Collapses a backward program into phases, each the gradient of what one operator of the forward computes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from dacergnn.library_nodes.form import GRADIENT
from dacergnn.viewer.boxes import Box, results_of


def phases_of(backward: Sequence[Box], forward: Sequence[Box], results: Collection[str]) -> list[Box]:
    """Returns the phases of a backward in an order in which they can run.

    Args:
        backward: The operators of the backward.
        forward: The operators of the forward, each of which makes one phase, and so does each of its inputs.
        results: The outputs of the backward.
    """
    owners = {name: box for box in forward for name in results_of(box)}
    known = {*owners, *(name for box in forward for name in box.reads)}
    of: dict[str, list[str]] = {}  # the arrays whose gradients an operator computes, or helps to compute
    for box in reversed(backward):
        gradients = [name.removeprefix(GRADIENT) for name in results_of(box) if name.startswith(GRADIENT)]
        names = [name if name in known else re.sub(r"_\d+$", "", name) for name in gradients]
        readers = [of[other.name] for other in backward if not {*box.writes}.isdisjoint(other.reads)]
        of[box.name] = names or [*readers, [box.name]][0]
    phase = {box: owners[names[-1]].name if names[-1] in owners else names[-1] for box, names in of.items()}
    made: list[Box] = []
    for group in _in_order(backward, phase):
        name = of[group[0].name][-1]
        summary = owners[name].summary if name in owners else ""
        title = _title([*dict.fromkeys(name for box in group for name in of[box.name])])
        made.append(_phase(group, title, summary, phase[group[0].name], backward, results))
    return made


def _title(names: Sequence[str]) -> str:
    return f"gradient of {', '.join(names) if len(names) < 3 else f'{names[0]} to {names[-1]}'}"


def _in_order(backward: Sequence[Box], phase: Mapping[str, str]) -> list[list[Box]]:
    """Returns the operators of phases that run one after the other; phases that wait for each other are divided."""
    waiting, ordered = list(backward), list[list[Box]]()
    while waiting:
        runs = [_ready(name, waiting, phase) for name in dict.fromkeys(phase[box.name] for box in waiting)]
        left = Counter(phase[box.name] for box in waiting)
        whole = (run for run in runs if run and len(run) == left[phase[run[0].name]])
        chosen = next(whole, None) or next(filter(None, runs))
        waiting = [box for box in waiting if box not in chosen]
        ordered.append(chosen)
    return ordered


def _ready(name: str, waiting: Sequence[Box], phase: Mapping[str, str]) -> list[Box]:
    """Returns the operators of a phase that wait for none of another phase."""
    missing: set[str] = set()
    ready: list[Box] = []
    for box in waiting:
        if phase[box.name] == name and missing.isdisjoint(box.reads):
            ready.append(box)
        else:
            missing.update(box.writes)
    return ready


def _phase(
    group: Sequence[Box], title: str, summary: str, peer: str, backward: Sequence[Box], results: Collection[str]
) -> Box:
    own = {name for box in group for name in box.writes}
    wanted = {name for box in backward if box not in group for name in box.reads}.union(results)
    return Box(
        name=group[-1].name,
        title=title,
        summary=summary,
        icon="phase",
        lines=tuple(line for box in group for line in box.lines),
        note=f"{len(group)} operators" if len(group) > 1 else "1 operator",
        reads=tuple(dict.fromkeys(name for box in group for name in box.reads if name not in own)),
        writes=tuple(name for box in group for name in box.writes if name in wanted),
        statements=tuple(text for box in group for text in box.statements),
        choices=tuple(f"{box.name}: {text}" for box in group for text in box.choices),
        encodings=tuple(dict.fromkeys(name for box in group for name in box.encodings)),
        peer=peer,
        parts=tuple(group),
    )
