"""Functions in C++ that calls of layers use, in one library, which is built once on a machine.

They tell whether calls are alike, and call programs; no program has code for that of its own.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable
from functools import cache, partial
from typing import Any

from dacergnn.native.build import HELPER_FLAGS, build
from dacergnn.native.builtin import builtin

_CODE = """
#include "include/dacergnn/call_program.h"
#include "include/dacergnn/same_call.h"
using dacergnn::Program;
extern "C" void call_program(const Program *program, const std::int64_t *packed) {
  dacergnn::call_program(*program, packed);
}
extern "C" void *read_and_call(void *program, void *const *arguments, std::ptrdiff_t) {
  return dacergnn::read_and_call(program, arguments);
}
extern "C" void *same_call(void *, void *const *arguments, std::ptrdiff_t) { return dacergnn::same_call(arguments); }
extern "C" void *same_edges(void *, void *const *arguments, std::ptrdiff_t) { return dacergnn::same_edges(arguments); }
extern "C" void *same_objects(void *, void *const *arguments, std::ptrdiff_t) {
  return dacergnn::same_objects(arguments);
}
"""


@cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(str(build("calls", _CODE, options=HELPER_FLAGS)))


@cache
def function(name: str) -> Callable[..., Any]:
    """Returns a function of the library as a built-in function of Python."""
    return builtin(_library(), name)


class ProgramCalls:
    """Calls a program.

    Args:
        entry: Its C function, which takes the address of an array of its arguments.
        arguments: The number of these; behind them is what `stack_parts` reads.
    """

    def __init__(self, entry: Any, arguments: int) -> None:
        self._program = array("q", [ctypes.cast(entry, ctypes.c_void_p).value or 0, arguments])
        address = self._program.buffer_info()[0]
        call = _library().call_program
        call.argtypes, call.restype = [ctypes.c_void_p, ctypes.c_void_p], None
        self.call: Callable[[int], None] = partial(call, address)
        """Runs a program with the arguments at an address."""
        self.read_and_call: Callable[..., bool] = builtin(_library(), "read_and_call", address)
        """Does the same if tensors look as expected (`read_and_call` in ``call_program.h``); tells whether they do."""
