"""A service whose graph SQLite keeps: batches are those of loaders, and answers those of PyG on the whole graph."""

from __future__ import annotations

import random
import re
import sqlite3
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import HeteroData

from dacergnn.sampler import neighbor_loader
from examples import online_service
from examples.deployment.python.exported_model import ExportedModel
from examples.online_service import ALL, SOURCES, TYPES, WIDTH, Network, Relation, add_node, neighbourhood, scores

ENDS = {"buys": ("user", "item"), "follows": ("user", "user")}
pytestmark = pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec.*:FutureWarning")


class Graph:
    """Makes the same random changes to a database and to a plain record of a graph."""

    def __init__(self, path: Path, seed: int = 0, nodes: int = 8, edges: int = 20) -> None:
        self.database, self.random = online_service.connect(path), random.Random(seed)
        self.nodes: dict[str, dict[int, list[float]]] = {t: {} for t in TYPES}
        self.pairs: dict[str, set[tuple[int, int]]] = {table: set() for table in ENDS}
        for _ in range(nodes):
            [self.add_node(t) for t in TYPES]
        for _ in range(edges):
            [self.add_edge(table) for table in ENDS]

    def add_node(self, node_type: str) -> int:
        features = [self.random.gauss(0, 1) for _ in range(WIDTH)]
        node = add_node(self.database, node_type, np.array(features))
        assert node not in self.nodes[node_type]
        self.nodes[node_type][node] = features
        return node

    def add_edge(self, table: str) -> None:
        source, destination = (self.random.choice([*self.nodes[t]]) for t in ENDS[table])
        pair = (source, destination)
        if pair not in self.pairs[table]:
            self.database.execute(f"INSERT INTO {table} VALUES (?, ?)", pair)
        self.pairs[table].add(pair)

    def remove_edge(self, table: str) -> None:
        pair = self.random.choice(sorted(self.pairs[table]))
        columns = {"buys": ("user", "item"), "follows": ("fan", "star")}[table]
        self.database.execute(f"DELETE FROM {table} WHERE {columns[0]} = ? AND {columns[1]} = ?", pair)
        self.pairs[table].remove(pair)

    def remove_node(self, node_type: str, node: int) -> None:
        self.database.execute(f"DELETE FROM {node_type} WHERE id = ?", (node,))
        del self.nodes[node_type][node]
        for table, ends in ENDS.items():
            self.pairs[table] = {p for p in self.pairs[table] if (node_type, node) not in zip(ends, p, strict=True)}

    def edges_of(self, relation: Relation) -> list[tuple[int, int]]:
        """Returns the ids of sources and destinations, in the order of the database's answers."""
        if relation[1] == "bought_by":
            return sorted((item, user) for user, item in self.pairs["buys"])
        return sorted(self.pairs[relation[1]])

    def whole(self) -> tuple[HeteroData, dict[str, dict[int, int]]]:
        """Returns the graph as it is, and the row of each node by its id."""
        data, rows = HeteroData(), {t: {node: row for row, node in enumerate(self.nodes[t])} for t in TYPES}
        for t in TYPES:
            data[t].x = torch.tensor([*self.nodes[t].values()])
        for key in SOURCES:
            ends = [[rows[key[0]][a], rows[key[2]][b]] for a, b in self.edges_of(key)]
            data[key].edge_index = torch.tensor(ends, dtype=torch.int64).reshape(-1, 2).T.contiguous()
        return data, rows


@pytest.fixture(scope="module")
def network() -> Network:
    torch.manual_seed(0)
    return Network()


