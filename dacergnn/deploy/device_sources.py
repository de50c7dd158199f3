"""Writes the sources of a library for CUDA devices, and the commands that build them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dacergnn.config import Config
from dacergnn.deploy.device_writer import DeviceCallWriter
from dacergnn.deploy.forms import DEVICES, Form, device_form
from dacergnn.deploy.network import Network
from dacergnn.deploy.processors import LINK_OPTIONS, SECTIONS, Processor
from dacergnn.deploy.program_code import programs_of
from dacergnn.deploy.sources import LibrarySources, Source
from dacergnn.errors import DacergnnError
from dacergnn.native import nvcc


def device_config(architectures: tuple[int, ...], hosts: Sequence[Processor]) -> Config:
    """Returns how the programs of a library for CUDA devices are compiled.

    Raises:
        DacergnnError: The architectures are wrong, or the library is for several processors.
    """
    if len(hosts) > 1 or hosts[0].name == "aarch64":
        names = [kind.name for kind in hosts]
        raise DacergnnError(f"target_cpu={names!r}: with cuda_arch, name one kind of x86-64 processor.")
    return Config(implementation="cuda", cuda_arch=architectures, tune="off")


class DeviceSources(LibrarySources):
    """Holds the C++ of an exported model for CUDA devices.

    Args:
        config: What `device_config` returned.
    """

    machine = DEVICES

    def __init__(
        self, network: Network, name: str, kinds: Sequence[Processor], config: Config, *, embedded: bool
    ) -> None:
        assert config.cuda_arch is not None
        self.architectures = config.cuda_arch
        super().__init__(network, name, kinds, embedded=embedded)

    @property
    def machines(self) -> dict[str, Any]:
        return {**super().machines, "cuda_arch": [*self.architectures]}

    def link_command(self) -> list[str]:
        return [*nvcc.link_command(), *nvcc.for_host(["-fopenmp", *LINK_OPTIONS, f"-Wl,-soname,{self.library}"])]

    def _kernels(self) -> tuple[str, Form]:
        programs = programs_of(self.network)
        writer = DeviceCallWriter(self.network, programs)
        body = writer.write()
        text = self.code(
            programs, body, ['"deploy/device_rows.cuh"'], f"{self.name}_run_device",
            ["const void *const *weights", "const void *const *memory", "deploy::DeviceContext &context"],
        )  # fmt: skip
        slots = writer.slots.count, writer.pinned, writer.memory.count
        order = [constant.name for constant in self.constants]
        return text, device_form(self.name, self.architectures, slots, self.weights, order)

    def _write_kernels(self, folder: Path) -> list[Source]:
        path = folder / "kernels.cu"
        path.write_text(self.kernels)
        return [Source(path, self.kinds[0], (*nvcc.command(self.architectures), *self._host_options()))]

    def _plain_command(self) -> tuple[str, ...]:
        return (*nvcc.host_command(), *self._host_options())

    def _host_options(self) -> list[str]:
        """Returns the options of nvcc for the code of the host."""
        machine = [option for option in self.kinds[0].command if option.startswith("-m")]
        return nvcc.for_host(["-fopenmp", *machine, *SECTIONS])
