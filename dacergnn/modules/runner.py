"""Runs calls of a compiled layer: the base of all runners, and the one that runs the original."""

from __future__ import annotations

import sys
import warnings
from functools import cache
from typing import Any, NoReturn

import torch
from torch import nn

from dacergnn.errors import DacergnnError, UnsupportedCallError, UnsupportedMachineError
from dacergnn.frontends import ProgramSource
from dacergnn.graph import HeteroGraph
from dacergnn.modules.compiled import CompiledProgram
from dacergnn.modules.core import Core

FAILURES = (
    ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError,
)  # fmt: skip
"""Exceptions that signal failures. torch leaves calls early by other kinds, in checkpoints for example."""


class Runner:
    """Runs the calls of a layer in its present state; another runner takes over when an option changes."""

    runs_one_program = True
    """Tells whether each call runs one program, which asks all of the layer's questions to a plan."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.original = core.original
        """The layer of the library, which shares all attributes with the compiled one."""
        self._compiled: dict[tuple[object, ...], tuple[ProgramSource, CompiledProgram]] = {}

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Returns the result of a call."""
        raise NotImplementedError

    def renew(self, training: bytes, *, same_tensors: bool) -> None:
        """Notes that attributes of the layer may be other objects.

        Args:
            training: Whether the layer, and each part of it, is in training.
            same_tensors: Whether tensors that are not parameters are the same objects as before.
        """

    @property
    def notes(self) -> list[str | None]:
        """Returns notes on how calls are repeated, for reports."""
        return self.core.notes

    def compiled(
        self, program: ProgramSource, dtype: torch.dtype, graph: HeteroGraph, sparse: frozenset[str] = frozenset()
    ) -> CompiledProgram:
        """Returns what `Core.compiled` returns."""
        # Hashing a program takes longer than a lookup by id. The program is kept, so that no other one gets its id.
        key = (id(program), dtype, graph.index_dtype, graph.single_typed, graph.device.type, sparse)
        entry = self._compiled.get(key)
        if entry is None:
            entry = self._compiled[key] = (program, self.core.compiled(program, dtype, graph, sparse))
        return entry[1]

    def check_plan(self) -> None:
        """Raises DacergnnError if a call has shown that nobody asks a question that the user's plan answers."""
        use = self.core.plan_use
        if use is not None:
            try:
                use.note(self.core.compiled_programs.values())
            except DacergnnError:
                self.forget_calls()  # so that the next call raises the error again
                raise

    def forget_calls(self) -> None:
        """Forgets repeated calls, so that the next call is examined even if it is like one before."""
        self._compiled.clear()

    def refused(
        self, reason: UnsupportedCallError | UnsupportedMachineError, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Runs the original layer for a call that no program covers, or on a machine that has no kernels."""
        if isinstance(reason, UnsupportedMachineError) and self.core.on_unsupported == "error":
            raise reason
        return self.fall_back(str(reason), args, kwargs)

    def fall_back(self, reason: str, args: tuple[Any, ...], kwargs: dict[str, Any], *, expected: bool = True) -> Any:
        """Runs the original layer, and warns once for each reason; raises if the original fails on the call as well."""
        if expected and self.core.on_unsupported == "error":
            self.warn(reason)
        try:
            result = self.uncompiled(*args, **kwargs)
        except Exception as error:
            if not expected:
                raise
            problem = f"{self.core.kind} cannot run this call, compiled or not: {reason}"
            raise _alike(UnsupportedCallError(problem), error) from error
        self.warn(reason)
        return result

    def raise_alike(self, problem: DacergnnError) -> NoReturn:
        """Raises an error about a call's arguments so that handlers of the original's error catch it as well.

        Which error that is only another run could tell, which would write to buffers and draw random numbers.
        """
        for kind in (RuntimeError, IndexError, KeyError, TypeError, AssertionError, *_errors_of(self.original)):
            problem = as_both(problem, kind)
        raise problem

    def uncompiled(self, *args: Any, **kwargs: Any) -> Any:
        """Returns the original's result without the hooks of the layer, which run around this call already.

        Hooks of messages run within, and receive the layer that users call, whose attributes are the original's.
        """
        layer = self.core.find_self() or self.original
        return type(self.original).forward(layer, *args, **kwargs)

    def warn(self, reason: str) -> None:
        """Warns once for each reason that a call ran the original layer, or raises, as ``on_unsupported`` says."""
        core = self.core
        if core.on_unsupported == "error":
            raise UnsupportedCallError(f"{core.kind} cannot be compiled: {reason}")
        core.refusal = reason
        if core.on_unsupported == "warn" and reason not in core.warned:
            core.warned.add(reason)
            warnings.warn(f"{core.kind} runs uncompiled: {reason}", stacklevel=_level_of_caller())


class OriginalRunner(Runner):
    """Runs the original layer, and warns with the reason unless it is to be silent."""

    def __init__(self, core: Core, reason: str, *, silent: bool = False) -> None:
        super().__init__(core)
        self.reason, self.silent = reason, silent

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.silent and self.core.on_unsupported != "error":
            return self.uncompiled(*args, **kwargs)
        return self.fall_back(self.reason, args, kwargs)


def _alike(problem: DacergnnError, error: Exception) -> DacergnnError:
    """Returns our error in a class that handlers of the original's error catch as well, with a note of its message."""
    result = as_both(problem, type(error))
    result.add_note(f"The original layer says: {error}")
    return result


def as_both(problem: DacergnnError, other: type[Exception]) -> DacergnnError:
    """Returns our error in a class that handlers of another one catch as well."""
    kind = _both(type(problem), other)
    result = kind.__new__(kind, *problem.args)
    result.__dict__.update(vars(problem))
    return result


@cache
def _both(ours: type[DacergnnError], other: type[Exception]) -> type[DacergnnError]:
    """Returns a class of errors of two kinds, named as ours; ours alone where Python allows no such class."""
    if issubclass(ours, other):
        return ours
    try:
        names = {"__module__": ours.__module__, "__str__": Exception.__str__}
        made = type(ours.__name__, (ours, other), names)
        made.__new__(made, "")
    except TypeError:  # of another layout in memory, or with arguments of its own
        return ours
    return made


def _level_of_caller() -> int:
    """Returns the `stacklevel` at which a warning of the calling function names the first frame of other packages."""
    level, frame = 1, sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in ("dacergnn", "torch"):
        level, frame = level + 1, frame.f_back
    return level


def _errors_of(module: nn.Module) -> list[type[Exception]]:
    """Returns the classes of errors that the library of a module raises besides Python's and torch's."""
    dgl = sys.modules.get("dgl")
    return [] if dgl is None or not type(module).__module__.startswith("dgl.") else [dgl.DGLError]
