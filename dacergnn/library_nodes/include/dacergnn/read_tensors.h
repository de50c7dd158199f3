// Reads the pointers of tensors that look as they did before, by DLPack's exchange function. Python would have to ask
// each tensor for every property.
#pragma once

#include <cstddef>
#include <cstdint>

// Functions of Python's stable interface, in the process that loads this code; its headers need not be installed.
extern "C" std::ptrdiff_t PyList_Size(void *list);
extern "C" void *PyList_GetItem(void *list, std::ptrdiff_t index);
extern "C" void *PyLong_AsVoidPtr(void *number);
extern "C" void *PyBool_FromLong(long value);
extern "C" void PyErr_Clear();

namespace dacergnn {

// Has the layout of DLTensor of DLPack 1.
struct Tensor {
  void *data;
  std::int32_t device, device_id, dimensions;
  std::uint8_t code, bits;
  std::uint16_t lanes;
  std::int64_t *shape, *strides;
  std::uint64_t offset;
};

// Writes the addresses of the tensors in `list` into `packed` and returns 0, or returns 1 if they are not as expected.
// `expected`: the exchange function, the number of tensors, the bits of an element; then for each tensor its position
// in `packed`, its number of dimensions and its shape. Tensors are on the CPU, without gaps, and hold floating-point
// numbers.
inline int read_tensors(void *list, const std::int64_t *expected, std::int64_t *packed) {
  constexpr int cpu = 1, floating = 2;
  const auto describe = (int (*)(void *, Tensor *))expected[0];
  const std::int64_t count = expected[1], bits = expected[2];
  expected += 3;
  if (PyList_Size(list) != count) return 1;
  for (std::int64_t i = 0; i < count; ++i) {
    Tensor tensor;
    if (describe(PyList_GetItem(list, i), &tensor)) {
      PyErr_Clear();
      return 1;
    }
    const std::int64_t position = expected[0], dimensions = expected[1];
    expected += 2;
    if (tensor.device != cpu || tensor.code != floating || tensor.bits != bits || tensor.lanes != 1 ||
        tensor.dimensions != dimensions || !tensor.data)  // an empty tensor, or none that has memory
      return 1;
    std::int64_t stride = 1;
    for (std::int64_t d = dimensions; d-- > 0; stride *= expected[d])
      if (tensor.shape[d] != expected[d] || (expected[d] != 1 && tensor.strides[d] != stride)) return 1;
    expected += dimensions;
    packed[position] = (std::int64_t)tensor.data + (std::int64_t)tensor.offset;
  }
  return 0;
}

}  // namespace dacergnn
