"""Describes to the C interface the kernels behind it: for processors, or for CUDA devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dacergnn.deploy.processors import Processor
from dacergnn.deploy.weights import WeightFile


@dataclass(frozen=True)
class Kind:
    """Holds what differs between libraries for processors and for CUDA devices.

    Args:
        library: The header of C++ that has the types ``model`` and ``description``.
        last: The last parameter of a call.
        how: What the header says of it.
        made: What it says of a new model.
        inputs_lie: Where arguments lie.
        outputs_lie: Where results lie.
    """

    library: str
    model: str
    description: str
    last: str
    how: str
    made: str = ""
    inputs_lie: str = ""
    outputs_lie: str = ""


PROCESSORS = Kind(
    "library.h", "Model", "Description", "int threads",
    "with so many threads (0: as\n   many as there are processors, which is also the most).",
)  # fmt: skip
DEVICES = Kind(
    "device_library.h", "DeviceModel", "DeviceDescription", "void *stream",
    """on a stream, which is a
   cudaStream_t (NULL: the default stream). Results are there when the stream has come to the end of the call. The
   function waits for the stream only if integers lie on the device.""",
    made="""
   The current CUDA device of the calling thread runs all calls of the model.""",
    inputs_lie="""
   Floating-point numbers lie in memory of the device. Integers may lie there, or on the host, where they are read at
   once.""",
    outputs_lie="""
   It lies in memory of the device.""",
)  # fmt: skip


@dataclass(frozen=True)
class Form:
    """Describes the kernels of a library in C++.

    Args:
        declarations: Declarations of functions.
        tables: Constants, in a namespace of their own.
        fields: The last fields of the description of a model, which refer to the tables.
    """

    kind: Kind
    declarations: str
    tables: str
    fields: str


def processor_form(name: str, kinds: Sequence[Processor], slots: int) -> Form:
    """Returns the form of a library for kinds of processors; ``slots`` is the number of buffers of a call."""
    declarations = "".join(
        f'extern "C" int {name}_run_{kind.suffix}(const void *const *, deploy::Context &, const deploy::Input *, '
        "deploy::Output *, deploy::Message &);\n"
        for kind in kinds
    )
    conditions = "".join(f"bool fits_{kind.suffix}() {{ return {kind.condition}; }}\n" for kind in kinds)
    variants = ", ".join(f'{{"{k.name}", fits_{k.suffix}, {name}_run_{k.suffix}, {slots}}}' for k in kinds)
    tables = f"{conditions}constexpr deploy::Variant variants[] = {{{variants}}};"
    return Form(PROCESSORS, declarations, tables, f"variants, {len(kinds)}")


def device_form(
    name: str, architectures: Sequence[int], slots: tuple[int, int, int], weights: WeightFile, order: Sequence[str]
) -> Form:
    """Returns the form of a library for CUDA devices.

    Args:
        architectures: Compute capabilities without the dot.
        slots: Numbers of buffers of a call: on the host, pinned, on the device.
        order: The weights in the order in which the kernels number them.
    """
    declarations = (
        f'extern "C" int {name}_run_device(const void *const *, const void *const *, deploy::DeviceContext &, '
        "const deploy::Input *, deploy::Output *, deploy::Message &);\n"
    )
    sizes = ", ".join(str(weights.sizes[own]) for own in order) or "0"
    listed = ", ".join(map(str, sorted(architectures)))
    tables = f"constexpr std::int64_t bytes[] = {{{sizes}}};\nconstexpr int architectures[] = {{{listed}}};"
    numbers = ", ".join(map(str, slots))
    return Form(
        DEVICES, declarations, tables, f"bytes, architectures, {len(architectures)}, {{{numbers}}}, {name}_run_device"
    )
