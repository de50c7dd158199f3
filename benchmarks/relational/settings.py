"""Sets what a benchmark run measures, and with which limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dacergnn.bench.measure import MODES
from dacergnn.config import Config, Rates
from dacergnn.errors import DacergnnError
from dacergnn.plan import Plan

MODELS = ("rgcn", "rgat", "hgt")
AGAINST = ("pyg", "dgl", "torch")
"""Peers: the libraries' layers, and careful plain PyTorch."""
MORE = ("grouped",)
"""Peers that run only if named: plain PyTorch with torch's products of groups, which is for devices."""


@dataclass(frozen=True)
class BenchSettings:
    """Describes a run: every combination of models, data and modes is one case, measured at every level."""

    models: tuple[str, ...] = MODELS
    data: tuple[str, ...] = ("aifb", "mutag", "fb15k237", "bgs~")
    modes: tuple[str, ...] = MODES
    against: tuple[str, ...] = AGAINST
    levels: tuple[str, ...] = ("O2",)
    hidden: int = 64
    repeat: int = 30
    """Rounds of the interleaved measurement."""
    memory: bool = True
    """Tells whether to measure peak memory, each candidate in its own process."""
    layers: tuple[str, ...] = ()
    """Parts of names, such as ``RelGraphConv``: only library layers with such a name run; by default all."""
    compiled: bool = True
    """Tells whether to try the libraries' layers through torch.compile, too."""
    ours: bool = True
    threads: int = 2
    seed: int = 0
    budget_s: float = 20.0
    """Time for the interleaved measurement of one case; what precedes and follows it is not counted."""
    trial_limit_s: float = 300.0
    """Time for each candidate of a process: start, graph, steps and, where it is compiled, compilation."""
    memory_limit: int = 16_000_000_000
    """A candidate estimated to need more bytes is not run."""
    device: str = "cpu"
    """Type of torch's device that everything runs on: "cpu" or "cuda"."""
    plan: str = ""
    """The plan that our own layers are compiled by, as JSON; empty for none."""
    precision: str = "float32"
    """One of `PRECISIONS`; all others are for devices."""
    architectures: tuple[int, ...] | None = None
    """Compute capabilities to build for; None for that of the device."""
    rates: Rates | None = None
    """Rates of the device that our layers are compiled by; None for typical ones."""
    replay_below_ms: float = 2.0
    """Steps on a device that take less are also captured in a CUDA graph and replayed."""

    def config(self, level: str) -> Config:
        """Returns what our layers of a level are compiled by."""
        target = None if self.device == "cpu" else self.device
        plan = Plan.from_json(self.plan) if self.plan else None
        return Config(level=level, implementation=target, cuda_arch=self.architectures, rates=self.rates, plan=plan)

    def wants(self, library: str, name: str) -> bool:
        """Tells whether a peer is among the layers that are named."""
        return not self.layers or library in ("torch", *MORE) or any(part in name for part in self.layers)

    def __post_init__(self) -> None:
        for option, values, known in (
            ("models", self.models, MODELS),
            ("mode", self.modes, MODES),
            ("against", self.against or AGAINST, AGAINST + MORE),
        ):
            check(option, values, known)
        if not self.data or not all(self.data):
            raise DacergnnError("data: name at least one data set, such as aifb or am~0.1")
        for option, value in (("hidden", self.hidden), ("repeat", self.repeat), ("threads", self.threads)):
            if value < 1:
                raise DacergnnError(f"{option} is {value}; it must be at least 1")


def check(option: str, values: Sequence[str], known: Sequence[str]) -> None:
    """Raises DacergnnError unless there is at least one value, and all values are known."""
    if not values:
        raise DacergnnError(f"{option}: name at least one of {', '.join(known)}")
    for position, value in enumerate(values):
        if value not in known:
            raise DacergnnError(
                f"{option}: '{value}' (entry {position + 1}) is unknown; choose from {', '.join(known)}"
            )
