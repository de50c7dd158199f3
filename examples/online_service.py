"""Answers requests about a graph that changes: SQLite keeps the graph, and an exported library computes the answers.

At each request the service reads the neighbourhood of the nodes that it is asked about, and gives it to the library as
a batch. With all edges of as many hops as the model has layers, an answer is that of the model on the whole graph. What
answers a request (`neighbourhood` and `scores`) needs neither torch nor dacergnn.

Run: python -m examples.online_service
"""

from __future__ import annotations

import random
import sqlite3
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.nn import HeteroConv, SAGEConv

import dacergnn
from examples.deployment.python.exported_model import ExportedModel

WIDTH, ALL = 8, -1
FANOUTS = (ALL, ALL)  # one for each layer of the model
SCHEMA = """
PRAGMA journal_mode = WAL;  -- readers see what the last finished write has left, and wait for no writer
PRAGMA foreign_keys = ON;   -- both ends of an edge exist, and a node is removed with its edges
CREATE TABLE IF NOT EXISTS user (id INTEGER PRIMARY KEY AUTOINCREMENT, features BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS item (id INTEGER PRIMARY KEY AUTOINCREMENT, features BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS buys (
    user REFERENCES user ON DELETE CASCADE, item REFERENCES item ON DELETE CASCADE, PRIMARY KEY (user, item));
CREATE TABLE IF NOT EXISTS follows (
    fan REFERENCES user ON DELETE CASCADE, star REFERENCES user ON DELETE CASCADE, PRIMARY KEY (fan, star));
CREATE INDEX IF NOT EXISTS buyers ON buys (item, user);
CREATE INDEX IF NOT EXISTS fans ON follows (star, fan);
"""
TYPES = ("user", "item")
SOURCES = {  # of the edges that lead to a node, by relation
    ("user", "buys", "item"): "SELECT user FROM buys WHERE item = ? ORDER BY user",
    ("item", "bought_by", "user"): "SELECT item FROM buys WHERE user = ? ORDER BY item",
    ("user", "follows", "user"): "SELECT fan FROM follows WHERE star = ? ORDER BY fan",
}
Graph = sqlite3.Connection
Relation = tuple[str, str, str]
Batch = tuple[dict[str, dict[int, int]], dict[str, np.ndarray], dict[Relation, np.ndarray]]
"""Rows of nodes by id, features [nodes, WIDTH] by type, and edges [2, E] between rows by relation."""


def connect(path: Path) -> Graph:
    """Opens a database. Each thread of a service has a connection of its own; all share one library."""
    graph = sqlite3.connect(path, isolation_level=None)
    graph.executescript(SCHEMA)
    return graph


def add_node(graph: Graph, node_type: str, features: np.ndarray) -> int:
    """Adds a node and returns its id, which no later node of its type gets."""
    blob = np.asarray(features, np.float32).reshape(WIDTH).tobytes()
    (node,) = graph.execute(f"INSERT INTO {node_type} (features) VALUES (?) RETURNING id", (blob,)).fetchone()
    return node


def features_of(graph: Graph, node_type: str, node: int) -> np.ndarray:
    """Returns the features of a node; raises LookupError if it does not exist."""
    found = graph.execute(f"SELECT features FROM {node_type} WHERE id = ?", (node,)).fetchone()
    if found is None:
        raise LookupError(f"There is no {node_type} {node}; ask for one that was added and has not been removed.")
    return np.frombuffer(found[0], np.float32)


