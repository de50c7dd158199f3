// Tells whether the integers of tensors are as they were, by address, number of writes, and a checksum.
#pragma once

#include "same_objects.h"

namespace dacergnn {

inline std::uint64_t mixed(std::uint64_t word, std::uint64_t place) {
  const std::uint64_t keyed = word ^ ((place + 1) * 0x9E3779B97F4A7C15u);
  return (keyed & 0xFFFFFFFFu) * (keyed >> 32) + word;
}

// Returns a checksum of adjacent numbers at the speed of memory: it has eight sums, so that the loop is vectorized.
template <class Number>
std::uint64_t checksum(const Number *numbers, std::int64_t count) {
  std::uint64_t sums[8] = {}, total = 0;
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8)
    for (int lane = 0; lane < 8; ++lane) sums[lane] += mixed((std::uint64_t)numbers[i + lane], (std::uint64_t)(i + lane));
  for (; i < count; ++i) total += mixed((std::uint64_t)numbers[i], (std::uint64_t)i);
  for (int lane = 0; lane < 8; ++lane) total += sums[lane] * (2 * lane + 1);
  return total;
}

// Returns a checksum of vectors of indices. `numbers`: count; then of each its address, bytes of an index, length.
inline std::uint64_t checksum_of(const std::int64_t *numbers) {
  std::uint64_t total = 0;
  for (std::int64_t vector = 0; vector < numbers[0]; ++vector) {
    const std::int64_t *field = numbers + 1 + 3 * vector;
    const std::uint64_t own = field[1] == 4 ? checksum((const std::int32_t *)field[0], field[2])
                                            : checksum((const std::int64_t *)field[0], field[2]);
    total = mixed(total + own, (std::uint64_t)vector);
  }
  return total;
}

// Returns a checksum of numbers along axes from `axis` on.
template <class Number>
std::uint64_t checksum(const Number *numbers, const Tensor &tensor, int axis) {
  const std::int64_t count = tensor.shape[axis], stride = tensor.strides[axis];
  const bool last = axis + 1 == tensor.dimensions;
  if (last && stride == 1) return checksum(numbers, count);
  std::uint64_t total = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const Number *own = numbers + i * stride;
    total += mixed(last ? (std::uint64_t)*own : checksum(own, tensor, axis + 1), (std::uint64_t)i);
  }
  return total;
}

// Returns a checksum of the numbers of a tensor. Axes without gaps between them are read in the order of memory.
template <class Number>
std::uint64_t checksum(const Tensor &tensor) {
  const auto *numbers = (const Number *)((const char *)tensor.data + tensor.offset);
  std::int64_t count = 1, end = 1;
  for (int axis = 0; axis < tensor.dimensions; ++axis) {
    count *= tensor.shape[axis];
    end += (tensor.shape[axis] - 1) * tensor.strides[axis];
  }
  if (count == 0) return 0;
  return end <= count ? checksum(numbers, end) : checksum(numbers, tensor, 0);
}

inline std::uint64_t checksum_of(const Tensor &tensor) {
  switch (tensor.bits) {
    case 64: return checksum<std::int64_t>(tensor);
    case 32: return checksum<std::int32_t>(tensor);
    case 16: return checksum<std::int16_t>(tensor);
    default: return checksum<std::int8_t>(tensor);
  }
}

// Passes a description of the numbers of a tensor to `note`, number by number, until it returns false: their address,
// how often they were written to, and, if they are `compared`, a checksum of them.
template <class Note>
bool numbers_of(void *object, int (*describe)(void *, Tensor *), void *version_name, bool compared, Note note) {
  constexpr int cpu = 1;
  Tensor found;
  if (describe(object, &found)) {
    PyErr_Clear();
    return false;
  }
  void *version = PyObject_GetAttr(object, version_name);
  std::int64_t written = -1;  // of a tensor of inference mode, which counts nothing
  if (version) {
    written = PyLong_AsLongLong(version);
    Py_DecRef(version);
  } else {
    PyErr_Clear();
  }
  if (!note((std::int64_t)found.data + (std::int64_t)found.offset) || !note(written) || !note(found.device) ||
      !note(found.bits) || !note(found.dimensions))
    return false;
  for (int d = 0; d < found.dimensions; ++d)
    if (!note(found.shape[d]) || !note(found.strides[d])) return false;
  const bool readable = found.device == cpu && found.data != nullptr;
  return !compared || note(readable ? (std::int64_t)checksum_of(found) : 0);
}

// Implements a built-in function of Python, whose arguments are a list of tensors, the address of numbers, and whether
// to write them. The caller sets the first three: the exchange function, the name "_version", the number of tensors.
// For each tensor follow whether its numbers are compared, which the caller sets too, and the numbers that the
// function writes or compares.
inline void *same_edges(void *const *arguments) {
  auto *numbers = (std::int64_t *)PyLong_AsVoidPtr(arguments[1]);
  const auto describe = (int (*)(void *, Tensor *))numbers[0];
  void *const version_name = (void *)numbers[1];
  const std::int64_t count = numbers[2];
  const bool writes = PyLong_AsVoidPtr(arguments[2]) != nullptr;
  numbers += 3;
  const auto note = [&](std::int64_t found) {
    if (writes) *numbers = found;
    return *numbers++ == found;
  };
  if (PyList_Size(arguments[0]) != count) return PyBool_FromLong(0);
  for (std::int64_t i = 0; i < count; ++i) {
    const bool compared = *numbers++ != 0;
    if (!numbers_of(PyList_GetItem(arguments[0], i), describe, version_name, compared, note)) return PyBool_FromLong(0);
  }
  return PyBool_FromLong(1);
}

}  // namespace dacergnn
