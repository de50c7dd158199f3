"""What is asked of torch about CUDA devices, with stand-ins for its answers: errors say what is missing, and where."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from dacergnn import Config
from dacergnn.errors import BuildError, DacergnnError, DeviceError, UnsupportedMachineError
from dacergnn.native import nvcc
from dacergnn.runtime import cuda_device, cuda_graph
from dacergnn.runtime.cuda_graph import Recorder

Devices = list[tuple[int, int]]
DEVICE = torch.device("cuda", 0)


@pytest.fixture
def devices(monkeypatch: pytest.MonkeyPatch) -> Iterator[Devices]:
    """Compute capabilities of the devices of this machine, to be filled."""
    found: Devices = []

    def capability(device: torch.device) -> tuple[int, int]:
        return found[device.index]

    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(found))
    monkeypatch.setattr(torch.cuda, "get_device_capability", capability)
    cuda_device.capability.cache_clear()
    yield found
    cuda_device.capability.cache_clear()


def test_no_device(devices: Devices) -> None:
    with pytest.raises(BuildError) as error:
        cuda_device.architectures(None)
    assert str(error.value) == (
        "This machine has no CUDA device to build for; name some in Config(cuda_arch=(80, 90))."
    )
    assert cuda_device.architectures((90,)) == (90,)


def test_builds_are_for_all_devices_that_will_do(devices: Devices) -> None:
    devices += [(9, 0), (7, 5), (8, 6), (9, 0)]
    assert cuda_device.architectures(None) == (86, 90)


def test_devices_that_are_too_old(devices: Devices) -> None:
    devices += [(7, 0), (7, 5)]
    with pytest.raises(BuildError) as error:
        cuda_device.architectures(None)
    assert str(error.value) == (
        "The CUDA devices of this machine have compute capability 7.5 at most, but kernels need 8.0; move model and "
        "graph with .to('cpu')."
    )
    with pytest.raises(DeviceError) as error:
        cuda_device.check_built_for(torch.device("cuda", 1), (80,))
    assert str(error.value) == (
        "cuda:1 has compute capability 7.5, but kernels need 8.0; move model and graph with .to('cpu')."
    )


@pytest.mark.parametrize(
    ("own", "built", "runs"),
    [
        ((8, 0), (80,), True),
        ((8, 6), (80, 90), True),
        ((9, 0), (80,), True),  # from the PTX of the last one
        ((8, 9), (90,), False),
        ((9, 0), (80, 100), False),  # there is PTX of 100 only
        ((10, 0), (80, 90), True),
    ],
)
def test_what_runs_where(own: tuple[int, int], built: tuple[int, ...], runs: bool, devices: Devices) -> None:
    devices.append(own)
    try:
        cuda_device.check_built_for(torch.device("cuda", 0), built)
    except DeviceError:
        assert not runs
    else:
        assert runs


def test_built_for_other_devices(devices: Devices) -> None:
    devices += [(9, 0), (8, 0)]
    with pytest.raises(DeviceError) as error:
        cuda_device.check_built_for(torch.device("cuda", 1), (90, 100))
    assert str(error.value) == (
        "cuda:1 has compute capability 8.0, but the program was built for 9.0, 10.0 only; name it in "
        "Config(cuda_arch=(80, 90, 100))."
    )


@pytest.mark.parametrize(("driver", "release", "runs"), [(13_000, "13.2", True), (12_080, "13.0", False)])
def test_drivers_that_are_too_old(
    driver: int, release: str, runs: bool, devices: Devices, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is built for devices that are here, and before the first launch."""
    devices.append((9, 0))
    monkeypatch.setattr(torch._C, "_cuda_getDriverVersion", lambda: driver, raising=False)
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(nvcc, "compiler", lambda: ("/opt/bin/nvcc", release))
    monkeypatch.setattr(nvcc, "known", lambda: [90])
    checks = (lambda: cuda_device.architectures(None), lambda: cuda_device.check_built_for(DEVICE, (90,)))
    for check in checks:
        if runs:
            check()
            continue
        with pytest.raises(UnsupportedMachineError) as error:
            check()
        assert str(error.value) == (
            "The driver of this machine runs CUDA 12.8 (torch is built for 12.8), but /opt/bin/nvcc is of CUDA 13.0, "
            "whose programs need a newer driver; update the driver, or set CUDA_HOME or NVCC to a toolkit of CUDA 12."
        )


