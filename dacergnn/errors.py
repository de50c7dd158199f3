"""Defines the exceptions of the package: one class per kind; each message says what, where and what to do."""

from __future__ import annotations


class DacergnnError(Exception):
    """Serves as the base of all exceptions that this package raises on purpose."""

    location: str = ""
    """Names the place in the source, as text; empty if unknown."""

    def locate(self, location: str) -> None:
        """Puts a location in front of the message, unless the error has one."""
        if location and not self.location:
            self.location, self.args = location, (f"{location}: {self}",)


class GraphError(DacergnnError, ValueError):
    """Signals that arrays or objects given as a graph do not describe one."""


class EncodingError(DacergnnError):
    """Signals that the name of a requested encoding is not in the contract of `dacergnn.graph.spaces`."""


class ProgramError(DacergnnError):
    """Signals that a program text or an inter-operator SDFG is not in the program form.

    Args:
        message: What is wrong, and the remedy.
        location: Where, as text, e.g. ``"rgat.py:12"`` or ``"line 3"``; empty if unknown.
        source: The offending line of source, shown under the message; empty if unknown.
    """

    def __init__(self, message: str, location: str = "", source: str = "") -> None:
        head = f"{location}: {message}" if location else message
        super().__init__(f"{head}\n    {source.strip()}" if source.strip() else head)
        self.message = message
        self.location = location
        self.source = source


class VerificationError(DacergnnError):
    """Signals that a program breaks one of the invariants that docs/architecture.md lists."""


class UnsupportedLayerError(DacergnnError):
    """Signals that a layer cannot be replaced because of one of its options.

    Args:
        option: Name of the option, e.g. ``"aggr"``, or of the layer class.
        value: The value that is not supported.
        remedy: What the user can do, as a clause without a final full stop.
        layer: Name of the layer, e.g. ``"RGCNConv"``; empty if unknown.
    """

    def __init__(self, option: str, value: object, remedy: str, layer: str = "") -> None:
        where = f" of {layer}" if layer else ""
        super().__init__(f"{option}={value!r}{where} is not supported; {remedy}.")
        self.option = option
        self.value = value
        self.remedy = remedy
        self.layer = layer


class UnsupportedCallError(DacergnnError):
    """Signals that the compiled program of a layer, or layer-wise inference, does not cover a call."""


class ArrayError(DacergnnError, ValueError):
    """Signals that an array has the wrong shape, dtype, layout or device.

    Args:
        argument: Name of the argument.
        problem: What is wrong and the remedy, as a clause without a final full stop.
    """

    def __init__(self, argument: str, problem: str) -> None:
        super().__init__(f"{argument} {problem}.")
        self.argument = argument
        self.problem = problem


def _size(count: float) -> str:
    return f"{count / 1e9:.3g} GB" if count >= 1e8 else f"{count / 1e6:.3g} MB"


class MemoryLimitError(DacergnnError, MemoryError):
    """Signals that a step takes more memory than `Config(memory=...)` allows, however it is divided.

    Args:
        program: Name of the layer.
        need: The least bytes that a step takes beside its inputs.
        limit: The bytes that are allowed, less those that other layers hold.
        reason: Why the program cannot run in ranges of destinations, as a sentence; empty if it can.
    """

    def __init__(self, program: str, need: int, limit: float, reason: str = "") -> None:
        text = f"{program}: a step needs {_size(need)} beside its inputs, but {_size(max(limit, 0))} are left"
        remedy = "allow more by Config(memory=...), or train on batches of neighbours (docs/scale.md)"
        super().__init__(f"{text}; {remedy}." + (f" {reason}" if reason else ""))
        self.need = need
        self.limit = limit


class DistributedError(DacergnnError):
    """Signals that processes cannot exchange rows, since one has failed or none were started."""


class BuildError(DacergnnError):
    """Signals that the compiler is missing or rejected generated code."""


class DeviceError(DacergnnError):
    """Signals that a CUDA device cannot run a program."""


class UnsupportedMachineError(BuildError, DeviceError):
    """Signals that this machine cannot build kernels, or cannot run them on a device.

    Its compiler is missing or too old, or its system, its device or the device's driver is not one that kernels are
    for. With ``on_unsupported="warn"`` or ``"silent"`` calls of optimized layers run the original instead.
    """


class CacheError(DacergnnError):
    """Signals that the build cache cannot be read or written."""


class DatasetError(DacergnnError):
    """Signals that a dataset is unknown or none of its sources can be reached."""
