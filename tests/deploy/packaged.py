"""Models of two layers over several node types, batches for them, and files of tensors that C++ reads and writes."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import HeteroConv, HGTConv, SAGEConv

import dacergnn

NODES = ["paper", "author"]
RELATIONS = [("author", "writes", "paper"), ("paper", "cites", "paper"), ("paper", "by", "author")]
SIZES = [(30, 20, 80), (50, 7, 300), (1, 1, 1), (1, 5, 2), (5, 0, 10), (0, 5, 10), (3, 3, 0), (0, 0, 0)]
"""Numbers of papers, of authors, and of edges of each relation between nodes."""
TYPES = [torch.float32, torch.int64, torch.float64, torch.int32]
"""Types of elements by their numbers in files."""


class TwoLayers(nn.Module):
    """Classifies papers: projections, two convolutions with ReLU and norms in between, and a linear layer."""

    def __init__(self, convolution: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.project = nn.ModuleDict({name: nn.Linear(8, 16) for name in NODES})
        self.convolutions = nn.ModuleList([convolution() for _ in range(2)])
        self.norm = nn.LayerNorm(16)
        self.classify = nn.Linear(16, 4)

    def forward(self, x_dict: dict[str, Tensor], edge_index_dict: dict[Any, Tensor]) -> Tensor:
        x_dict = {name: F.relu(self.project[name](x)) for name, x in x_dict.items()}
        for convolution in self.convolutions:
            x_dict = {name: self.norm(F.relu(x)) for name, x in convolution(x_dict, edge_index_dict).items()}
        return self.classify(x_dict["paper"])


def hgt() -> nn.Module:
    return HGTConv(16, 16, (NODES, RELATIONS), heads=2)


def hetero_sage() -> nn.Module:
    return HeteroConv({relation: SAGEConv((16, 16), 16) for relation in RELATIONS}, aggr="sum")


def batch(papers: int, authors: int, edges: int) -> tuple[dict[str, Tensor], dict[Any, Tensor]]:
    generator = torch.Generator().manual_seed(papers + authors + edges)
    count = dict(zip(NODES, (papers, authors), strict=True))
    x_dict = {name: torch.randn(count[name], 8, generator=generator) for name in NODES}
    indices: dict[Any, Tensor] = {}
    for source, name, destination in RELATIONS:
        size = edges if count[source] and count[destination] else 0
        ends = [torch.randint(max(count[end], 1), (size,), generator=generator) for end in (source, destination)]
        indices[source, name, destination] = torch.stack(ends)
    return x_dict, indices


def trained(convolution: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    model = dacergnn.optimize(TwoLayers(convolution))
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(3):
        optimizer.zero_grad()
        F.cross_entropy(model(*batch(*SIZES[0])), torch.arange(SIZES[0][0]) % 4).backward()
        optimizer.step()
    return model.eval()


def write_tensors(path: Path, tensors: Sequence[Tensor]) -> None:
    content = [struct.pack("q", len(tensors))]
    for tensor in tensors:
        head = (TYPES.index(tensor.dtype), tensor.dim(), *tensor.shape)
        content += [struct.pack(f"{len(head)}q", *head), tensor.contiguous().numpy().tobytes()]
    path.write_bytes(b"".join(content))


def read_tensors(path: Path) -> list[Tensor]:
    content, tensors, at = path.read_bytes(), list[Tensor](), 8
    for _ in range(struct.unpack_from("q", content)[0]):
        dtype, rank = struct.unpack_from("2q", content, at)
        shape = struct.unpack_from(f"{rank}q", content, at + 16)
        at += 16 + 8 * rank
        tensor = torch.empty(shape, dtype=TYPES[dtype])
        if tensor.numel():
            tensor = torch.frombuffer(bytearray(content[at : at + tensor.nbytes]), dtype=TYPES[dtype]).view(shape)
        at += tensor.nbytes
        tensors.append(tensor)
    return tensors


def built_program(source: Path, folder: Path) -> Path:
    """Returns a program in C++ that uses all of torch."""
    root, program = Path(torch.__file__).parent, folder / source.stem
    includes = [f"-I{root / 'include'}", f"-I{root / 'include/torch/csrc/api/include'}"]
    libraries = [
        f"-L{root / 'lib'}",
        f"-Wl,-rpath,{root / 'lib'}",
        "-Wl,--no-as-needed",
        "-ltorch",
        "-ltorch_cpu",
        "-lc10",
    ]
    command = ["g++", "-std=c++20", "-O0", "-pthread", *includes, str(source), "-o", str(program), *libraries, "-ldl"]
    subprocess.run(command, check=True)
    return program


def without_package(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Runs Python where this package is not found."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
