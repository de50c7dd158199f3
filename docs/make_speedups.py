"""Draws docs/images/speedups.png: training steps of ours beside those of PyG, DGL and plain PyTorch.

dacergnn bench --data aifb,fb15k237 --no-memory --no-compiled --budget 4 --repeat 10 --json docs/speedups.json
python docs/make_speedups.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

FOLDER = Path(__file__).resolve().parent
GRAPHS = {"aifb": "AIFB, 49 thousand edges", "fb15k237": "FB15k-237, 620 thousand edges"}
PEERS = {
    "ours": "dacergnn",
    "torch": "careful plain PyTorch",
    "pyg": "PyG, fastest layer",
    "dgl": "DGL, fastest layer",
}
COLOURS = ("#0072B2", "#999999", "#E69F00", "#009E73")


def fastest(row: dict[str, Any]) -> dict[str, float]:
    """Returns the milliseconds of the fastest candidate of each library that ends."""
    found: dict[str, float] = {}
    for candidate in row["candidates"]:
        if candidate["status"] == "ok":
            library = candidate["library"]
            found[library] = min(found.get(library, float("inf")), candidate["ms"])
    return found


def main() -> None:
    report = json.loads((FOLDER / "speedups.json").read_text())
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    all_axes = figure.subplots(1, len(GRAPHS), squeeze=False)[0]
    for axes, (graph, title) in zip(all_axes, GRAPHS.items(), strict=True):
        rows = [row for row in report["rows"] if row["data"] == graph and row["mode"] == "train"]
        for place, row in enumerate(rows):
            times = fastest(row)
            for number, ((library, label), colour) in enumerate(zip(PEERS.items(), COLOURS, strict=True)):
                at = place + 0.2 * (number - 1.5)
                if library not in times:
                    axes.text(at, 0.04, "out of memory", transform=axes.get_xaxis_transform(), rotation=90,
                              ha="center", fontsize=7, color=colour)  # fmt: skip
                    continue
                axes.bar(at, times[library], 0.18, color=colour, label=label if place == 0 else None)
                shown = f"{times[library]:.3g} ms" if library == "ours" else f"{times[library] / times['ours']:.3g}x"
                axes.annotate(shown, (at, times[library]), ha="center", va="bottom", fontsize=7)
        axes.set_xticks(range(len(rows)), [row["model"].upper() for row in rows])
        axes.set_yscale("log")
        axes.set_title(title, fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
    all_axes[0].set_ylabel("ms of a training step")
    figure.legend(
        *all_axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False, fontsize=9
    )
    figure.savefig(FOLDER / "images" / "speedups.png", dpi=130)


if __name__ == "__main__":
    main()
