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
        layers: Comma-separated.
        data: Name of the graph that is sampled from.
        seeds: Seeds of a batch.
        fanouts: Neighbours in each hop, -1 for all; the network has as many layers.
        steps: Measured steps of a case.
        threads: Threads of all programs.
        compiled: Run the libraries' layers through torch.compile(dynamic=True), too.
    """

    layers: tuple[str, ...] = LAYERS
    data: str = DATA
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
