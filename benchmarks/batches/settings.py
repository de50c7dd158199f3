"""Names and checks what the suite of sampled batches measures."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.networks.loading import BLOCKS, PLAIN, RELATIONAL, TYPED
from benchmarks.relational.settings import check
from dacergnn.errors import DacergnnError

LAYERS = (*PLAIN, *RELATIONAL, *TYPED, *BLOCKS)

DATA = "mag_cut10"
"""The graph that is sampled from where none is named."""


@dataclass(frozen=True)
class BatchSettings:
    """Describes a run: every layer with every number of seeds is one case; the cases of a layer share a process.

    Args:
        seeds: The numbers of seeds in a batch.
        fanouts: The number of neighbours in each hop; the network has as many layers.
        steps: The number of training steps that are measured in a case.
        compiled: Whether to run PyTorch's compiler on the libraries' layers, too.
    """

    layers: tuple[str, ...] = LAYERS
    data: str = "mag~0.02"
    seeds: tuple[int, ...] = (16, 256, 4096)
    fanouts: tuple[int, ...] = (10, 10)
    steps: int = 20
    threads: int = 2
    compiled: bool = False

    def __post_init__(self) -> None:
        check("layers", self.layers, LAYERS)
        for option, numbers, least in (("seeds", self.seeds, 1), ("fanouts", self.fanouts, -1)):
            if not numbers:
                raise DacergnnError(f"{option}: give at least one number")
            if min(numbers) < least or 0 in numbers:
                meant = "; they must be at least 1" + ("" if least == 1 else ", or -1 for all neighbours")
                raise DacergnnError(f"{option} are {', '.join(map(str, numbers))}{meant}")
        for option, value in (("steps", self.steps), ("threads", self.threads)):
            if value < 1:
                raise DacergnnError(f"{option} is {value}; it must be at least 1")
