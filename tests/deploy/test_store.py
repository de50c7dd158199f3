"""The online store does what a plain Python model does, in all versions that are read."""

from __future__ import annotations

import ctypes
import random
import subprocess
from collections import Counter
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from dacergnn.native.build import compiler_command
from tests.deploy.online_store import HEADERS, OnlineStore, StoreError, build_library
from tests.deploy.store_model import RELATIONS, WIDTHS, Model, check_full, check_sampled, random_features

LEAST = 1e-3
"""Random numbers are the same in every run, so that no run fails by chance."""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return build_library(tmp_path_factory.mktemp("store"))


@pytest.fixture
def store(library: ctypes.CDLL) -> Iterator[OnlineStore]:
    made = OnlineStore(library, WIDTHS, RELATIONS)
    yield made
    made.close()


class Player:
    """Plays random operations on a store and on its model, and keeps some snapshots with the models of their time."""

    def __init__(self, store: OnlineStore, seed: int) -> None:
        self.store, self.model, self.rng = store, Model(), random.Random(seed)
        self.kept: list[tuple[ctypes.c_void_p, Model]] = []

    def step(self) -> None:
        kind = self.rng.random()
        if kind < 0.75:
            self.change()
        elif kind < 0.85:
            self.change_together()
        elif kind < 0.92:
            self.keep_or_release()
        else:
            for snapshot, model in [*self.kept, (None, self.model)]:
                self.look(snapshot, model)

    def change_together(self) -> None:
        """Joins changes to one write, which is perhaps given up in its middle."""
        before, gives_up = self.model.copy(), self.rng.random() < 0.4
        try:
            with self.store.write():
                for _ in range(self.rng.randrange(5)):
                    self.change(may_fail=False)
                with self.store.snapshot() as snapshot:
                    assert self.store.sizes(snapshot) == before.sizes()
                if gives_up:
                    raise InterruptedError
        except InterruptedError:
            self.model = before

    def change(self, may_fail: bool = True) -> None:
        bad = may_fail and self.rng.random() < 0.1
        change = self.rng.choices(
            (self.add_nodes, self.set_features, self.remove_nodes, self.add_edges, self.remove_edges), (3, 3, 2, 8, 5)
        )[0]
        before = self.model.copy()
        if not bad:
            return change(())
        with pytest.raises(StoreError) as error:
            change((10**6, -1))
        assert error.value.code in ("no node", "no edge")
        self.model = before
        return None

    def add_nodes(self, strange: tuple[int, ...]) -> None:
        if strange:
            return self.set_features(strange)
        node_type = self.rng.randrange(len(WIDTHS))
        rows = [random_features(self.rng, node_type) for _ in range(self.rng.randrange(4))]
        ids = self.store.add_nodes(node_type, rows)
        for model in [self.model, *(model for _, model in self.kept)]:
            assert not set(ids) & set(model.nodes[node_type])
        self.model.nodes[node_type].update(zip(ids, rows, strict=True))
        return None

    def some_nodes(self, node_type: int, strange: tuple[int, ...]) -> list[int]:
        nodes = [*self.model.nodes[node_type]]
        found = self.rng.sample(nodes, min(len(nodes), self.rng.randrange(5)))
        return [*found, self.rng.choice(strange)] if strange else found

    def set_features(self, strange: tuple[int, ...]) -> None:
        node_type = self.rng.randrange(len(WIDTHS))
        nodes = self.some_nodes(node_type, strange)
        rows = [random_features(self.rng, node_type) for _ in nodes]
        self.store.set_features(node_type, nodes, rows)
        self.model.nodes[node_type].update(zip(nodes, rows, strict=True))

    def remove_nodes(self, strange: tuple[int, ...]) -> None:
        node_type = self.rng.randrange(len(WIDTHS))
        nodes = self.some_nodes(node_type, strange)
        self.store.remove_nodes(node_type, nodes)
        for node in nodes:
            self.model.remove_node(node_type, node)

    def add_edges(self, strange: tuple[int, ...]) -> None:
        relation = self.rng.randrange(len(RELATIONS))
        source, destination = RELATIONS[relation]
        ends = [self.some_nodes(source, ()), self.some_nodes(destination, ())]
        count = self.rng.randrange(40) if all(ends) else 0
        pairs = [(self.rng.choice(ends[0]), self.rng.choice(ends[1])) for _ in range(count)]
        pairs += [(node, node) for node in strange]
        self.store.add_edges(relation, pairs)
        self.model.edges[relation] += pairs

    def remove_edges(self, strange: tuple[int, ...]) -> None:
        relation = self.rng.randrange(len(RELATIONS))
        edges = self.model.edges[relation]
        pairs = self.rng.sample(edges, self.rng.randint(0, len(edges)) if self.rng.random() < 0.1 else len(edges) // 8)
        # A pair for which there is an edge, but not so many.
        surplus = [pairs[0]] * (edges.count(pairs[0]) + 1) if strange and pairs else [(node, node) for node in strange]
        self.store.remove_edges(relation, pairs + surplus)
        for pair in pairs:
            edges.remove(pair)

    def keep_or_release(self) -> None:
        if len(self.kept) < 3 and self.rng.random() < 0.5:
            self.kept.append((self.store.take(), self.model.copy()))
        elif self.kept:
            self.store.release(self.kept.pop(self.rng.randrange(len(self.kept)))[0])

    def look(self, snapshot: ctypes.c_void_p | None, model: Model) -> None:
        if snapshot is None:
            with self.store.snapshot() as taken:
                return self.look(taken, model)
        assert self.store.sizes(snapshot) == model.sizes()
        node_type, hops = self.rng.randrange(len(WIDTHS)), self.rng.randrange(4)
        nodes = [*model.nodes[node_type]]
        seeds = self.rng.sample(nodes, min(len(nodes), self.rng.randrange(6)))
        everything = [[-1] * len(RELATIONS)] * hops
        batch = self.store.neighbourhood(snapshot, node_type, seeds, everything)
        check_full(model, node_type, seeds, hops, batch)
        check_sampled(model, node_type, seeds, everything, batch)
        fanouts = [[self.rng.choice((-1, 0, 1, 2, 3, 70)) for _ in RELATIONS] for _ in range(hops)]
        seeds += seeds[:1]  # a seed that comes twice has two places
        batch = self.store.neighbourhood(snapshot, node_type, seeds, fanouts, self.rng.getrandbits(64))
        check_sampled(model, node_type, seeds, fanouts, batch)
        missing = next(node for node in range(10**6) if node not in model.nodes[node_type])
        with pytest.raises(StoreError, match=rf"seeds\[{len(seeds)}\] is {missing}, but node type {node_type} has no"):
            self.store.fill(snapshot, node_type, [*seeds, missing], fanouts)
        return None


@pytest.mark.parametrize("seed", range(3))
def test_random_operations(store: OnlineStore, seed: int) -> None:
    player = Player(store, seed)
    for _ in range(3000):
        player.step()
    for snapshot, model in player.kept:
        player.look(snapshot, model)
        store.release(snapshot)
    assert sum(map(len, player.model.nodes)) > 20  # the graph has not become trivial


def star(store: OnlineStore, count: int, way: str) -> tuple[int, dict[int, int]]:
    """Leads edges from some nodes to one. ``way``: whether others have been removed before, or are removed later."""
    center, *others = store.add_nodes(0, [(0, 0)] * (2 * count + 1))
    pairs = [(other, center) for other in others]
    store.add_edges(0, pairs[:count] if way == "whole" else pairs)
    if way != "whole":
        store.remove_edges(0, pairs[::2])
        others = others[1::2]
    return center, {other: place for place, other in enumerate(others[:count])}


@pytest.mark.parametrize(
    ("count", "fanout", "way"), [(3, 1, "whole"), (5, 2, "removed"), (6, 5, "removed"), (7, 3, "whole")]
)
def test_all_sets_have_the_same_chance(store: OnlineStore, count: int, fanout: int, way: str) -> None:
    center, places = star(store, count, way)
    fanouts = [[fanout, 0, 0, 0, 0, 0]]
    trials, found = 6000, Counter[tuple[int, ...]]()
    with store.snapshot() as snapshot:
        for trial in range(trials):
            ids = store.neighbourhood(snapshot, 0, [center], fanouts, trial).ids[0]
            found[tuple(sorted(places[node] for node in ids[1:].tolist()))] += 1
    sets = [*combinations(range(count), fanout)]
    assert set(found) <= set(sets)
    assert stats.chisquare([found[chosen] for chosen in sets]).pvalue > LEAST


@pytest.mark.parametrize(("fanout", "way"), [(20, "removed"), (70, "whole"), (129, "removed")])
def test_all_edges_have_the_same_chance(store: OnlineStore, fanout: int, way: str) -> None:
    count = 130
    center, places = star(store, count, way)
    trials, chance = 2000, fanout / count
    found = np.zeros(count)
    with store.snapshot() as snapshot:
        for trial in range(trials):
            ids = store.neighbourhood(snapshot, 0, [center], [[fanout, 0, 0, 0, 0, 0]], trial).ids[0]
            found[[places[node] for node in ids[1:].tolist()]] += 1
    # Counts of a choice without replacement are not independent, which the factor makes up for.
    spread = trials * chance * (1 - chance) * count / (count - 1)
    distance = ((found - trials * chance) ** 2).sum() / spread
    assert LEAST < stats.chi2.sf(float(distance), count - 1) < 1 - LEAST


def test_a_snapshot_gives_the_same_batch_while_the_graph_changes(store: OnlineStore) -> None:
    center, places = star(store, 100, "removed")
    fanouts = [[10, 2, 0, 0, 0, 0]] * 2
    with store.snapshot() as snapshot:
        before = store.neighbourhood(snapshot, 0, [center], fanouts, 5)
        for node in [*places][:90]:
            store.remove_edges(0, [(node, center)])
            store.add_edges(0, [(center, center)] * 3)
        after = store.neighbourhood(snapshot, 0, [center], fanouts, 5)
    for name in ("ids", "edges", "features"):
        assert all(map(np.array_equal, getattr(before, name), getattr(after, name)))


def test_ids_come_back_once_no_snapshot_has_their_nodes(store: OnlineStore) -> None:
    (node,) = store.add_nodes(0, [(1, 2)])
    with store.snapshot() as snapshot:
        store.remove_nodes(0, [node])
        others = [store.add_nodes(0, [(3, 4)])[0] for _ in range(5)]
        assert node not in others
        assert store.neighbourhood(snapshot, 0, [node], []).features[0].tolist() == [[1, 2]]
    assert store.add_nodes(0, [(5, 6)] * 2)[0] == node


def test_a_batch_without_edges_has_inputs_of_all_sizes(store: OnlineStore) -> None:
    ids = store.add_nodes(1, [(1, 2, 3)] * 2)
    with store.snapshot() as snapshot:
        batch = store.neighbourhood(snapshot, 1, ids, [[-1] * 6])
    assert [features.shape for features in batch.features] == [(0, 2), (2, 3), (0, 0)]
    assert [edges.shape for edges in batch.edges] == [(2, 0)] * 6


def test_a_store_without_relations_or_types(library: ctypes.CDLL) -> None:
    for widths in ([], [0], [2]):
        store = OnlineStore(library, widths, [])
        if widths:
            store.add_nodes(0, [[1.0] * widths[0]] * 3)
            with store.snapshot() as snapshot:
                assert store.sizes(snapshot) == ([3], [])
                store.call("neighbourhood", snapshot, 0, 1, np.zeros(1, np.int64), 0, None, 0, store.batch)
                assert store.read().ids[0].tolist() == [0]
        store.close()


IDS = np.array([0, 1, 7], np.int64)
ROWS = np.zeros((3, 3), np.float32)
BAD = {
    "add_nodes": [
        ((3, 1, ROWS, IDS), "bad argument", r"add_nodes: type is 3, but there are 3 node types, from 0 on\."),
        ((-1, 1, ROWS, IDS), "bad argument", r"type is -1"),
        ((0, -1, ROWS, IDS), "bad argument", r"count is -1; pass the number of rows, from 0 on\."),
        ((0, 2**62, ROWS, IDS), "bad argument", r"count is 4611686018427387904; pass"),
        ((0, 2, None, IDS), "bad argument", r"features is null; pass the address of 4 numbers\."),
        ((0, 2, ROWS, None), "bad argument", r"ids is null; pass the address of 2 numbers\."),
    ],
    "set_features": [
        ((9, 1, IDS, ROWS), "bad argument", r"set_features: type is 9"),
        ((0, 3, IDS, ROWS), "no node", r"ids\[2\] is 7, but node type 0 has no such node now; add it first"),
        ((0, 2, IDS, None), "bad argument", r"features is null"),
        ((0, 2, None, ROWS), "bad argument", r"ids is null"),
    ],
    "remove_nodes": [
        ((9, 1, IDS), "bad argument", r"remove_nodes: type is 9"),
        ((0, 3, IDS), "no node", r"ids\[2\] is 7"),
        ((0, 2, np.array([1, 1], np.int64)), "no node", r"ids\[1\] is 1"),
        ((0, 2, None), "bad argument", r"ids is null"),
    ],
    "add_edges": [
        ((6, 1, IDS, IDS), "bad argument", r"add_edges: relation is 6, but there are 6 relations, from 0 on\."),
        ((1, 3, IDS, np.zeros(3, np.int64)), "no node", r"sources\[2\] is 7, but node type 0 has"),
        ((1, 3, np.zeros(3, np.int64), IDS), "no node", r"destinations\[2\] is 7, but node type 1 has"),
        ((1, 1, np.array([-(2**63)], np.int64), IDS), "no node", r"sources\[0\] is -9223372036854775808"),
        ((1, 1, np.array([2**63 - 1], np.int64), IDS), "no node", r"sources\[0\] is 9223372036854775807"),
        ((1, 1, None, IDS), "bad argument", r"sources is null"),
        ((1, 1, IDS, None), "bad argument", r"destinations is null"),
        ((1, -5, IDS, IDS), "bad argument", r"count is -5"),
    ],
    "remove_edges": [
        ((-1, 1, IDS, IDS), "bad argument", r"remove_edges: relation is -1"),
        ((1, 2, IDS, IDS), "no edge", r"relation 1 has no edge from node 1 to node 1 \(pair 1\) that is left"),
        ((1, 2, IDS * 0, IDS * 0), "no edge", r"no edge from node 0 to node 0 \(pair 1\) that is left; name each edge"),
        ((1, 3, IDS, IDS), "no node", r"sources\[2\] is 7"),
    ],
}


@pytest.mark.parametrize(
    ("operation", "arguments", "code", "text"), [(name, *case) for name, cases in BAD.items() for case in cases]
)
def test_bad_changes(store: OnlineStore, operation: str, arguments: tuple[Any, ...], code: str, text: str) -> None:
    for node_type, width in enumerate(WIDTHS):
        store.add_nodes(node_type, [[1.0] * width] * 2)
    store.add_edges(1, [(0, 0)])
    with pytest.raises(StoreError, match=text) as error:
        store.call(operation, store.handle, *arguments)
    assert error.value.code == code
    with store.snapshot() as snapshot:
        assert store.sizes(snapshot) == ([2, 2, 2], [0, 1, 0, 0, 0, 0])
        batch = store.neighbourhood(snapshot, 1, [0, 1], [[-1] * 6])
        assert batch.edges[1].tolist() == [[0], [0]]
        assert batch.features[1].tolist() == [[1, 1, 1]] * 2


SEEDS = np.zeros(1, np.int64)
FANOUTS = np.full((1, 6), -1, np.int64)


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        ((3, 1, SEEDS, 1, FANOUTS, 0), "bad argument", r"type is 3, but there are 3 node types"),
        ((0, 1, SEEDS + 5, 1, FANOUTS, 0), "no node", r"seeds\[0\] is 5, but node type 0 has no such node in this"),
        ((0, 1, None, 1, FANOUTS, 0), "bad argument", r"seeds is null; pass an address\."),
        ((0, -2, SEEDS, 1, FANOUTS, 0), "bad argument", r"the size of seeds is -2; pass a number from 0 on\."),
        ((0, 1, SEEDS, -1, FANOUTS, 0), "bad argument", r"hops is -1"),
        ((0, 1, SEEDS, 1, None, 0), "bad argument", r"fanouts is null"),
        ((0, 1, SEEDS, 1, FANOUTS - 1, 0), "bad argument", r"the fanout of hop 0 and relation 0 is -2; pass a number"),
    ],
)
def test_bad_neighbourhoods(store: OnlineStore, arguments: tuple[Any, ...], code: str, text: str) -> None:
    store.add_nodes(0, [(1, 2)])
    with store.snapshot() as snapshot:
        store.fill(snapshot, 0, [0], FANOUTS)
        with pytest.raises(StoreError, match=text) as error:
            store.call("neighbourhood", snapshot, *arguments, store.batch)
        assert error.value.code == code
        assert store.read().ids[0].tolist() == [0]  # the batch is as before