def test_devices_of_rocm(devices: Devices, monkeypatch: pytest.MonkeyPatch) -> None:
    devices.append((9, 0))
    monkeypatch.setattr(torch.version, "hip", "6.4")
    for check in (lambda: cuda_device.architectures(None), lambda: cuda_device.check_built_for(DEVICE, (90,))):
        with pytest.raises(UnsupportedMachineError) as error:
            check()
        assert str(error.value) == (
            "This torch is built for ROCm 6.4: its devices of type 'cuda' are AMD's, but kernels are for NVIDIA's and "
            "for processors; move model and graph with .to('cpu')."
        )


def test_devices_without_kernels() -> None:
    with pytest.raises(DacergnnError) as error:
        Config().on("xpu")
    assert str(error.value) == "There are no kernels for devices of type 'xpu'; move arrays with .to('cpu')."


class Stream:
    """Stands in for a stream; notes what it waits for."""

    def __init__(self, log: list[str], name: str) -> None:
        self.log, self.name = log, name

    def wait_stream(self, other: Stream) -> None:
        self.log.append(f"{self.name} waits for {other.name}")


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Stand-ins for torch's streams: the current one, and what has been done with them."""
    state = SimpleNamespace(log=[], current=None, device=torch.device("cuda", 0))
    state.current = Stream(state.log, "main")

    @contextmanager
    def switched(stream: Any) -> Iterator[None]:
        before, state.current = state.current, stream
        yield
        state.current = before

    @contextmanager
    def device(device: Any) -> Iterator[None]:
        before, state.device = state.device, device
        try:
            yield
        finally:
            state.device = before

    @contextmanager
    def graph(graph: Any, pool: Any, capture_error_mode: str) -> Iterator[None]:
        state.log.append(f"recorded in {pool}, {capture_error_mode}")
        yield

    stand_ins: dict[str, Any] = {
        "current_stream": lambda device=None: state.current,
        "stream": switched,
        "Stream": lambda: Stream(state.log, "side"),
        "device": device,
        "graph": graph,
        "graph_pool_handle": lambda: "a pool",
        "CUDAGraph": lambda: SimpleNamespace(replay=lambda: state.log.append("replayed")),
    }
    for name, stand_in in stand_ins.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)
    return state


CUDA = torch.device("cuda", 0)


def test_the_device_of_a_call_is_the_current_one(streams: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    there = torch.device("cuda", 1)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: f"of {device}")
    with cuda_device.current_stream(there) as stream:
        assert (streams.device, stream) == (there, "of cuda:1")
    with pytest.raises(DeviceError), cuda_device.current_stream(there):
        raise DeviceError("no launch")
    assert streams.device == CUDA


def test_recordings_are_warmed_up_on_a_side_stream(streams: SimpleNamespace) -> None:
    recorder = Recorder(CUDA)
    recorder.warm_up(lambda: streams.log.append(f"work on {streams.current.name}"))
    result, replay = recorder.record(lambda: 7)
    replay()
    assert result == 7
    assert streams.log == [
        "side waits for main",
        "work on side",
        "main waits for side",
        "recorded in a pool, thread_local",
        "replayed",
    ]


def test_replays_on_another_stream_wait_for_those_before(streams: SimpleNamespace) -> None:
    told: list[Any] = []
    graph: Any = SimpleNamespace(record_stream=told.append)
    recorder = Recorder(CUDA)
    with recorder.turn(graph):
        pass
    other = streams.current = Stream(streams.log, "other")
    for _ in range(2):
        with recorder.turn(graph):
            pass
    assert streams.log == ["other waits for main"]
    assert told == [other]


def test_nothing_is_recorded_without_cuda() -> None:
    assert cuda_graph.capturing() is False
