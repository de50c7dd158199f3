"""Draws how well models predict times and rank plans, and the times of the plans that they choose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from dacergnn.bench.picture import Panel, picture, save
from dacergnn.json_lines import Row
from dacergnn.tuning.samples import Measured
from dacergnn.tuning.scores import Scores

RANKED = "% of pairs ranked right"


def draw_predictions(samples: Sequence[Measured], predicted: Mapping[str, np.ndarray], folder: Path) -> Path:
    """Draws predicted over measured times, a panel for each model, as ``predicted.png``."""
    measured = [s.seconds for s in samples]
    panels = [
        Panel(name, {name: [*zip(measured, times.tolist(), strict=True)]}, (), "points", "predicted s", "measured s",
              logarithmic=True)
        for name, times in predicted.items()
    ]  # fmt: skip
    return save(picture(panels), folder / "predicted.png")


def draw_ranks(by_family: Mapping[str, Scores], folder: Path) -> Path:
    """Draws the share of pairs of plans that are ranked right in each family of layers, as ``ranked.png``."""
    places = [f"{family} ({scores.pairs})" for family, scores in by_family.items()]
    shares = [100 * scores.ranked for scores in by_family.values()]
    return save(picture([Panel("family (pairs)", {RANKED: shares}, places, unit=RANKED)]), folder / "ranked.png")


def draw_regrets(rows: Sequence[Row], choices: Mapping[str, str], folder: Path) -> Path:
    """Draws the times of chosen plans over the fastest, and how well a model ranks, as ``regret.png``.

    Args:
        rows: Cases: the fields of `Regret`, and the layer, widths, graph and mode.
        choices: Names of fields with the seconds of a plan, and their labels.
    """
    places = [f"{r['layer']} {r['features']}/{r['heads']} {r['data']} {r['mode']}" for r in rows]
    times = {f'"{name}"': [r[choice] / r["best"] for r in rows] for choice, name in choices.items()}
    ranks = {RANKED: [100 * r["scores"]["ranked"] for r in rows]}
    panels = [Panel("time over the fastest plan's", times, places, "lines"), Panel(RANKED, ranks, places)]
    return save(picture(panels), folder / "regret.png")
