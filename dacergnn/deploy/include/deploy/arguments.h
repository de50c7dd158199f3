// Checks what the user of an exported model passes to it.
#pragma once

#include <cstdint>
#include <cstring>
#include <initializer_list>

#include "context.h"

namespace deploy {

// Have the layouts of the structures that the header of a model declares.
struct Input {
  const void *data;
  std::int64_t sizes[4];
};
struct Output {
  void *data;
  std::int64_t bytes;
  std::int64_t sizes[4];
};

constexpr std::int64_t kMostElements = std::int64_t{1} << 40;

inline void check_input(const Input &input, int rank, std::size_t item, const char *label) {
  std::int64_t elements = 1;
  for (int axis = 0; axis < rank; ++axis) {
    const std::int64_t size = input.sizes[axis];
    if (size < 0 || size > kMostElements)
      fail(kBadInput, "%s: size %lld in axis %d is out of range.", label, (long long)size, axis);
    if (size > 0 && elements > kMostElements / size)
      fail(kBadInput, "%s has more elements than there can be.", label);
    elements *= size;
  }
  if (elements > 0 && input.data == nullptr)
    fail(kBadInput, "%s: the address of the data is null; pass the address of %lld elements.", label, (long long)elements);
  if (reinterpret_cast<std::uintptr_t>(input.data) % item != 0)
    fail(kBadInput, "%s: the address of the data is no multiple of the %zu bytes of an element.", label, item);
}

inline void check_size(std::int64_t size, std::int64_t wanted, int axis, const char *label) {
  if (size != wanted)
    fail(kBadInput, "%s: size %lld in axis %d must be %lld.", label, (long long)size, axis, (long long)wanted);
}

inline void check_fit(bool fits, const char *text) {
  if (!fits) fail(kBadInput, "%s", text);
}

inline void check_elements(std::int64_t found, std::int64_t wanted, const char *label) {
  if (found != wanted)
    fail(kBadInput, "%s has %lld numbers, and the graph asks for %lld; give every node and edge a row.", label,
         (long long)found, (long long)wanted);
}

// Tells the sizes of a result.
inline void set_sizes(Output &output, std::initializer_list<std::int64_t> sizes) {
  std::fill_n(output.sizes, 4, 0);
  std::copy(sizes.begin(), sizes.end(), output.sizes);
}

// Checks that there is memory for a result, whose sizes are set.
inline void check_room(const Output &output, int rank, std::size_t item, const char *label) {
  std::int64_t bytes = static_cast<std::int64_t>(item);
  for (int axis = 0; axis < rank; ++axis)
    if (__builtin_mul_overflow(bytes, output.sizes[axis], &bytes))
      fail(kNoMemory, "%s has more elements than there can be; pass a smaller batch.", label);
  if (bytes > output.bytes || (bytes > 0 && output.data == nullptr))
    fail(kTooSmall, "%s needs memory of %lld bytes; there are %lld.", label, (long long)bytes,
         output.data == nullptr ? 0LL : (long long)output.bytes);
}

inline void copy_output(const Output &output, const void *from, std::int64_t bytes) {
  if (bytes > 0) std::memcpy(output.data, from, static_cast<std::size_t>(bytes));
}

}  // namespace deploy
