"""Measures requests to exported libraries against eager PyTorch: nodes sampled around single ones.

Run `python -m benchmarks exported_requests`. It uses one thread, and prints medians and the 99th percentile.
"""

from __future__ import annotations

import ctypes
import os
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import dacergnn
from benchmarks.options import question

NODE_TYPES = [f"type{i}" for i in range(5)]
RELATIONS = [(NODE_TYPES[i % 5], f"relation{i}", NODE_TYPES[(2 * i + 1 + i // 5) % 5]) for i in range(20)]
ASKED = NODE_TYPES[1]
# Adds up the time of the programs of a call, for their share of it.
CLOCK = """
#pragma once
#include <chrono>
inline double *kernel_seconds() { static double total = 0; return &total; }
#define DEPLOY_RUN(call) do { \\
    const auto begun = std::chrono::steady_clock::now(); call; \\
    *kernel_seconds() += std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count(); \\
  } while (0)
extern "C" __attribute__((visibility("default"), used)) inline double model_kernel_seconds() {
  const double total = *kernel_seconds();
  *kernel_seconds() = 0;
  return total;
}
"""


class Network(nn.Module):
    """Runs two layers over dictionaries, and a linear layer over the nodes that are asked for."""

    def __init__(self, layer: Callable[[], nn.Module], width: int) -> None:
        super().__init__()
        self.layers, self.out = nn.ModuleList([layer(), layer()]), nn.Linear(width, 8)

    def forward(self, x_dict: dict[str, Tensor], edge_index_dict: dict[Any, Tensor]) -> Tensor:
        for layer in self.layers:
            x_dict = {**x_dict, **{name: x.relu() for name, x in layer(x_dict, edge_index_dict).items()}}
        return self.out(x_dict[ASKED])


def networks(width: int) -> dict[str, nn.Module]:
    """Returns the networks by name."""

    def convs(layer: Callable[[], pyg.MessagePassing]) -> Callable[[], nn.Module]:
        return lambda: pyg.HeteroConv({key: layer() for key in RELATIONS})

    ends, half = (width, width), width // 2
    layers: dict[str, Callable[[], nn.Module]] = {
        "HGT": lambda: pyg.HGTConv(width, width, (NODE_TYPES, RELATIONS), heads=2),
        "HeteroConv of SAGE": convs(lambda: pyg.SAGEConv(ends, width)),
        "HeteroConv of GAT": convs(lambda: pyg.GATConv(ends, half, heads=2, add_self_loops=False)),
        "HeteroConv of GATv2": convs(lambda: pyg.GATv2Conv(ends, half, heads=2, add_self_loops=False)),
    }
    return {name: Network(layer, width).eval() for name, layer in layers.items()}


def neighbourhood(rng: np.random.Generator, width: int, fanout: int, nodes: int = 100_000) -> tuple[Any, Any]:
    """Returns the arguments of a request for one node: its neighbourhood of two hops in a random graph."""
    places: dict[str, dict[int, int]] = {name: {} for name in NODE_TYPES}
    edges: dict[Any, list[tuple[int, int]]] = {key: [] for key in RELATIONS}
    front = [(ASKED, places[ASKED].setdefault(int(rng.integers(nodes)), 0))]
    for _ in range(2):
        reached: list[tuple[str, int]] = []
        for name, place in front:
            for key in RELATIONS:
                if key[2] != name:
                    continue
                for node in rng.integers(nodes, size=fanout).tolist():
                    known = places[key[0]]
                    if node not in known:
                        known[node] = len(known)
                        reached.append((key[0], known[node]))
                    edges[key].append((known[node], place))
        front = reached
    x_dict = {name: torch.randn(len(known), width) for name, known in places.items()}
    return x_dict, {
        key: torch.tensor(own, dtype=torch.int64).reshape(-1, 2).T.contiguous() for key, own in edges.items()
    }


class Input(ctypes.Structure):
    _fields_ = (("data", ctypes.c_void_p), ("sizes", ctypes.c_int64 * 4))


class Output(ctypes.Structure):
    _fields_ = (("data", ctypes.c_void_p), ("bytes", ctypes.c_int64), ("sizes", ctypes.c_int64 * 4))


def measured(network: nn.Module, requests: list[Any], repeat: int, folder: Path) -> str:
    """Returns a line with the times of a network."""
    with torch.no_grad():
        expected = [network(*request) for request in requests]
        eager: list[float] = []
        for request in requests * 2:
            begun = time.perf_counter()
            network(*request)
            eager.append(time.perf_counter() - begun)
        model = dacergnn.optimize(network)
        model(*requests[0])
    clock = folder / "clock.h"
    clock.write_text(CLOCK)
    os.environ["CXXFLAGS"] = f"-include {clock}"
    made = dacergnn.export(model, folder, example=requests[0])
    del os.environ["CXXFLAGS"]
    library = ctypes.CDLL(str(made.library))
    library.model_kernel_seconds.restype = ctypes.c_double
    served = ctypes.c_void_p()
    begun = time.perf_counter()
    assert library.model_create(None, ctypes.byref(served)) == 0
    start = time.perf_counter() - begun
    calls: list[tuple[Any, Any, Tensor]] = []
    for request, wanted in zip(requests, expected, strict=True):
        tensors = pytree.tree_leaves(request)
        inputs, outputs, result = (Input * len(tensors))(), (Output * 1)(), torch.empty_like(wanted)
        for own, tensor in zip(inputs, tensors, strict=True):
            own.data, own.sizes[: tensor.dim()] = tensor.data_ptr(), list(tensor.shape)
        outputs[0].data, outputs[0].bytes = result.data_ptr(), result.nbytes
        assert library.model_run(served, inputs, outputs, 1) == 0
        torch.testing.assert_close(result, wanted, rtol=1e-4, atol=1e-4)
        calls.append((inputs, outputs, result))
    times, kernels = np.empty((2, repeat * len(calls)))
    library.model_kernel_seconds()
    for turn in range(len(times)):
        inputs, outputs, _ = calls[turn % len(calls)]
        begun = time.perf_counter()
        library.model_run(served, inputs, outputs, 1)
        times[turn] = time.perf_counter() - begun
        kernels[turn] = library.model_kernel_seconds()
    own, last, alone = np.median(times), np.percentile(times, 99), np.median(kernels)
    return "   ".join(
        [
            f"eager {np.median(eager) * 1e3:5.2f} ms",
            f"library {own * 1e6:4.0f} us (99 %: {last * 1e6:4.0f})",
            f"kernels {alone * 1e6:4.0f} us",
            f"library/kernels {own / alone:.2f} (99 %: {last / alone:.2f})",
            f"eager/library {np.median(eager) / own:4.1f}",
            f"{made.library.stat().st_size / 1e6:.1f} MB",
            f"start {start * 1e3:.2f} ms",
        ]
    )


@question(width=16, fanout=3, repeat=3)
def main(width: int = 64, fanout: int = 10, repeat: int = 60) -> None:
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    requests = [neighbourhood(rng, width, fanout) for _ in range(12)]
    for name, network in networks(width).items():
        with tempfile.TemporaryDirectory() as folder:
            click.echo(f"{name:20} {measured(network, requests, repeat, Path(folder))}")
