"""Measures a layer in a process of its own: all candidates train on the same batches, in turns."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import isclose
from statistics import median
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from benchmarks.batches.loading import Batch, batches, most_reached
from benchmarks.batches.networks import make_network
from benchmarks.batches.settings import BatchSettings
from benchmarks.batches.stages import KINDS, Watch, encoding_timed
from benchmarks.relational.problem import load_problem
from dacergnn.api import optimize
from dacergnn.bench.measure import Timing
from dacergnn.errors import DacergnnError

WARM_UP = 5
"""Number of first steps that are not timed: they build programs, and record calls of traced layers."""
STAGES = ("forward", "backward", "optimizer", "encode")
TOLERANCE = 1e-4
"""Largest difference of a loss from that of the library's layers, relative to it; more means another function."""


@dataclass
class TimedNetwork:
    """Holds a network with its own parameters, and the times of its steps.

    Losses agree in every step only if gradients did in the steps before.
    """

    name: str
    network: nn.Module
    steps: list[dict[tuple[str, str], float]] = field(default_factory=list[dict[tuple[str, str], float]])

    def __post_init__(self) -> None:
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=1e-3)

    def step(self, batch: Batch, watch: Watch) -> float:
        """Trains on a batch and returns the loss."""
        with watch.time("optimizer"):
            self.optimizer.zero_grad()
        with watch.time("forward"):
            out = self.network(*batch.inputs)
            loss = functional.cross_entropy(out[: len(batch.labels)], batch.labels)
        with watch.time("backward"):
            loss.backward()
        with watch.time("optimizer"):
            self.optimizer.step()
        self.steps.append(watch.taken())
        return loss.item()

    def figures(self, sample_ms: float) -> dict[str, float]:
        """Returns the medians of the measured steps in milliseconds, the percentiles of whole steps, and the number of
        steps per second."""
        medians: dict[str, float] = {}
        for kind in KINDS:
            for stage in STAGES:
                medians[f"{stage}_{kind}_ms"] = median(step.get((stage, kind), 0.0) for step in self.steps[WARM_UP:])
            whole = [sum(ms for (_, k), ms in step.items() if k == kind) for step in self.steps[WARM_UP:]]
            medians |= Timing([ms / 1e3 for ms in whole]).as_json(f"step_{kind}_")
        return {**medians, "steps_per_s": 1e3 / (sample_ms + medians["step_wall_ms"])}


def measured(layer: str, settings: BatchSettings) -> dict[str, Any]:
    """Returns {"rows": one for each number of seeds}."""
    problem = load_problem(settings.data)
    seed_type, fanouts = most_reached(problem), list(settings.fanouts)
    rows: list[dict[str, Any]] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the libraries warn about their own internals
        for seeds in settings.seeds:
            torch.manual_seed(0)
            network = make_network(layer, problem, len(fanouts), seed_type)
            stream = batches(layer, problem, seed_type, seeds, fanouts)
            with torch.no_grad():
                network(*next(stream).inputs)  # lazy layers learn their sizes here
            candidates = _candidates(network, settings.compiled)
            rows.append({"seeds": seeds, **_measure(layer, candidates, stream, settings.steps)})
    return {"rows": rows}


def _candidates(network: nn.Module, compiled: bool) -> list[TimedNetwork]:
    networks = [TimedNetwork("eager", network), TimedNetwork("ours", optimize(copy.deepcopy(network)))]
    if compiled:
        through: Any = torch.compile(copy.deepcopy(network), dynamic=True)
        networks.append(TimedNetwork("compiled", through))
    return networks


def _measure(layer: str, candidates: list[TimedNetwork], stream: Iterator[Batch], steps: int) -> dict[str, Any]:
    watch, samples, edges = Watch(), list[dict[tuple[str, str], float]](), list[int]()
    with encoding_timed(watch):
        for step in range(WARM_UP + steps):
            with watch.time("sample"):
                batch = next(stream)
            samples.append(watch.taken())
            edges.append(batch.edges)
            first = step % len(candidates)
            turns = [*candidates[first:], *candidates[:first]]
            _check_losses(layer, step, {turn.name: turn.step(batch, watch) for turn in turns})
    sample_ms = {kind: median(sample["sample", kind] for sample in samples[WARM_UP:]) for kind in KINDS}
    return {
        "edges": median(edges[WARM_UP:]),
        **{f"sample_{kind}_ms": ms for kind, ms in sample_ms.items()},
        **{candidate.name: candidate.figures(sample_ms["wall"]) for candidate in candidates},
    }


def _check_losses(layer: str, step: int, losses: dict[str, float]) -> None:
    for name, loss in losses.items():
        if not isclose(loss, losses["eager"], rel_tol=TOLERANCE):
            raise DacergnnError(
                f"{layer}: the loss of {name!r} is {loss:.6f} in step {step + 1}, that of the library's own layers "
                f"{losses['eager']:.6f}"
            )
