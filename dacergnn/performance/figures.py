"""Figures of how well performance models predict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from dacergnn.errors import DacergnnError
from dacergnn.performance.dataset import Measured


def draw(samples: Sequence[Measured], predicted: Mapping[str, np.ndarray], folder: Path) -> Iterator[Path]:
    """Write measured against predicted times, a panel for each model, as PNG.

    Raises:
        DacergnnError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise DacergnnError('Figures need matplotlib; install it with pip install "dacergnn[plot]".') from None
    measured = np.array([s.seconds for s in samples])
    figure = Figure(figsize=(3.2 * len(predicted), 3.4), layout="constrained")
    panels = figure.subplots(1, len(predicted), sharex=True, sharey=True, squeeze=False)[0]
    ends = np.array([0.7 * measured.min(), 1.4 * measured.max()])
    for panel, (name, times) in zip(panels, predicted.items(), strict=True):
        panel.loglog(measured, times, ".", markersize=3, alpha=0.5, color="#0072B2")
        panel.loglog(ends, ends, color="black", linewidth=0.8)
        panel.set(title=name, xlabel="measured s", xlim=ends)
    panels[0].set_ylabel("predicted s")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "predicted.png"
    figure.savefig(path, dpi=150)
    yield path