def neighbourhood(graph: Graph, asked: Mapping[str, Iterable[int]], fanouts: Sequence[int]) -> Batch:
    """Returns the nodes that are asked for, and hop by hop those from which edges lead to the nodes found last.

    Each hop takes all edges of a relation into a node, or so many at most. Rows have the order of PyG's NeighborLoader:
    what is asked for comes first, and edges lead to what was found before.
    """
    rows = {t: {node: row for row, node in enumerate(dict.fromkeys(asked.get(t, ())))} for t in TYPES}
    pairs: dict[Relation, list[tuple[int, int]]] = {relation: [] for relation in SOURCES}
    counts = dict.fromkeys(TYPES, 0)
    with graph:  # commits at the end
        graph.execute("BEGIN")  # so that all reads see one state of the graph
        for fanout in fanouts:
            last = {t: list(rows[t])[counts[t] :] for t in TYPES}
            counts = {t: len(rows[t]) for t in TYPES}
            for relation, select in SOURCES.items():
                sources, destinations = rows[relation[0]], rows[relation[2]]
                for node in last[relation[2]]:
                    found = [source for (source,) in graph.execute(select, (node,))]
                    if ALL != fanout < len(found):
                        found = random.sample(found, fanout)
                    pairs[relation] += [(sources.setdefault(s, len(sources)), destinations[node]) for s in found]
        x = {t: [features_of(graph, t, node) for node in rows[t]] for t in TYPES}
    features = {t: np.array(own, np.float32).reshape(-1, WIDTH) for t, own in x.items()}
    return rows, features, {r: np.array(own, np.int64).reshape(-1, 2).T.copy() for r, own in pairs.items()}


def scores(graph: Graph, library: ExportedModel, users: Sequence[int], fanouts: Sequence[int] = FANOUTS) -> np.ndarray:
    """Answers a request: returns a row for each of the users."""
    rows, x, edges = neighbourhood(graph, {"user": users}, fanouts)
    arrays = {f"x_dict.{t}": own for t, own in x.items()}
    arrays |= {f"edge_index_dict.{'__'.join(relation)}": own for relation, own in edges.items()}
    return library(arrays)["out"][[rows["user"][user] for user in users]]


class Network(nn.Module):
    """Computes three scores of each user; a layer reads the edges into a node, and nothing of other edges."""

    def __init__(self) -> None:
        super().__init__()
        convs = [HeteroConv({relation: SAGEConv((WIDTH, WIDTH), WIDTH) for relation in SOURCES}) for _ in FANOUTS]
        self.convs, self.out = nn.ModuleList(convs), nn.Linear(WIDTH, 3)

    def forward(self, x_dict: dict[str, Tensor], edge_index_dict: dict[Relation, Tensor]) -> Tensor:
        for conv in self.convs:
            x_dict = {t: x.relu() for t, x in conv(x_dict, edge_index_dict).items()}
        return self.out(x_dict["user"])


def export(network: Network, folder: Path) -> ExportedModel:
    """Makes a library of a trained network, and loads it."""
    x = {t: torch.zeros(3, WIDTH) for t in TYPES}  # of any size
    edges = {relation: torch.zeros(2, 4, dtype=torch.int64) for relation in SOURCES}
    dacergnn.export(dacergnn.optimize(network.eval()), folder, example=(x, edges))
    return ExportedModel(folder)


def main() -> None:
    """Changes a graph between requests, and shows that the answers are those of the model on the whole graph."""
    torch.manual_seed(0)
    network, draw = Network(), np.random.default_rng(0).normal
    with tempfile.TemporaryDirectory() as folder, export(network, Path(folder)) as library:
        graph = connect(Path(folder) / "graph.sqlite")
        ann, ben, pen = (add_node(graph, node_type, draw(size=WIDTH)) for node_type in ("user", "user", "item"))
        for news, change, values in (
            ("Ben follows Ann", "INSERT INTO follows VALUES (?, ?)", (ben, ann)),
            ("Ben buys a pen", "INSERT INTO buys VALUES (?, ?)", (ben, pen)),
            ("Ben gives the pen back", "DELETE FROM buys WHERE user = ? AND item = ?", (ben, pen)),
            ("Ben leaves", "DELETE FROM user WHERE id = ?", (ben,)),
        ):
            graph.execute(change, values)
            all_nodes = {t: [node for (node,) in graph.execute(f"SELECT id FROM {t}")] for t in TYPES}
            rows, *whole = neighbourhood(graph, all_nodes, [ALL])
            expected = network(*({key: torch.from_numpy(own) for key, own in part.items()} for part in whole))
            print(f"{news}: {scores(graph, library, [ann])[0]}, by PyG {expected[rows['user'][ann]].detach().numpy()}")
        graph.close()


if __name__ == "__main__":
    main()
