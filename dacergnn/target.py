"""Defines targets: the machines that the compiler makes kernels for, and how these kernels are made."""

from __future__ import annotations

import inspect
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from secrets import token_hex
from typing import Any

from dacergnn.errors import DacergnnError


@dataclass(frozen=True)
class Target:
    """Describes a kind of machine, and the code that is made for it.

    Args:
        name: Its name in `Config.implementation`.
        device: Type of torch's devices that hold its arrays.
        processors: Machines whose vectors its code knows, by the names of `platform.machine`; none given: any machine.
        elements: Types of elements that arrays may have, by torch's names.
        plan_nest: Makes the plan of a `Traversal`: (body, schedule) -> plan (`library_nodes.plan.OperatorPlan`).
        plan_gemm: Makes the plan of a `SegmentGemm`: (body, schedule) -> plan.
        expand: Makes the expansion of operators in an SDFG: (operators, arrays of each) -> node or SDFG.
        generate: Makes the code of an SDFG of such expansions; None: DaCe's code generator makes it.
        environment: DaCe's environment with its headers; None where code needs none.
        executable: Class of a loaded program, as "module:name".
        call: C++ of the function that the run time calls, with the program's name as ``{name}``.
        prelude: What generated code includes in place of DaCe's own headers; None where it needs those.
        clock: Header of the clock that measures operators (`runtime/clocks.py`).
        mixes_elements: Whether kernels take arrays of 16 bits together with arrays of float32.
        adjacencies: Sparse formats that traversals run on (`library_nodes.traversal.formats`).
        schedule_options: Options of each question of a schedule that its plans have (`SelectSchedule`).
        hub_parts: One thread, or block of threads, takes a group of up to all rows divided by this number.
        hub_rows: Rows up to which a group is not worth the work of sharing it.
        starts_together: Whether operators that do not wait for each other start together.
        divides_inner_loops: Whether threads share hubs of nests of three levels, too.
        makes_rows: Whether products make rows of operands, and hand rows of results on, that are in no array.
        tunes: Whether plans can be measured on the machine (`tuning`).
        has_architectures: Whether libraries are built for architectures of devices (`Config.cuda_arch`).
        has_tf32: Whether products in float32 have a build with TF32 factors.
        start: Values that could be moved in the time that it takes to start a loop.
    """

    name: str
    device: str
    elements: tuple[str, ...]
    plan_nest: Callable[[Any, Any], Any]
    plan_gemm: Callable[[Any, Any], Any]
    expand: Callable[[Sequence[Any], Sequence[Mapping[str, Any]]], Any]
    processors: tuple[str, ...] = ()
    generate: Callable[[Any], str] | None = None
    environment: Any = None
    executable: str = "dacergnn.runtime.executable:Executable"
    call: str = ""
    prelude: str | None = None
    clock: str = "include/dacergnn/clock.h"
    mixes_elements: bool = False
    adjacencies: tuple[str, ...] = ("csr",)
    schedule_options: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    hub_parts: int = 1
    hub_rows: int = 1
    starts_together: bool = False
    divides_inner_loops: bool = True
    makes_rows: bool = False
    tunes: bool = False
    has_architectures: bool = False
    has_tf32: bool = False
    start: float = 1e3

    @cached_property
    def version(self) -> str:
        """Returns a text that tells the target from others of its name, for caches that outlive a process."""
        functions = [f for f in (self.plan_nest, self.plan_gemm, self.expand, self.generate) if f is not None]
        modules = sorted({f.__module__ for f in functions if not f.__module__.startswith("dacergnn.")})
        fields = {name: value for name, value in vars(self).items() if not callable(value)}
        names = [f"{f.__module__}.{f.__qualname__}" for f in functions]
        return repr((fields, names, [_source(name) for name in modules]))

    def executable_class(self) -> Any:
        """Returns the class of a loaded program, which belongs to a package above this one."""
        module, name = self.executable.split(":")
        return getattr(import_module(module), name)


def _source(module: str) -> str:
    """Returns the text of a module; if it cannot be read, a text that no other process has."""
    try:
        return inspect.getsource(sys.modules[module])
    except (OSError, TypeError):
        return token_hex()


TARGETS: dict[str, Target] = {}
"""All targets by name (`library_nodes.targets.register`)."""


def find(name: str | None, device: str = "cpu") -> Target:
    """Returns the target of a name, or else the first for a type of device and this machine.

    Raises:
        DacergnnError: There is none.
    """
    if name is not None:
        if name not in TARGETS:
            raise DacergnnError(f"implementation={name!r} is not one of {', '.join(TARGETS)}.")
        return TARGETS[name]
    for target in TARGETS.values():
        if target.device == device and (not target.processors or platform.machine() in target.processors):
            return target
    raise DacergnnError(f"There are no kernels for devices of type {device!r}; move arrays with .to('cpu').")
