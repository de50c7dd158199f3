// Calls a program's function with all its arguments in one array, so that ctypes converts a single pointer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace dacergnn {

template <class... Arguments, std::size_t... I>
void packed_call(void (*function)(Arguments...), const std::int64_t *packed, std::index_sequence<I...>) {
  function((Arguments)packed[I]...);  // integers and pointers alike
}

// Calls `function` with arguments of any pointer or integer types, whose values `packed` holds in order.
template <class... Arguments>
void packed_call(void (*function)(Arguments...), const std::int64_t *packed) {
  packed_call(function, packed, std::index_sequence_for<Arguments...>{});
}

}  // namespace dacergnn
