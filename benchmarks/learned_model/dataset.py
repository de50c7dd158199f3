"""Reads samples from data sets of measured programs."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from math import hypot

from benchmarks.learned_model.written import read
from dacergnn.errors import DacergnnError
from dacergnn.json_lines import Row
from dacergnn.tuning.features import THREADS, Described, describe
from dacergnn.tuning.graph_facts import GraphFacts
from dacergnn.tuning.samples import Measured


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
            machine = f"{about.get('environment', about.get('machine', {})).get('cpu', '')}, {threads} threads"
            samples.append(Measured(program, sum(means), hypot(*deviations), layer, graph, family, runs, machine))
    return samples


def of_some_layers(rows: Sequence[Row], most: int, seed: int = 0) -> list[Row]:
    """Returns the rows of some layers, with about ``most`` samples; describing all programs takes minutes."""
    counts = Counter(row["layer"] for row in rows if "seconds" in row)
    layers = sorted(counts)
    random.Random(seed).shuffle(layers)
    chosen: set[int] = set()
    while layers and sum(counts[layer] for layer in chosen) < most:
        chosen.add(layers.pop())
    return [row for row in rows if row.get("layer", -1) in chosen or "layer" not in row]