def test_bad_stores_and_handles(library: ctypes.CDLL, store: OnlineStore) -> None:
    for widths, ends, text in (
        ([1, -1], [], r"widths\[1\] is -1; pass a number of features from 0 on\."),
        ([1], [(0, 1)], r"relation 0 has an end of node type 1, but there are 1 types, from 0 on\."),
        ([1], [(-1, 0)], r"relation 0 has an end of node type -1"),
    ):
        with pytest.raises(StoreError, match=text):
            OnlineStore(library, widths, ends)
    with pytest.raises(StoreError, match=r"graph is null"):
        store.call("add_edges", None, 0, 0, None, None)
    with pytest.raises(StoreError, match=r"snapshot is null"):
        store.call("neighbourhood", None, 0, 0, None, 0, None, 0, store.batch)
    with pytest.raises(StoreError, match=r"type is 0, but the batch has 0 node types, from 0 on; fill it first\."):
        store.call("batch_ids", store.batch, 0, IDS, IDS)


def test_writes_of_several_changes_end_as_they_should(store: OnlineStore) -> None:
    for name in ("commit", "abort"):
        with pytest.raises(StoreError, match=r"no write under way; call store_begin first\."):
            store.call(name, store.handle)
    store.call("begin", store.handle)
    with pytest.raises(StoreError, match=r"This thread has a write of this store under way; finish it") as error:
        store.call("begin", store.handle)
    assert error.value.code == "in use"
    with pytest.raises(StoreError, match=r"A write is under way; call store_commit or store_abort first\."):
        store.call("destroy", store.handle)
    store.add_nodes(0, [(1, 2)])
    with pytest.raises(StoreError, match=r"sources\[0\] is 5"):
        store.add_edges(0, [(5, 0)])
    with pytest.raises(StoreError, match=r"This write has failed already; start another write\."):
        store.add_nodes(0, [(1, 2)])
    with pytest.raises(StoreError, match=r"An operation of this write has failed, so it cannot be finished") as error:
        store.call("commit", store.handle)
    assert error.value.code == "failed write"
    with store.snapshot() as snapshot:
        assert store.sizes(snapshot)[0] == [0, 0, 0]
        with pytest.raises(StoreError, match=r"There are 1 snapshots of this store; release them first\."):
            store.call("destroy", store.handle)
    with store.write():
        (node,) = store.add_nodes(0, [(1, 2)])
        store.add_edges(0, [(node, node)])
    with store.snapshot() as snapshot:
        assert store.sizes(snapshot) == ([1, 0, 0], [1, 0, 0, 0, 0, 0])


def test_c_compilers_read_the_header(tmp_path: Path) -> None:
    source = tmp_path / "reads.c"
    source.write_text('#include "graph_store/store_c.h"\nint main(void) { return store_message() == 0; }\n')
    options = ("-x", "c", "-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only", f"-I{HEADERS}")
    subprocess.run([*compiler_command(), *options, str(source)], check=True)
