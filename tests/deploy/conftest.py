"""A small model of two layers over three types of nodes, exported once for all tests that call it from elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import HeteroConv, SAGEConv

import dacergnn

TYPES = ("author", "paper", "venue")
RELATIONS = (
    ("author", "writes", "paper"), ("paper", "cites", "paper"), ("paper", "rev_writes", "author"),
    ("paper", "appears_in", "venue"),
)  # fmt: skip
Batch = tuple[dict[str, Tensor], dict[tuple[str, str, str], Tensor]]


class Sage(nn.Module):
    """Two layers, with a linear layer for each type behind them."""

    def __init__(self) -> None:
        super().__init__()
        layers = [HeteroConv({own: SAGEConv((16, 16), 16) for own in RELATIONS}) for _ in range(2)]
        self.convs = nn.ModuleList(layers)
        self.out = nn.ModuleDict({own: nn.Linear(16, 4) for own in TYPES})

    def forward(self, x: dict[str, Tensor], edges: dict[tuple[str, str, str], Tensor]) -> dict[str, Tensor]:
        for conv in self.convs:
            x = {own: rows.relu() for own, rows in conv(x, edges).items()}
        return {own: self.out[own](rows) for own, rows in x.items()}


def random_batch(seed: int, largest: int = 30) -> Batch:
    """Features and edges of a graph, perhaps without nodes or edges of a type."""
    generator = torch.Generator().manual_seed(seed)

    def below(bound: int) -> int:
        return int(torch.randint(bound, (), generator=generator))

    counts = {own: below(largest + 1) for own in TYPES}
    x = {own: torch.randn(counts[own], 16, generator=generator) for own in TYPES}
    edges: dict[tuple[str, str, str], Tensor] = {}
    for own in RELATIONS:
        sources, destinations = counts[own[0]], counts[own[2]]
        count = below(4 * largest) if sources and destinations else 0
        ends = [torch.randint(max(bound, 1), (count,), generator=generator) for bound in (sources, destinations)]
        edges[own] = torch.stack(ends)
    return x, edges


@dataclass(frozen=True)
class Deployed:
    """The folder of an exported model, the model, an example, and how a program is linked with the library."""

    folder: Path
    model: nn.Module
    example: Batch

    def __call__(self, batch: Batch) -> dict[str, Tensor]:
        with torch.no_grad():
            return self.model(*batch)

    def link(self) -> list[str]:
        return [f"-I{self.folder}", f"-L{self.folder}", "-lmodel", f"-Wl,-rpath,{self.folder}"]


@pytest.fixture(scope="session")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Deployed:
    torch.manual_seed(0)
    model = Sage().eval()
    folder, example = tmp_path_factory.mktemp("deployed"), random_batch(1)
    compiled = dacergnn.optimize(model)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("CXXFLAGS", raising=False)  # the kernels that users have
        dacergnn.export(compiled, folder, example=example)
    return Deployed(folder, compiled, example)
