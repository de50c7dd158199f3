"""A `@dace.program` as a program in program form."""

from __future__ import annotations

from typing import Any

from dace.frontend.python.parser import DaceProgram

from dacergnn.frontends.dace_program.lifting import lift


def is_dace_program(function: object) -> bool:
    """Returns whether ``function`` was decorated with ``@dace.program``."""
    return isinstance(function, DaceProgram)


def program_text(program: Any) -> str:
    """Returns the text of a `@dace.program` in program form.

    Raises:
        UnsupportedCallError: The function does something that the program form cannot express.
    """
    return lift(program.to_sdfg(simplify=True), program.f.__name__)
