"""C functions as built-in functions of Python."""

from __future__ import annotations

import ctypes
import gc

from dacergnn.native.build import build
from dacergnn.native.builtin import builtin

CODE = """
#include <cstddef>
extern "C" void *PyLong_FromSsize_t(std::ptrdiff_t value);
extern "C" std::ptrdiff_t PyList_Size(void *list);
extern "C" void *total(void *, void *const *arguments, std::ptrdiff_t count) {
  std::ptrdiff_t sizes = 0;
  for (std::ptrdiff_t i = 0; i < count; ++i) sizes += PyList_Size(arguments[i]);
  return PyLong_FromSsize_t(1000 * count + sizes);
}
"""


def test_arguments_reach_the_function_and_results_come_back() -> None:
    total = builtin(ctypes.CDLL(str(build("total", CODE))), "total")
    gc.collect()  # what defines the function lives as long as it does
    assert total.__name__ == "total"
    assert total() == 0
    assert [total([1] * n, [2]) for n in (0, 5, 70_000)] == [2001, 2006, 72_001]
