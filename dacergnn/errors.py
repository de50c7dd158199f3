"""The exceptions of the package: one class per kind, each message says what, where and what to do."""

from __future__ import annotations


class DacergnnError(Exception):
    """Base of everything that this package raises on purpose."""


class GraphError(DacergnnError, ValueError):
    """A graph was given by arrays that do not describe one."""


class EncodingError(DacergnnError):
    """An encoding was asked for by a name that is not in the contract of `dacergnn.graph.spaces`."""


class ProgramError(DacergnnError):
    """A program text or an inter-operator SDFG is not in the program form.

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
    """A program breaks one of the invariants that docs/architecture.md lists."""


class UnsupportedLayerError(DacergnnError):
    """A layer cannot be replaced because of one of its options.

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
    """A call is not covered by the compiled program of a layer, or by layer-wise inference."""


class ArrayError(DacergnnError, ValueError):
    """An array has the wrong shape, dtype, layout or device.

    Args:
        argument: Name of the argument.
        problem: What is wrong and the remedy, as a clause without a final full stop.
    """

    def __init__(self, argument: str, problem: str) -> None:
        super().__init__(f"{argument} {problem}.")
        self.argument = argument
        self.problem = problem


class BuildError(DacergnnError):
    """The compiler is missing or rejected generated code."""


class DeviceError(DacergnnError):
    """A CUDA device cannot run a program."""


class CacheError(DacergnnError):
    """The build cache cannot be read or written."""


class DatasetError(DacergnnError):
    """A dataset is unknown or none of its sources can be reached."""
