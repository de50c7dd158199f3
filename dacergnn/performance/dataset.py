"""Reads samples from data sets of measured programs, and divides them by layers and by graphs."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import hypot
from statistics import geometric_mean, median

from dacergnn.errors import DacergnnError
from dacergnn.tuning.features import THREADS, Described, describe
from dacergnn.tuning.graph_facts import GraphFacts
from dacergnn.tuning.records import Row
from dacergnn.tuning.samples import Sample
from dacergnn.tuning.written import read

FOLDS = 5
"""Number of parts of the layers, and of the graphs; one part is kept from training."""


@dataclass(frozen=True)
class Measured(Sample):
    """Holds a sample of a data set.

    Args:
        family: Layers of one family resemble each other.
        runs: Number of runs whose mean time it is.
        machine: Names the processor, and the number of threads.
    """

    family: str
    runs: int
    machine: str

    @property
    def group(self) -> tuple[str, ...]:
        """Returns the layer, the graph and the machine."""
        return self.layer, self.graph, self.machine


def samples_of(rows: Iterable[Row]) -> list[Measured]:
    """Returns the samples of data sets, one after the other; a forward and its backward are one program.

    Raises:
        DacergnnError: A sample names a program or a graph that no row before it describes.
    """
    programs: dict[tuple[int | str, int], tuple[Described, str]] = {}
    graphs: dict[str, GraphFacts] = {}
    samples: list[Measured] = []
    about: Row = {}
    for row in rows:
        if "format" in row:
            about = row
            programs.clear()
            graphs.clear()
        elif "programs" in row:
            described = describe(*(read(part) for part in row["programs"]))
            programs[row["layer"], row["plan"]] = described, row["family"]
        elif "facts" in row:
            graphs[row["graph"]] = GraphFacts.from_json(json.dumps(row["facts"]))
        elif "seconds" in row:
            key, graph = (row["layer"], row["plan"]), row["graph"]
            if key not in programs or graph not in graphs:
                raise DacergnnError(
                    f"rows: plan {key[1]} of layer {key[0]}, or graph {graph}, is not described before."
                )
            described, family = programs[key]
            means, deviations = zip(*row["seconds"], strict=True)
            threads = about.get("threads", THREADS)
            program = described.on(graphs[graph], threads=threads)
            layer = f"{about.get('layers', 'random')} {key[0]}"
            runs = row.get("runs", about.get("repeat", 1))
            machine = f"{about.get('machine', {}).get('cpu', '')}, {threads} threads"
            samples.append(Measured(program, sum(means), hypot(*deviations), layer, graph, family, runs, machine))
    return samples


@dataclass(frozen=True)
class Division:
    """Holds samples to learn from, and unseen samples, whose layers and graphs are in none of the former."""

    learned: Sequence[Measured]
    unseen: Sequence[Measured]


def machine_factors(samples: Sequence[Measured]) -> dict[str, float]:
    """Returns the median of measured over analytic seconds of each machine."""
    ratios: dict[str, list[float]] = {}
    for sample in samples:
        ratios.setdefault(sample.machine, []).append(sample.seconds / float(sample.program.seconds.sum()))
    return {machine: median(own) for machine, own in ratios.items()}


def on_one_scale(samples: Sequence[Measured], factors: Mapping[str, float]) -> list[Measured]:
    """Returns samples as if all machines were equally fast.

    Args:
        factors: The time of each machine (`machine_factors`); all become as fast as their geometric mean.
    """
    mean = geometric_mean(factors.values())
    scales = {machine: mean / factor for machine, factor in factors.items()}
    return [
        replace(s, seconds=s.seconds * scales[s.machine], deviation=s.deviation * scales[s.machine]) for s in samples
    ]


def divide(samples: Sequence[Measured], seed: int = 0, fold: int = 0) -> Division:
    """Divides samples: one of `FOLDS` parts of the layers and one of the graphs are kept from training.

    A sample is unseen if both its layer and its graph are kept; if only one of them is, it is left out. Each layer,
    and each graph, is kept in one ``fold`` of 0 to ``FOLDS`` - 1, on all machines.

    Raises:
        DacergnnError: The samples to learn from or the unseen samples would be empty.
    """
    rng = random.Random(seed)

    def kept(names: Iterable[str]) -> set[str]:
        ordered = sorted({*names})
        rng.shuffle(ordered)
        return {*ordered[fold::FOLDS]}

    layers, graphs = kept(s.layer for s in samples), kept(s.graph for s in samples)
    division = Division(
        [s for s in samples if s.layer not in layers and s.graph not in graphs],
        [s for s in samples if s.layer in layers and s.graph in graphs],
    )
    if not division.learned or not division.unseen:
        raise DacergnnError(f"samples: {len(samples)} of them are too few to keep layers and graphs apart; give more.")
    return division
