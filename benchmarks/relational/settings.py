"""Sets what a benchmark run measures, and with which limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dacergnn.bench.measure import MODES
from dacergnn.bench.rates import PRECISIONS
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
    """Describes a run: every combination of models, data and modes is one case, measured at every level.

    Args:
        models: Comma-separated.
        data: Names of graphs.
        modes: infer, train.
        against: Peers: the libraries' layers and careful plain PyTorch; on a device also grouped (torch's products of
            groups).
        levels: Levels of ours: O0, hector, O2.
        repeat: Most rounds of a case.
        memory: Measure peak memory, each in a process of its own.
        layers: Parts of names, such as RelGraphConv: only these of the libraries' layers run (some take minutes).
        ours: Leave our own layers out to see the peers alone.
        threads: Threads of all programs.
        seed: Of features, labels, parameters, synthetic graphs.
        budget_s: Seconds for the timing of one case; builds, validation, --compiled and --memory come on top.
        trial_limit_s: Seconds that a process has for each candidate, with its build.
        device: Where everything runs: "cpu" or "cuda".
        precision: On a device.
        rates: Rates that our layers are compiled by; None for typical ones.
    """

    models: tuple[str, ...] = MODELS
    data: tuple[str, ...] = ("aifb", "mutag", "fb15k237", "bgs~")
    modes: tuple[str, ...] = MODES
    against: tuple[str, ...] = AGAINST
    levels: tuple[str, ...] = ("O2",)
    hidden: int = 64
    repeat: int = 30
    memory: bool = True
    layers: tuple[str, ...] = ()
    compiled: bool = True
    """Tells whether to try the libraries' layers through torch.compile, too."""
    ours: bool = True
    threads: int = 2
    seed: int = 0
    budget_s: float = 20.0
    trial_limit_s: float = 300.0
    memory_limit: int = 16_000_000_000
    """A candidate estimated to need more bytes is not run."""
    device: str = "cpu"
    plan: str = ""
    """The plan that our own layers are compiled by, as JSON; empty for none."""
    precision: str = "float32"
    architectures: tuple[int, ...] | None = None
    """Compute capabilities to build for; None for that of the device."""
    rates: Rates | None = None
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
            ("dtype", (self.precision,), tuple(PRECISIONS)),
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
