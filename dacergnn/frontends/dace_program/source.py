"""A `@dace.program` as a function in program form."""

from __future__ import annotations

import linecache
from types import FunctionType
from typing import Any

from dace.frontend.python.parser import DaceProgram

from dacergnn.frontends.dace_program.lifting import lift
from dacergnn.program.source import PRINTED


def is_dace_program(function: object) -> bool:
    """Whether ``function`` was decorated with ``@dace.program``."""
    return isinstance(function, DaceProgram)


def program_function(program: Any) -> FunctionType:
    """The function that says in program form what a `@dace.program` does; parsed like one from a file, never run.

    Raises:
        UnsupportedCallError: It does something that the program form has no words for.
    """
    name = program.f.__name__
    text = "from __future__ import annotations\n" + lift(program.to_sdfg(simplify=True), name)
    file = f"<{program.f.__module__}.{program.f.__qualname__} in program form>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    namespace: dict[str, Any] = {"__name__": program.f.__module__}
    exec(compile(text, file, "exec"), namespace)
    function: FunctionType = namespace[name]
    function.__qualname__ = program.f.__qualname__
    setattr(function, PRINTED, True)
    return function
