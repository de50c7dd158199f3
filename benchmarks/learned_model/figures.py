"""Draws figures of the predictions of performance models, and of the plans that they choose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dacergnn.bench.picture import COLOURS, new_figure
from dacergnn.json_lines import Row
from dacergnn.tuning.samples import Measured
from dacergnn.tuning.scores import Scores


def draw_predictions(samples: Sequence[Measured], predicted: Mapping[str, np.ndarray], folder: Path) -> Path:
    """Draws measured against predicted times, a panel for each model, as ``predicted.png``."""
    measured = np.array([s.seconds for s in samples])
    figure = new_figure(3.2 * len(predicted), 3.4)
    panels = figure.subplots(1, len(predicted), sharex=True, sharey=True, squeeze=False)[0]
    ends = np.array([0.7 * measured.min(), 1.4 * measured.max()])
    for panel, (name, times) in zip(panels, predicted.items(), strict=True):
        panel.loglog(measured, times, ".", markersize=3, alpha=0.5, color=COLOURS[0])
        panel.loglog(ends, ends, color="black", linewidth=0.8)
        panel.set(title=name, xlabel="measured s", xlim=ends)
    panels[0].set_ylabel("predicted s")
    return _saved(figure, folder / "predicted.png")


def draw_ranks(by_family: Mapping[str, Scores], folder: Path) -> Path:
    """Draws the share of pairs of plans that are ranked right in each family of layers, as ``ranked.png``."""
    figure = new_figure(7, 0.8 + 0.25 * len(by_family))
    panel = figure.subplots()
    labels = [f"{family} ({scores.pairs})" for family, scores in by_family.items()]
    panel.barh(labels, [100 * scores.ranked for scores in by_family.values()], color=COLOURS[0])
    panel.invert_yaxis()
    panel.set(xlabel="% of pairs ranked right", xlim=(0, 100), ylabel="family (pairs)")
    return _saved(figure, folder / "ranked.png")


def draw_regrets(rows: Sequence[Row], choices: Mapping[str, str], folder: Path) -> Path:
    """Draws the times of chosen plans over the fastest, and how well a model ranks, as ``regret.png``.

    Args:
        rows: Cases: the fields of `Regret`, and the layer, widths, graph and mode.
        choices: Names of fields with the seconds of a plan, and their labels.
    """
    figure = new_figure(8, 1 + 0.2 * len(rows))
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=(2, 1))
    places = np.arange(len(rows))
    for (choice, name), color, marker in zip(choices.items(), COLOURS, "s.x", strict=False):
        left.plot([r[choice] / r["best"] for r in rows], places, marker, color=color, label=f'"{name}"')
    left.set_yticks(places, [f"{r['layer']} {r['features']}/{r['heads']} {r['data']} {r['mode']}" for r in rows])
    left.invert_yaxis()
    left.set(xlabel="time over the fastest plan's")
    left.grid(axis="x", alpha=0.3)
    left.legend()
    right.barh(places, [100 * r["scores"]["ranked"] for r in rows], color=COLOURS[0])
    right.set(xlabel="% of pairs ranked right", xlim=(0, 100))
    return _saved(figure, folder / "regret.png")


def _saved(figure: Any, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    return path
