"""Data sets of measured programs as samples to learn from, and their division by programs and by graphs."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import hypot

from dacergnn.errors import DacergnnError
from dacergnn.tuning.features import Described, describe
from dacergnn.tuning.graph_facts import GraphFacts
from dacergnn.tuning.records import Row
from dacergnn.tuning.samples import Sample
from dacergnn.tuning.written import read

FOLDS = 5
"""Parts of the layers, and of the graphs, of which nothing is learned from one."""


@dataclass(frozen=True)
class Measured(Sample):
    """A sample of a data set; layers of one family resemble each other."""

    family: str


def samples_of(rows: Iterable[Row]) -> list[Measured]:
    """The samples of a data set, a forward and its backward as one program.

    Raises:
        DacergnnError: A sample names a program or a graph that is not there.
    """
    programs: dict[tuple[int | str, int], tuple[Described, str]] = {}
    graphs: dict[str, GraphFacts] = {}
    samples: list[Measured] = []
    for row in rows:
        if "programs" in row:
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
            samples.append(
                Measured(described.on(graphs[graph]), sum(means), hypot(*deviations), str(key[0]), graph, family)
            )
    return samples


@dataclass(frozen=True)
class Division:
    """Samples to learn from, and those of layers and graphs that are in none of them."""

    learned: Sequence[Measured]
    unseen: Sequence[Measured]


def divide(samples: Sequence[Measured], seed: int = 0, fold: int = 0) -> Division:
    """Keep one of `FOLDS` parts of the layers, and of the graphs, from the samples to learn from.

    Samples of a layer that is kept on a graph that is not, or the other way round, are in neither part. Each layer,
    and each graph, is kept in one ``fold`` of 0 to ``FOLDS`` - 1.

    Raises:
        DacergnnError: A part is empty.
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
