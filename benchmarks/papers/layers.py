"""Measures relational layers for the figures: times of configurations in turns, kinds of operators, allocated bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import torch
from torch import nn

from benchmarks.papers.artefact import Scale
from benchmarks.relational.candidate import Built, Candidate, make_step, unwrapped
from benchmarks.relational.ours import configured
from benchmarks.relational.parameters import make_parameters
from benchmarks.relational.peers import candidates
from benchmarks.relational.problem import Problem, load_problem
from dacergnn.api import explain
from dacergnn.bench.measure import Timing, clock_of, interleave
from dacergnn.bench.process import OUT_OF_MEMORY, reason
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


@dataclass(frozen=True)
class Times:
    """Holds the milliseconds of a layer on a graph in one mode, by configuration, and of the libraries' layers.

    Args:
        failed: Why layers have no time: configurations that were out of memory, and layers of libraries by name.
    """

    model: str
    data: str
    mode: str
    ours: Mapping[str, float]
    libraries: Mapping[str, float]
    failed: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def library(self) -> float | None:
        """Returns the time of the fastest library."""
        return min(self.libraries.values(), default=None)

    def ratio(self, over: str, under: str) -> float | None:
        """Returns the time of a configuration over another's; None where one of both has none."""
        one, other = self.ours.get(over), self.ours.get(under)
        return None if one is None or other is None else one / other

    def speedup(self, config: str) -> float | None:
        """Returns the time of the fastest library over ours; None where one of both has none."""
        own = self.ours.get(config)
        return None if own is None or self.library is None else self.library / own


@cache
def problem(name: str, hidden: int, seed: int) -> Problem:
    """Returns a graph with random features; a synthetic graph where the real one is not on this machine."""
    return load_problem(present(name), hidden, seed)


def layer_times(
    model: str, data: str, mode: str, scale: Scale, configs: Mapping[str, Config], against: tuple[str, ...] = (),
    hidden: int = 64,
) -> Times:  # fmt: skip
    """Times configurations of a layer in turns, with layers of libraries (``against``).

    Configurations that are out of memory have no time, nor have layers of libraries that fail; any other error of ours
    is raised.
    """
    graph = problem(data, hidden, scale.seed).to(scale.device)
    shared = make_parameters(model, graph, scale.seed)
    train = mode == "train"
    ways: list[Candidate] = [configured(model, n, replace(config, rates=scale.rates)) for n, config in configs.items()]
    peers = candidates(model, against, compiled=False) if against else []
    needs = {f"{peer.library} {peer.name}": peer.memory(graph, train) for peer in peers}
    failed = {name: f"{OUT_OF_MEMORY}, by an estimate of {n / 1e9:.0f} GB" for name, n in needs.items() if n > _MEMORY}
    steps: dict[str, Any] = {}
    for way in (*ways, *peers):
        name = f"{way.library} {way.name}"
        if name in failed:
            continue
        try:
            step = make_step(way.build(graph, shared, unwrapped), graph, train)
            step()
        except Exception as error:
            failed[name] = reason(error)
            if way.library == "ours" and failed[name] != OUT_OF_MEMORY:
                raise
        else:
            steps[name] = step
    budget = scale.pick(1.5, 15.0)
    timings = interleave(steps, scale.pick(9, 20), budget, clock=clock_of(graph.x.device))
    return _times(model, data, mode, timings, failed)


def _times(
    model: str, data: str, mode: str, timings: Mapping[str, Timing], failed: Mapping[str, str]
) -> Times:  # fmt: skip
    own = {name.removeprefix("ours "): t.ms for name, t in timings.items() if name.startswith("ours ")}
    libraries = {name: t.ms for name, t in timings.items() if not name.startswith("ours ")}
    return Times(model, data, mode, own, libraries, {name.removeprefix("ours "): why for name, why in failed.items()})


def reasons(failed: Mapping[str, str]) -> str:
    """Returns a sentence on what has no time: reasons by what failed."""
    return f"No time: {'; '.join(f'{name}: {reason}' for name, reason in failed.items())}."


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
