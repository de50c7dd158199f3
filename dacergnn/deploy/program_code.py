"""C++ of the compiled programs of a network, each in a namespace of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from dacergnn.deploy.network import Network, RunProgram
from dacergnn.deploy.types import COMPUTED, c_type
from dacergnn.errors import UnsupportedCallError
from dacergnn.modules.compiled import CompiledProgram
from dacergnn.runtime.lower import Lowered
from dacergnn.target import find


@dataclass(frozen=True)
class ProgramCode:
    """Holds a program as C++.

    Args:
        namespace: The namespace that ``text`` belongs into.
        element: The type of its elements.
        headers: Lines that come before all namespaces.
    """

    lowered: Lowered
    namespace: str
    element: str
    headers: tuple[str, ...]
    text: str


def programs_of(network: Network) -> dict[int, ProgramCode]:
    """Returns the code of the programs of a network, by the ids of the compiled programs; equal ones share it."""
    steps = [step for step in network.steps if isinstance(step, RunProgram)]
    by_code: dict[str, ProgramCode] = {}
    result: dict[int, ProgramCode] = {}
    for step in steps:
        if id(step.program) in result:
            continue
        lowered = step.program.inference_code()
        if lowered.code not in by_code:
            by_code[lowered.code] = _code(step.program, lowered, f"program_{len(by_code)}")
        known = by_code[lowered.code]
        result[id(step.program)] = ProgramCode(lowered, known.namespace, known.element, known.headers, known.text)
    return result


def headers_of(codes: Sequence[ProgramCode]) -> list[str]:
    """Returns the headers of all programs, each line once."""
    lines = dict.fromkeys(line for code in codes for line in code.headers)
    return list(lines) if lines else ["#include <cstdint>"]


def _code(program: CompiledProgram, lowered: Lowered, namespace: str) -> ProgramCode:
    dtype: torch.dtype = getattr(torch, lowered.dtype)
    if dtype not in COMPUTED:
        raise UnsupportedCallError(
            f"{program.title} computes with elements of {lowered.dtype}; a C library takes float32 and float64. Use "
            "model.float()."
        )
    target = find(lowered.implementation)
    code = lowered.code.removesuffix(target.call.format(name=lowered.name))
    lines = code.splitlines()
    last = max(i for i, line in enumerate(lines) if line.startswith("#include"))
    headers = tuple([line.replace('DACE_EXPORTED extern "C"', "DACE_EXPORTED static") for line in lines[: last + 1]])
    text = "\n".join([f"namespace {namespace} {{", *lines[last + 1 :], f"}}  // namespace {namespace}"])
    return ProgramCode(lowered, namespace, c_type(dtype), headers, text)