@pytest.fixture(scope="module")
def folder(network: Network, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("library")
    online_service.export(network, made).close()
    return made


@pytest.fixture
def library(folder: Path) -> ExportedModel:
    return ExportedModel(folder, threads=1)


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    made = Graph(tmp_path / "graph.sqlite")
    yield made
    made.database.close()


def test_answers_are_those_of_the_model_on_the_graph_as_it_is(
    graph: Graph, network: Network, library: ExportedModel
) -> None:
    for step in range(60):
        change = (graph.add_edge, graph.add_edge, graph.remove_edge)[step % 3]
        change(graph.random.choice([*ENDS]))
        if step % 10 == 0:
            graph.add_node(TYPES[step % 20 // 10])
        if step % 10 == 5:
            graph.remove_node(node_type := TYPES[step % 20 // 10], graph.random.choice([*graph.nodes[node_type]]))
        asked = graph.random.sample([*graph.nodes["user"]], 3)
        data, rows = graph.whole()
        with torch.no_grad():
            expected = network(data.x_dict, data.edge_index_dict)[[rows["user"][user] for user in asked]]
        torch.testing.assert_close(torch.tensor(scores(graph.database, library, asked)), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("hops", [0, 1, 2, 4])
def test_batches_with_all_edges_are_those_of_loaders(graph: Graph, hops: int) -> None:
    data, rows = graph.whole()
    asked = graph.random.sample([*rows["user"]], 3)
    seeds = torch.tensor([rows["user"][user] for user in asked])
    (expected,) = neighbor_loader(data, [-1] * hops, ("user", seeds), batch_size=3)
    found, x, edges = neighbourhood(graph.database, {"user": [*asked, asked[0]]}, [ALL] * hops)
    for t in TYPES:
        assert [*found[t].values()] == [*range(len(found[t]))]
        assert [rows[t][node] for node in found[t]] == expected[t].n_id.tolist()
        assert x[t].tolist() == expected[t].x.tolist()
    for key in SOURCES:
        assert edges[key].tolist() == expected[key].edge_index.tolist()


@pytest.mark.parametrize("fanout", [0, 1, 2])
def test_batches_have_at_most_as_many_edges_as_asked_for(graph: Graph, fanout: int) -> None:
    asked = [*graph.nodes["user"]]
    rows, _, edges = neighbourhood(graph.database, {"user": asked}, [fanout] * 2)
    ids = {t: [*rows[t]] for t in TYPES}
    assert ids["user"][: len(asked)] == asked
    for key in SOURCES:
        into = graph.edges_of(key)
        taken = [(ids[key[0]][s], ids[key[2]][d]) for s, d in edges[key].T.tolist()]
        assert set(taken) <= set(into)
        degrees, counts = Counter(d for _, d in into), Counter(d for _, d in taken)
        assert len(set(taken)) == len(taken)
        assert all(counts[node] == min(degrees[node], fanout) for node in ids[key[2]])


def test_nodes_that_do_not_exist_are_named(graph: Graph, library: ExportedModel) -> None:
    gone = graph.add_node("user")
    graph.remove_node("user", gone)
    for node in (gone, 99):
        with pytest.raises(LookupError, match=rf"There is no user {node}; ask for one that was added and has not been"):
            scores(graph.database, library, [*graph.nodes["user"], node])
    with pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY"):
        graph.database.execute("INSERT INTO follows VALUES (?, ?)", (gone, min(graph.nodes["user"])))
    assert graph.add_node("user") > gone  # a removed node does not come back as another
    assert len(scores(graph.database, library, [*graph.nodes["user"]])) == len(graph.nodes["user"])


def test_a_node_without_edges(graph: Graph, network: Network, library: ExportedModel) -> None:
    alone = graph.add_node("user")
    none = {key: torch.zeros(2, 0, dtype=torch.int64) for key in SOURCES}
    x = {"user": torch.tensor([graph.nodes["user"][alone]]), "item": torch.zeros(0, WIDTH)}
    with torch.no_grad():
        expected = network(x, none)
    for asked in ([alone], [alone, alone]):
        found = torch.tensor(scores(graph.database, library, asked))
        torch.testing.assert_close(found, expected.expand(len(asked), -1), rtol=1e-5, atol=1e-5)
    assert scores(graph.database, library, []).shape == (0, 3)


def test_a_request_sees_one_state_of_the_graph(graph: Graph, library: ExportedModel, tmp_path: Path) -> None:
    """Another connection removes all nodes in the middle of a request."""
    users = [*graph.nodes["user"]]
    expected = scores(graph.database, library, users)
    writer = online_service.connect(tmp_path / "graph.sqlite")

    def remove(statement: str) -> None:
        if statement.startswith("SELECT features"):
            for t in TYPES:
                writer.execute(f"DELETE FROM {t}")

    graph.database.set_trace_callback(remove)
    assert np.array_equal(scores(graph.database, library, users), expected)
    graph.database.set_trace_callback(None)
    assert writer.execute("SELECT count(*) FROM user").fetchone() == (0,)
    with pytest.raises(LookupError, match="There is no user"):
        scores(graph.database, library, users)
    writer.close()


def test_what_the_example_prints(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(online_service, "export", lambda network, _: ExportedModel(folder))  # of the same weights
    online_service.main()
    lines = capsys.readouterr().out.splitlines()
    found = [[float(number) for number in re.findall(r"-?\d\.\d+(?:e-\d+)?", line)] for line in lines]
    assert lines[0].startswith("Ben follows Ann: ")
    assert all(numbers[:3] == pytest.approx(numbers[3:], abs=1e-5) for numbers in found)
    assert [len(numbers) for numbers in found] == [6] * 4
    assert found[0] == found[2]
    assert len({tuple(numbers) for numbers in found}) == 3
