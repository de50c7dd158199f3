// Calls programs from Python. This code is the same for all of them, and so in none.
#pragma once

#include <cstdint>

#include "read_tensors.h"
#include "stack_parts.h"

extern "C" void *PyEval_SaveThread();
extern "C" void PyEval_RestoreThread(void *state);

namespace dacergnn {

// Describes a program: its function, and the number of its arguments.
struct Program {
  void (*function)(const std::int64_t *packed);
  std::int64_t arguments;
};

// Joins the parts of arrays and calls a program. `packed` holds its arguments, then the tail of `stack_parts`.
inline void call_program(const Program &program, const std::int64_t *packed) {
  stack_parts(packed + program.arguments);
  program.function(packed);
}

// Implements a built-in function of Python, which belongs to the address of a `Program`. Its arguments are a list of
// tensors and the addresses of `expected` and `packed` of `read_tensors`. If the tensors are as expected, it calls the
// program with `packed`, while other threads may run Python, and returns True; else it returns False.
inline void *read_and_call(void *program, void *const *arguments) {
  const auto *expected = (const std::int64_t *)PyLong_AsVoidPtr(arguments[1]);
  auto *packed = (std::int64_t *)PyLong_AsVoidPtr(arguments[2]);
  if (read_tensors(arguments[0], expected, packed)) return PyBool_FromLong(0);
  const auto &called = *(const Program *)PyLong_AsVoidPtr(program);
  void *state = PyEval_SaveThread();
  call_program(called, packed);
  PyEval_RestoreThread(state);
  return PyBool_FromLong(1);
}

}  // namespace dacergnn
