"""Measures steps of a layer in several processes, each with a part of the graph."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing

from dacergnn import datasets
from dacergnn.bench.memory import peak_growth, resident, return_freed, settle
from dacergnn.cli.named_layers import native_layer
from dacergnn.distributed import DistributedGraph, partition
from dacergnn.runtime.pool import POOL

Answer = dict[str, Any]


def measured(request: Answer) -> Answer:
    """Returns what a step takes: seconds, the largest peak of a process, and bytes that all receive, in all and at
    the least."""
    count: int = request["processes"]
    parts = spawned(count, max(request["threads"] // count, 1), _measured, request)
    received, rows = (sum(part[name] for part in parts) for name in ("received", "rows"))
    largest: Answer = {name: max(part[name] for part in parts) for name in ("seconds", "peak")}
    return {**largest, "received": received, "least": 2 * rows * request["hidden"] * 4}


def spawned(count: int, threads: int, function: Callable[..., Answer], *arguments: Any) -> list[Answer]:
    """Returns what a function answers in each of several processes that can exchange tensors.

    Args:
        function: Called with their number and the arguments; what it returns is written as JSON.
    """
    with TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(_process, (count, threads, function, arguments, folder), count)  # pyright: ignore[reportPrivateImportUsage]
        return [json.loads(Path(folder, str(rank)).read_text()) for rank in range(count)]


def _process(
    rank: int, count: int, threads: int, function: Callable[..., Answer], arguments: tuple[Any, ...], folder: str
) -> None:
    torch.set_num_threads(threads)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=count)
    Path(folder, str(rank)).write_text(json.dumps(function(count, *arguments)))
    dist.destroy_process_group()


def _measured(count: int, request: Answer) -> Answer:
    graph = datasets.resolve(request["data"]).graph
    edges = torch.stack([graph.index("E", end).long() for end in ("src", "dst")])
    types = graph.index("E", "etype").long(), graph.index("NS", "ntype").long()
    sizes = graph.size("R"), graph.size("T")
    owners = partition(graph, count, method=request["method"])
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(graph.size("NS"), request["hidden"], generator=generator)
    torch.manual_seed(1)
    layer: Any = native_layer(request["model"], graph, request["hidden"], 1)
    del graph
    return_freed()

    def once() -> Answer:
        settle()
        before = resident()
        part = DistributedGraph(edges, owners)
        own_x = x[part.own].requires_grad_()
        own = part.hetero_graph(types[0], sizes[0], types[1], sizes[1], exchanges=not request["rounds"])

        def step() -> None:
            if request["rounds"]:
                result = part.run(layer, own_x, own, memory=request["rounds"])
            else:
                result = layer(own_x, own)
            gradients = torch.autograd.grad(result, [own_x, *layer.parameters()], torch.ones_like(result))
            for gradient in gradients[1:]:
                dist.all_reduce(gradient)

        step()
        settle()
        kept = max(resident() - before, 0)
        growth, _ = peak_growth(step)
        seconds: list[float] = []
        received = 0
        for _ in range(request["steps"]):
            dist.barrier()
            start, already = perf_counter(), part.bytes_received
            step()
            seconds.append(perf_counter() - start)
            received = part.bytes_received - already
        return {"seconds": median(seconds), "peak": kept + growth, "received": received, "rows": part.rows_read}

    once()  # builds the kernels, and loads what builds need
    layer.forget_calls()
    POOL.clear()
    return once()
