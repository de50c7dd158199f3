"""Draws operators as bars of time, stacked by operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dacergnn.bench.picture import colour, new_figure
from dacergnn.bench.picture import save as write
from dacergnn.bench.scatter import NOTE, marked
from dacergnn.profiling.operator_time import OperatorTime
from dacergnn.sdfg_passes.compilation import ROLES

NAMED = 0.04
"""Share of the highest bar from which on an operator has its name written on it."""


def save(calls: Mapping[str, Sequence[OperatorTime]], path: Path) -> None:
    """Draws bars for the forward and the backward of each call, with its name; operators of a kind have one colour.

    Raises:
        DacergnnError: matplotlib is not installed, or does not know the format.
    """
    bars = {
        f"{role}\n{label}".strip(): own
        for label, operators in calls.items()
        for role in ROLES
        if (own := [operator for operator in operators if operator.role == role])
    }
    highest = max(sum(operator.ms for operator in own) for own in bars.values())
    kinds = [*dict.fromkeys(operator.kind for own in bars.values() for operator in own)]
    figure = new_figure(3.0 + 1.6 * len(bars), 5.0, "a plot of operators")
    axes = figure.subplots()
    handles: dict[str, Any] = {}
    for place, own in enumerate(bars.values()):
        bottom = 0.0
        for operator in own:
            shade = colour(kinds.index(operator.kind))
            bar = axes.bar(place, operator.ms, 0.85, bottom=bottom, color=shade, edgecolor="white", linewidth=0.6)
            handles.setdefault(operator.kind, bar)
            if operator.ms >= NAMED * highest:
                middle = bottom + operator.ms / 2
                name = marked(", ".join(operator.results), operator.scatters)
                axes.text(place, middle, name, ha="center", va="center", fontsize=7)
            bottom += operator.ms
    axes.set_xticks(range(len(bars)), [*bars], fontsize=9)
    axes.set_ylabel("ms")
    axes.grid(axis="y", alpha=0.25)
    axes.set_axisbelow(True)
    if any(operator.scatters for own in bars.values() for operator in own):
        figure.supxlabel(NOTE, fontsize=7)
    figure.legend([handles[kind] for kind in kinds], kinds, loc="outside right upper", frameon=False, fontsize=9)
    write(figure, path)
