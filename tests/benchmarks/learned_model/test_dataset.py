"""Samples of a data set: forward and backward as one program, division by layers and graphs, scores."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import dace
import numpy as np
import pytest

from benchmarks.learned_model.common_layers import common_layer
from benchmarks.learned_model.dataset import samples_of
from benchmarks.learned_model.division import FOLDS, divide
from benchmarks.learned_model.records import FORMAT
from benchmarks.learned_model.written import written
from dacergnn import Config, parse
from dacergnn.errors import DacergnnError
from dacergnn.graph.profile import TYPICAL
from dacergnn.json_lines import Row, load
from dacergnn.sdfg_passes import compile_program
from dacergnn.tuning.features import describe
from dacergnn.tuning.graph_facts import GraphFacts
from dacergnn.tuning.graphs import random_graph
from dacergnn.tuning.programs import RandomLayer, random_layer
from dacergnn.tuning.samples import Measured
from dacergnn.tuning.scores import scores

FILES = Path(__file__).parents[3] / "benchmarks"
SHIPPED = FILES / "performance_samples.jsonl.xz"
LAYER = random_layer(2)
FOUND = compile_program(parse(LAYER.text), LAYER.learned, Config(), dace.int32, TYPICAL, keep=False)
PARTS = [FOUND.forward, FOUND.backward]
FACTS = GraphFacts.of(random_graph(3))
PROGRAM: Row = {"layer": 2, "plan": 0, "family": "sum", "programs": [written(part) for part in PARTS]}
GRAPH: Row = {"graph": "typed/3", "facts": json.loads(FACTS.to_json())}
SAMPLE: Row = {"layer": 2, "plan": 0, "graph": "typed/3", "seconds": [[0.25, 0.03], [0.5, 0.04]]}


def test_a_sample_is_forward_and_backward() -> None:
    (found,) = samples_of([{"format": 1}, PROGRAM, GRAPH, SAMPLE])
    assert (found.seconds, found.deviation) == (0.75, pytest.approx(0.05))
    assert (found.layer, found.family, found.graph) == ("random 2", "sum", "typed/3")
    expected = describe(*PARTS).on(FACTS)
    np.testing.assert_array_equal(found.program.dependent, expected.dependent)
    np.testing.assert_array_equal(found.program.edges, expected.edges)


@pytest.mark.parametrize("rows", [[GRAPH, SAMPLE], [PROGRAM, SAMPLE]])
def test_samples_of_what_is_not_there(rows: list[Row]) -> None:
    with pytest.raises(DacergnnError, match="plan 0 of layer 2, or graph typed/3"):
        samples_of(rows)


@pytest.mark.parametrize(("file", "least", "layer"), [
    (SHIPPED, 15_000, random_layer), (FILES / "performance_samples_intel.jsonl.xz", 28_000, common_layer),
])  # fmt: skip
def test_the_data_sets_that_were_measured(file: Path, least: int, layer: Callable[[int], RandomLayer]) -> None:
    """Their layers are those of their seeds; every sample is of a program and a graph that are described."""
    assert file.stat().st_size < 20e6
    rows = load(file)
    assert rows[0]["format"] == FORMAT
    described = {(row["layer"], row["plan"]): row for row in rows if "programs" in row}
    graphs = {row["graph"] for row in rows if "facts" in row}
    samples = [row for row in rows if "seconds" in row]
    assert all((row["layer"], row["plan"]) in described and row["graph"] in graphs for row in samples)
    assert len(samples) > least
    assert {n: described[n, 0]["family"] for n in range(3)} == {n: layer(n).family for n in range(3)}
    last = samples[-1]["layer"]
    part = [row for row in rows if "facts" in row or row.get("layer") == last]
    assert 0 < len(samples_of(part)) == sum(row["layer"] == last for row in samples)
    assert all(row["machine"]["cpu"] and row["threads"] > 0 for row in rows if "format" in row)


def some(count: int, **changes: float) -> list[Measured]:
    (one,) = samples_of([PROGRAM, GRAPH, SAMPLE])
    return [replace(one, **changes) for _ in range(count)]


def test_no_layer_and_no_graph_is_in_both_parts() -> None:
    (one,) = some(1)
    samples = [replace(one, layer=str(layer), graph=str(graph)) for layer in range(10) for graph in range(10)]
    found = divide(samples, seed=3)
    assert (len(found.learned), len(found.unseen)) == (64, 4)
    for name in ("layer", "graph"):
        assert {getattr(s, name) for s in found.learned}.isdisjoint(getattr(s, name) for s in found.unseen)
    again = divide(samples[::-1], seed=3)
    assert {s.group for s in again.unseen} == {s.group for s in found.unseen}
    assert {s.group for s in divide(samples, seed=4).unseen} != {s.group for s in found.unseen}


def test_each_layer_and_each_graph_is_unseen_once() -> None:
    (one,) = some(1)
    samples = [replace(one, layer=str(layer), graph=str(graph)) for layer in range(10) for graph in range(12)]
    unseen = [s for fold in range(FOLDS) for s in divide(samples, fold=fold).unseen]
    assert len({s.group for s in unseen}) == len(unseen) == 2 * 12
    assert len({s.layer for s in unseen}) == 10
    assert len({s.graph for s in unseen}) == 12


def test_too_few_samples_are_not_divided() -> None:
    for samples in ([], some(3)):
        with pytest.raises(DacergnnError, match=f"samples: {len(samples)} of them are too few"):
            divide(samples)


def test_scores() -> None:
    (one,) = some(1)
    seconds = (1.0, 2.0, 4.0, 4.1)
    samples = [replace(one, seconds=s, deviation=0.2, layer="a") for s in seconds]
    samples += [replace(one, seconds=9.0, deviation=0.2, layer="b")]  # ranked against no other
    exact = scores(samples, np.array([*seconds, 9.0]))
    assert (exact.mean_error, exact.largest_error, exact.r2, exact.ranked) == (0, 0, 1, 1)
    assert exact.pairs == 5  # 4.0 and 4.1 are not told apart by ten runs
    assert scores([replace(s, runs=100) for s in samples], np.array([*seconds, 9.0])).pairs == 6
    found = scores(samples, np.array([2.0, 1.0, 4.0, 4.1, 9.0]))
    assert found.mean_error == pytest.approx(0.3)
    assert found.largest_error == 1.0
    assert found.ranked == 0.8
    assert found.r2 < 1
    assert scores(samples[:4], np.full(4, 2.0)).ranked == 0
