"""Reads samples from data sets of measured programs, and divides them by layers and by graphs."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import hypot

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
    """Holds a sample of a data set; layers of one family resemble each other."""

    family: str


def samples_of(rows: Iterable[Row]) -> list[Measured]:
    """Returns the samples of a data set; a forward and its backward are one program.

    Raises:
        DacergnnError: A sample names a program or a graph that no row before it describes.
    """
    programs: dict[tuple[int | str, int], tuple[Described, str]] = {}
    graphs: dict[str, GraphFacts] = {}
    samples: list[Measured] = []
    threads = THREADS
    for row in rows:
        if "threads" in row:
            threads = row["threads"]
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
            program = described.on(graphs[graph], threads=threads)
            samples.append(Measured(program, sum(means), hypot(*deviations), str(key[0]), graph, family))
    return samples


@dataclass(frozen=True)
class Division:
    """Holds samples to learn from, and unseen samples, whose layers and graphs are in none of the former."""

    learned: Sequence[Measured]
    unseen: Sequence[Measured]


def divide(samples: Sequence[Measured], seed: int = 0, fold: int = 0) -> Division:
    """Divides samples: one of `FOLDS` parts of the layers and one of the graphs are kept from training.

    A sample is unseen if both its layer and its graph are kept; if only one of them is, it is left out. Each layer,
    and each graph, is kept in one ``fold`` of 0 to ``FOLDS`` - 1.

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
