"""Describes what is measured together: one network on one graph, and the ways to compute it."""

from __future__ import annotations

from dataclasses import dataclass

from dacergnn.bench import runner
from dacergnn.config import Rates


@dataclass(frozen=True)
class Task:
    """Describes a network on a graph."""

    model: str
    """A layer of PyG; "gat_by_edge" computes the scores of GAT from the features of both ends of an edge."""
    data: str
    network: str
    """"layer" for one layer on random features, "network" for two on those of the data set, "sparse" for two whose
    first takes the features as a sparse tensor."""
    features: int
    """Input features of a single layer."""
    hidden: int
    """Output features of a single layer, or features between two layers; of each head where there are heads."""
    heads: int = 1
    input_gradient: bool = False
    widths: tuple[int, ...] = ()
    """Output features of all layers, where they are other than two that end in the classes of the data set."""
    gaussians: tuple[int, int] = (3, 2)
    """Kernels of a mixture model, and their dimensions."""

    def __str__(self) -> str:
        size = f"{self.heads} x {self.hidden}" if self.heads > 1 else str(self.hidden)
        gradient = ", with input gradient" if self.input_gradient else ""
        return f"{self.model} on {self.data}, {self.network}, {size}{gradient}"


@dataclass(frozen=True)
class Limits(runner.Limits):
    """Describes the modes and limits of a run, and what its layers are made by.

    Args:
        modes: Forward without gradients, forward that saves, forward and backward.
        repeat: Most rounds.
        budget_s: Seconds for the timing of one case.
        threads: Threads of all programs.
        device: Where everything runs: "cpu" or "cuda".
        rates: Rates that our layers are compiled by; None for typical ones.
        seed: Of random features.
    """

    modes: tuple[str, ...] = ("infer", "forward", "train")
    budget_s: float = 5.0
    trial_limit_s: float = 300.0
    limit_bytes: int = 12 << 30
    seed: int = 0
    rates: Rates | None = None
