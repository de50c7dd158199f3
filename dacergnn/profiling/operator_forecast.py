"""Forecasts the times of the kernels of a CUDA program from what they take of a device, and from modelled work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import dace

from dacergnn.cost import Cost
from dacergnn.library_nodes import GraphOperator
from dacergnn.library_nodes.traversal.device_plan import DevicePlan
from dacergnn.profiling.devices import Device
from dacergnn.profiling.groups import bound_of, cost_of, kind_of
from dacergnn.profiling.occupancy import filled
from dacergnn.runtime.clocks import ProgramWithClocks
from dacergnn.runtime.launches import Launch, LaunchRecorder
from dacergnn.runtime.lower import plan_of

START = 2e-6
"""Seconds that a launch takes besides its work, in a stream of launches: an assumption."""
ENOUGH_WARPS = 8
"""Warps of a multiprocessor from which on its units for products are busy: an assumption."""


@dataclass(frozen=True)
class Kernel:
    """Describes a launch: its kernel, what a thread and a block take, and how much of the device it fills.

    Attributes:
        shared: Bytes of shared memory of a block, static and dynamic.
        occupancy, limit, requests: See `occupancy.Filled`.
        requested: Bytes in flight, as a share of those that the bandwidth of the device needs.
        busy: Warps at work, as a share of those that its units for products need.
    """

    name: str
    blocks: int
    threads: int
    registers: int
    spilled: int
    shared: int
    occupancy: float
    limit: str
    requests: int
    requested: float
    busy: float


@dataclass(frozen=True)
class OperatorForecast:
    """Describes a group of operators that start together, in one call of a layer or in several.

    Attributes:
        program: Name of the program that it belongs to, with the layers that run it.
        role: "forward" or "backward".
        kind: "segment GEMM", "outer product", "weight product" or "traversal"; several if operators differ.
        results: The arrays that it writes.
        runs: How often it runs.
        kernels: The launches of its last run.
        cost: Work of all runs as the compiler estimates it.
        ms: The forecast time of all runs.
        bound_ms: The longest of the times that FLOPs, streamed and gathered bytes take at the rates of the device.
        measured_ms: The measured time of all runs; None without a device.
    """

    program: str
    role: str
    kind: str
    results: tuple[str, ...]
    runs: int
    kernels: tuple[Kernel, ...]
    cost: Cost
    ms: float
    bound_ms: float
    measured_ms: float | None = None

    @property
    def roofline(self) -> float:
        """Returns the share of the roofline that the forecast reaches."""
        return self.bound_ms / self.ms if self.ms else 1.0

    @property
    def taken_ms(self) -> float:
        """Returns the measured time, or else the forecast."""
        return self.ms if self.measured_ms is None else self.measured_ms

    @property
    def lost_ms(self) -> float:
        """Returns the time above the bound."""
        return self.taken_ms - self.bound_ms

    @property
    def limits(self) -> str:
        """Returns what keeps blocks of its kernels from running at once, in the order of launches."""
        return ", ".join(dict.fromkeys(kernel.limit for kernel in self.kernels))


def forecast(
    program: ProgramWithClocks,
    graphs: Sequence[Mapping[str, int]],
    device: Device,
    *,
    role: str,
    architecture: int | None = None,
    tf32: bool = False,
) -> list[OperatorForecast]:
    """Returns a forecast for each group of operators of a program.

    Args:
        graphs: The sizes of the graph of each run.
        architecture: Compute capability to build for; that of the device by default.
        tf32: Whether products have TF32 factors.

    Raises:
        BuildError: nvcc does not build the program.
        DeviceError: A kernel does not fit on the device.
    """
    recorder = LaunchRecorder(program.lowered, architecture or device.architecture, tf32=tf32)
    runs = [recorder.launches(sizes, device.multiprocessors) for sizes in graphs]
    rows: list[OperatorForecast] = []
    for number, group in enumerate(program.groups):
        costs = [cost_of(group, program.sdfg, [sizes]) for sizes in graphs]
        requested = requested_by(group, program.sdfg)
        kernels = [[kernel_of(launch, device, requested) for launch in run[number]] for run in runs]
        cost = sum(costs, Cost())
        seconds = sum(seconds_of(*one, device) for one in zip(kernels, costs, strict=True))
        rows.append(
            OperatorForecast(
                program=program.sdfg.name,
                role=role,
                kind=kind_of(group),
                results=tuple(name for o in group for name in o.written_arrays),
                runs=len(graphs),
                kernels=tuple(kernels[-1]),
                cost=cost,
                ms=1e3 * seconds,
                bound_ms=bound_of(cost, device.rates),
            )
        )
    return rows


def requested_by(group: Sequence[GraphOperator], sdfg: dace.SDFG) -> int:
    """Returns the most bytes that a thread has requested at a time, as the plans of loops over rows say."""
    plans = [plan_of(operator, sdfg) for operator in group]
    return max((plan.requested for plan in plans if isinstance(plan, DevicePlan)), default=0)


def kernel_of(launch: Launch, device: Device, requested: int = 0) -> Kernel:
    """Returns what a launch takes of a device; ``requested`` is what `requested_by` returns for its group."""
    fill = filled(launch, device, requested)
    usage = launch.kernel
    return Kernel(
        name=usage.short_name,
        blocks=launch.blocks,
        threads=launch.threads,
        registers=usage.registers,
        spilled=usage.spilled,
        shared=launch.shared,
        occupancy=fill.occupancy,
        limit=fill.limit,
        requests=fill.requests,
        requested=min(1.0, fill.in_flight / (device.latency * device.rates.streamed)),
        busy=min(1.0, fill.warps / ENOUGH_WARPS),
    )


def seconds_of(kernels: Sequence[Kernel], cost: Cost, device: Device) -> float:
    """Returns the forecast time of a group: its work is divided among its launches by what their blocks request."""
    rates = device.rates
    moved, computed = cost.streamed / rates.streamed + cost.gathered / rates.gathered, cost.flops / rates.flops
    requests = sum(kernel.requests for kernel in kernels)
    return sum(START + k.requests / requests * max(moved / k.requested, computed / k.busy) for k in kernels)
