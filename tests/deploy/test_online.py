"""A model and a store answer requests about a graph that changes as the model does on the graph as it is."""

from __future__ import annotations

import ctypes
import random
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn

import dacergnn
from dacergnn import DacergnnError
from tests.deploy.online_store import Batch, OnlineStore
from tests.support.library import Library, export

TYPES, WIDTH = ["user", "item"], 8
RELATIONS = [("user", "buys", "item"), ("item", "bought_by", "user"), ("user", "follows", "user")]
ENDS = [(TYPES.index(key[0]), TYPES.index(key[-1])) for key in RELATIONS]
ALL = [[-1] * len(RELATIONS)]
pytestmark = pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec.*:FutureWarning")


class Network(nn.Module):
    """Runs two layers, and returns a score for each user."""

    def __init__(self) -> None:
        super().__init__()
        convs = [{key: pyg.SAGEConv((WIDTH, WIDTH), WIDTH) for key in RELATIONS} for _ in range(2)]
        self.layers = nn.ModuleList([pyg.HeteroConv(own) for own in convs])
        self.out = nn.Linear(WIDTH, 3)

    def forward(self, x_dict: dict[str, Tensor], edge_index_dict: dict[Any, Tensor]) -> Tensor:
        for layer in self.layers:
            x_dict = {name: x.relu() for name, x in layer(x_dict, edge_index_dict).items()}
        return self.out(x_dict["user"])


class Service:
    """Holds a model as a library, and the store of its graph."""

    def __init__(self, folder: Path) -> None:
        torch.manual_seed(0)
        self.model = Network().eval()
        example = self.arguments(Batch([], [np.zeros((3, WIDTH), np.float32)] * 2, [np.zeros((2, 4), np.int64)] * 3))
        self.library = Library(export(dacergnn.optimize(self.model), folder / "model", example=example))
        library, header = dacergnn.deploy.export_store(folder / "store")
        assert header.is_file()
        self.store_library = ctypes.CDLL(str(library))
        self.store_library.store_message.restype = ctypes.c_char_p
        self.store_library.store_snapshot_release.restype = self.store_library.store_batch_destroy.restype = None

    def store(self) -> OnlineStore:
        """Returns an empty store, with a batch of its own."""
        return OnlineStore(self.store_library, [WIDTH] * len(TYPES), ENDS)

    @staticmethod
    def arguments(batch: Batch) -> tuple[dict[str, Tensor], dict[Any, Tensor]]:
        """Returns the arguments of the model for a batch."""
        features = dict(zip(TYPES, map(torch.from_numpy, map(np.copy, batch.features)), strict=True))
        return features, dict(zip(RELATIONS, map(torch.from_numpy, map(np.copy, batch.edges)), strict=True))

    def answer(self, batch: Batch, seeds: int) -> Tensor:
        """Returns the scores of the seeds of a batch by the library."""
        features, edges = self.arguments(batch)
        return self.library(*features.values(), *edges.values())[0][:seeds]

    def expected(self, store: OnlineStore, snapshot: ctypes.c_void_p, users: list[int], items: list[int]) -> Tensor:
        """Returns the scores of all users by the model on the whole graph."""
        whole = Batch([], [np.zeros((0, WIDTH), np.float32)] * 2, [np.zeros((2, 0), np.int64)] * 3)
        parts = [store.neighbourhood(snapshot, i, ids, ALL) for i, ids in enumerate((users, items))]
        places = [{own: place for place, own in enumerate(ids)} for ids in (users, items)]
        for i, part in enumerate(parts):
            whole.features[i] = part.features[i][: len(places[i])]
        for number, (source, destination) in enumerate(ENDS):
            part = parts[destination]  # has all edges into nodes of this type
            ends = zip(part.edges[number], (source, destination), strict=True)
            ids = [[places[t][int(part.ids[t][row])] for row in rows] for rows, t in ends]
            whole.edges[number] = np.array(ids, np.int64).reshape(2, -1)
        with torch.no_grad():
            return self.model(*self.arguments(whole))


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Service:
    return Service(tmp_path_factory.mktemp("online"))


def _filled(service: Service, users: int, items: int, rng: random.Random) -> tuple[OnlineStore, list[int], list[int]]:
    store = service.store()
    generator = np.random.default_rng(rng.randrange(1 << 30))
    made = [store.add_nodes(t, generator.normal(size=(n, WIDTH))) for t, n in enumerate((users, items))]
    return store, made[0], made[1]


def test_answers_are_those_of_the_model_on_the_graph_as_it_is(service: Service) -> None:
    rng = random.Random(0)
    store, users, items = _filled(service, 12, 9, rng)
    edges: list[tuple[int, tuple[int, int]]] = []
    for step in range(60):
        if edges and rng.random() < 0.3:
            relation, pair = edges.pop(rng.randrange(len(edges)))
            store.remove_edges(relation, [pair])
        elif step == 30:
            gone = users.pop(3)
            store.remove_nodes(0, [gone])
            edges = [(r, p) for r, p in edges if gone not in [n for n, t in zip(p, ENDS[r], strict=True) if t == 0]]
        else:
            relation = rng.randrange(len(RELATIONS))
            ends = [rng.choice((users, items)[t]) for t in ENDS[relation]]
            edges.append((relation, (ends[0], ends[1])))
            store.add_edges(relation, [edges[-1][1]])
        seeds = rng.sample(users, 3)
        with store.snapshot() as snapshot:
            answer = service.answer(store.neighbourhood(snapshot, 0, seeds, ALL * 2), len(seeds))
            expected = service.expected(store, snapshot, users, items)
        torch.testing.assert_close(answer, expected[[users.index(s) for s in seeds]], rtol=1e-5, atol=1e-5)
    store.close()


def test_answers_while_others_write(service: Service) -> None:
    rng = random.Random(1)
    store, users, items = _filled(service, 200, 100, rng)
    done = threading.Event()
    problems: list[BaseException] = []

    def write() -> None:
        try:
            while not done.is_set():
                pairs = [(rng.choice(users), rng.choice(items)) for _ in range(20)]
                with store.write():
                    store.add_edges(0, pairs)
                    store.add_edges(1, [(b, a) for a, b in pairs])
                with store.write():
                    store.remove_edges(0, pairs[::2])
                    store.remove_edges(1, [(b, a) for a, b in pairs[::2]])
        except BaseException as problem:
            problems.append(problem)

    writer = threading.Thread(target=write)
    writer.start()
    reader = OnlineStore.__new__(OnlineStore)
    reader.__dict__.update(store.__dict__)
    reader.batch = ctypes.c_void_p()
    reader.call("batch_create", ctypes.byref(reader.batch))
    try:
        for turn in range(25):
            seeds = [users[(turn * 7 + i) % len(users)] for i in range(4)]
            with reader.snapshot() as snapshot:
                _, counts = reader.sizes(snapshot)
                assert counts[0] == counts[1]  # of one write, readers see all or nothing
                answer = service.answer(reader.neighbourhood(snapshot, 0, seeds, ALL * 2), len(seeds))
                expected = service.expected(reader, snapshot, users, items)
            torch.testing.assert_close(answer, expected[[users.index(s) for s in seeds]], rtol=1e-5, atol=1e-5)
    finally:
        done.set()
        writer.join()
    assert not problems
    reader.library.store_batch_destroy(reader.batch)
    store.close()


def test_a_store_is_built_for_one_kind_of_processor(tmp_path: Path) -> None:
    with pytest.raises(DacergnnError, match="a store is built for one kind of processor"):
        dacergnn.deploy.export_store(tmp_path, target_cpu=["x86-64-v2", "x86-64-v3"])
