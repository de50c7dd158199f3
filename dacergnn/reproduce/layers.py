"""Measures relational layers for the figures: times of configurations in turns, kinds of operators, allocated bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from torch import nn

from dacergnn.api import explain
from dacergnn.bench.candidate import Built, Candidate, make_step, unwrapped
from dacergnn.bench.data_option import present
from dacergnn.bench.measure import Timing, clock_of, interleave
from dacergnn.bench.ours import configured
from dacergnn.bench.parameters import make_parameters
from dacergnn.bench.peers import candidates
from dacergnn.bench.problem import Problem, load_problem
from dacergnn.config import Config
from dacergnn.profiling import OperatorProfile, profile
from dacergnn.reproduce.artefact import Scale

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


@dataclass(frozen=True)
class Times:
    """Holds the milliseconds of a layer on a graph in one mode, by configuration, and of the libraries' layers."""

    model: str
    data: str
    mode: str
    ours: Mapping[str, float]
    libraries: Mapping[str, float]

    @property
    def library(self) -> float | None:
        """Returns the time of the fastest library."""
        return min(self.libraries.values(), default=None)


@cache
def problem(name: str, hidden: int, seed: int) -> Problem:
    """Returns a graph with random features; a synthetic graph where the real one is not on this machine."""
    return load_problem(present(name), hidden, seed)


def layer_times(
    model: str, data: str, mode: str, scale: Scale, configs: Mapping[str, Config], against: tuple[str, ...] = (),
    hidden: int = 64,
) -> Times:  # fmt: skip
    """Times configurations of a layer in turns, with layers of libraries that finish (``against``)."""
    graph = problem(data, hidden, scale.seed).to(scale.device)
    shared = make_parameters(model, graph, scale.seed)
    train = mode == "train"
    ways: list[Candidate] = [configured(model, n, replace(config, rates=scale.rates)) for n, config in configs.items()]
    peers = candidates(model, against, compiled=False) if against else []
    ways += [peer for peer in peers if peer.memory(graph, train) < _MEMORY]
    steps: dict[str, Any] = {}
    for way in ways:
        try:
            step = make_step(way.build(graph, shared, unwrapped), graph, train)
            step()
        except Exception:
            if way.library == "ours":
                raise
            continue  # a layer of a library that cannot take this graph has no time
        steps[f"{way.library} {way.name}"] = step
    budget = scale.pick(1.5, 15.0)
    timings = interleave(steps, scale.pick(9, 20), budget, clock=clock_of(graph.x.device))
    return _times(model, data, mode, timings)


def _times(model: str, data: str, mode: str, timings: Mapping[str, Timing]) -> Times:
    own = {name.removeprefix("ours "): t.ms for name, t in timings.items() if name.startswith("ours ")}
    return Times(model, data, mode, own, {n: t.ms for n, t in timings.items() if not n.startswith("ours ")})


def built(model: str, data: str, config: Config, scale: Scale, hidden: int = 64) -> Built:
    """Returns a compiled layer on a graph."""
    graph = problem(data, hidden, scale.seed).to(scale.device)
    return configured(model, "ours", replace(config, rates=scale.rates)).build(
        graph, make_parameters(model, graph, scale.seed), unwrapped
    )


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
