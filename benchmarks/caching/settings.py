"""Sets what a run of the suite measures."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import product

from benchmarks.caching.scheme import expand
from benchmarks.caching.task import Limits, Task
from benchmarks.named import Named
from benchmarks.relational.settings import check
from dacergnn.config import AGGREGATIONS, Config
from dacergnn.datasets.clouds import CLOUDS
from dacergnn.errors import DacergnnError

MODELS = ("gcn", "gat", "gatv2", "monet", "edgeconv", "sage", "gin")
WITH_HEADS = ("gat", "gatv2")
ON_CLOUDS = ("edgeconv",)
"""Models of points and their neighbours; the others are run on all other graphs."""
ORDERED = ("gcn", "sage", "gin")
"""Models whose product may come before the sum over neighbours or after it."""
DATA = ("cora", "citeseer", "pubmed", "flickr~", "arxiv~", "clouds~")
NETWORKS = ("layer", "network", "sparse")
SIZES = (8, 16, 32, 64, 128, 256, 512, 1024)
SIZES_OF_HEADS = (8, 16, 32, 64, 128)
SIZES_ON_CLOUDS = (64,)
GRADIENTS = ("with", "without")
AGAINST = ("pyg", "pyg-compiled", "dgl")
PEERS = {
    "pyg": (Named("pyg", "COO"), Named("pyg", "CSR"), Named("pyg", "EdgeIndex")),
    "pyg-compiled": (Named("pyg", "COO compiled"),),
    "dgl": (Named("dgl", "eager"),),
}
ON_SPARSE = {"pyg": (Named("pyg", "COO sparse"),)}
"""Further peers, which take the features as a sparse tensor, too; the others take them as a dense one."""


@dataclass(frozen=True)
class CachingSettings:
    """Describes a run: every combination is one case; cases of one network on one graph are measured together.

    Args:
        models: Comma-separated, as all lists here.
        data: Names of graphs.
        networks: Of layer, network, sparse: one layer on random features, two on those of the data set, two whose first
            takes them as a sparse tensor.
        hidden: Sizes, of each head where there are heads; by default 8 to 1024, 8 to 128 with heads, 64 on clouds.
        gradients: Whether the input of a single layer needs gradients.
        strategies: What is saved: cache_all, recompute_all, papers, auto, budget:BYTES, any of them +cache:NAME or
            +recompute:NAME and called LABEL=..., or 'named' for all that papers name.
        formats: Sparse formats of traversals: auto, csr, csc, coo, ell, hybrid.
        orders: Of a product and a sum over neighbours: auto, transform_first, aggregate_first.
        against: Peers, in turns with ours: pyg, pyg-compiled, dgl.
        features: Input features of a single layer.
        heads: Of layers that attend.
        memory: Measure peak memory, each case in a process of its own.
    """

    models: tuple[str, ...] = MODELS
    data: tuple[str, ...] = DATA
    networks: tuple[str, ...] = NETWORKS[:2]
    hidden: tuple[int, ...] = ()
    gradients: tuple[str, ...] = GRADIENTS
    strategies: tuple[str, ...] = ("cache_all", "recompute_all", "papers", "auto")
    formats: tuple[str, ...] = ("auto",)
    orders: tuple[str, ...] = ("auto",)
    against: tuple[str, ...] = ()
    features: int = 64
    heads: int = 8
    memory: bool = True
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        for option, values, known in (
            ("models", self.models, MODELS),
            ("networks", self.networks, NETWORKS),
            ("gradients", self.gradients, GRADIENTS),
            ("orders", self.orders, AGGREGATIONS),
            ("modes", self.limits.modes, Limits.modes),
        ):
            check(option, values, known)
        check("against", self.against or AGAINST, AGAINST)
        counts = {"hidden": self.hidden, "features": self.features, "heads": self.heads, "repeat": self.limits.repeat}
        if min(*self.hidden, self.features, self.heads, self.limits.repeat) < 1:
            raise DacergnnError(f"{', '.join(f'{name}={n}' for name, n in counts.items())}: all must be >= 1")
        for name in self.formats:
            try:
                Config(adjacency=name)
            except DacergnnError as error:
                raise DacergnnError(f"formats: {error}") from error
        for model in self.models:
            expand(self.strategies, model)

    def tasks(self) -> list[Task]:
        """Returns all networks on all graphs, the smaller sizes of each first."""
        tasks: list[Task] = []
        for data, model, network in product(self.data, self.models, self.networks):
            if (model in ON_CLOUDS) != data.startswith((CLOUDS.name, "shapes")):
                continue
            heads = self.heads if model in WITH_HEADS else 1
            gradients = self.gradients if network == "layer" else ("without",)
            for size, gradient in product(self._sizes(model), gradients):
                tasks.append(Task(model, data, network, self.features, size, heads, gradient == "with"))
        return tasks

    def _sizes(self, model: str) -> tuple[int, ...]:
        if self.hidden:
            return self.hidden
        return SIZES_ON_CLOUDS if model in ON_CLOUDS else SIZES_OF_HEADS if model in WITH_HEADS else SIZES

    def candidates(self, task: Task) -> tuple[Named, ...]:
        """Returns our candidates by every scheme, and the peers."""
        orders = self.orders if task.model in ORDERED else ("auto",)
        own: list[Named] = []
        for (base, config), name, order in product(expand(self.strategies, task.model).items(), self.formats, orders):
            label = ", ".join([base, *(part for part in (name, order) if part != "auto")])
            own.append(Named("ours", label, replace(config, adjacency=name, aggregation=order)))
        sparse = ON_SPARSE if task.network == "sparse" else {}
        return (*own, *(peer for name in self.against for peer in (*PEERS[name], *sparse.get(name, ()))))
