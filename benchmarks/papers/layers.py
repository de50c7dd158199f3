"""Measures relational layers for the figures: times of configurations in turns, kinds of operators, allocated bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from benchmarks.named import Named
from benchmarks.papers.artefact import Scale
from benchmarks.papers.rows import by_name
from benchmarks.relational.candidate import Built, make_step, unwrapped
from benchmarks.relational.experiment import Layers
from benchmarks.relational.peers import candidates
from benchmarks.relational.problem import Problem
from benchmarks.relational.record import row_of
from benchmarks.rows import Group
from dacergnn.api import explain
from dacergnn.bench.process import OUT_OF_MEMORY
from dacergnn.bench.runner import times
from dacergnn.cli.options import present
from dacergnn.config import Config
from dacergnn.profiling import OperatorProfile, profile

BASE = ("gemm_scale_fusion", "traversal_fusion")
CONFIGS: dict[str, Config] = {
    "unoptimized": Config("hector", BASE),
    "C": Config("hector", (*BASE, "compact_materialization")),
    "R": Config("hector", (*BASE, "linear_operator_reordering")),
    "C+R": Config("hector"),
    "O2": Config("O2"),
}
"""Hector's configurations, with compaction (C) and linear operator reordering (R), and ours."""
MODES = {"infer": "inference", "train": "training"}
_MEMORY = 10_000_000_000
"""Bytes that a layer of a library may need by estimate."""


def case(model: str, data: str, mode: str, scale: Scale, hidden: int = 64) -> Layers:
    """Returns the ways to compute a layer on a graph, on a synthetic one where the real one is not on this machine."""
    return Layers(model, present(data), mode, hidden, scale.seed, scale.device, scale.rates, _MEMORY)


def problem(data: str, scale: Scale) -> Problem:
    """Returns a graph with random features."""
    return case("rgcn", data, "infer", scale).problem


def layer_times(
    model: str, data: str, mode: str, scale: Scale, configs: Mapping[str, Config], against: tuple[str, ...] = (),
    hidden: int = 64,
) -> Group:  # fmt: skip
    """Times configurations of a layer in turns, with layers of libraries (``against``).

    Configurations that are out of memory have no time, nor have layers of libraries that fail; any other error of ours
    is raised.
    """
    peers = candidates(model, against, scale.device)
    ways = [*(Named("ours", name, config) for name, config in configs.items()), *(peer.named for peer in peers)]
    found = times(case(model, data, mode, scale, hidden), ways, scale.limits((mode,)))["rows"]
    by_name(found, OUT_OF_MEMORY)
    shared = {"model": model, "data": data, "mode": mode}
    return Group(tuple(shared | row_of(way, model, row, mode) for way, row in found.items()))


def built(model: str, data: str, config: Config, scale: Scale, hidden: int = 64) -> Built:
    """Returns a compiled layer on a graph."""
    own = case(model, data, "train", scale, hidden)
    return own.find(Named("ours", "ours", config)).build(own.problem, own.shared, unwrapped)


class _Called(nn.Module):
    """Calls a layer on its graph."""

    def __init__(self, layer: Built) -> None:
        super().__init__()
        self.layer = layer.layer
        self._run = layer.forward

    def forward(self) -> Any:
        return self._run()


def operators(layer: Built, mode: str = "train") -> OperatorProfile:
    """Measures the operators of a layer: of the forward, and in training of the backward, too."""
    with torch.set_grad_enabled(mode == "train"):
        return profile(_Called(layer))


def allocated(layer: Built, graph: Problem, mode: str) -> int:
    """Returns the bytes that a call of a layer needs: features, parameters, result, what it saves, its workspace.

    In training, gradients of features and parameters are among them.
    """
    train = mode == "train"
    make_step(layer, graph, train)()
    builds = [b for report in explain(layer.layer).layers for b in report.builds if bool(b.gradients) == train]
    held = sum(tensor.numel() * tensor.element_size() for tensor in layer.leaves)
    result = graph.x.numel() * graph.x.element_size()
    return held * (2 if train else 1) + result + sum(b.saved_bytes + b.workspace_bytes for b in builds[-1:])
