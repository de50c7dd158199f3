// Calls a program's function with all its arguments in one array, so that ctypes converts a single pointer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

namespace dacergnn {

// Describes bytes of a part that go into an array of the workspace.
struct Piece {
  std::int64_t part, from, to, bytes;
};

inline void copy_in_parallel(char *to, const char *from, std::int64_t bytes) {
  constexpr std::int64_t block = 1 << 18;
#pragma omp parallel for
  for (std::int64_t start = 0; start < bytes; start += block)
    std::memcpy(to + start, from + start, std::min(block, bytes - start));
}

// Joins the parts of arrays that a call gets in parts. `tail` holds a pointer (or null) to the number of pieces and
// the pieces, then the workspace, and the parts. Threads share the bytes of large pieces, and many small pieces; for
// less than that it would take longer to ask for them.
inline void stack_parts(const std::int64_t *tail) {
  constexpr std::int64_t large = 1 << 20;
  const auto *pieces = (const std::int64_t *)tail[0];
  if (!pieces) return;
  const std::int64_t count = pieces[0];
  const auto *first = (const Piece *)(pieces + 1);
  const auto from = [=](const Piece &p) { return (const char *)tail[2 + p.part] + p.from; };
  const auto to = [=](const Piece &p) { return (char *)tail[1] + p.to; };
  std::int64_t small = 0;
  for (const Piece *p = first; p != first + count; ++p) {
    if (p->bytes < large)
      small += p->bytes;
    else
      copy_in_parallel(to(*p), from(*p), p->bytes);
  }
#pragma omp parallel for schedule(dynamic) if (small >= large)
  for (std::int64_t i = 0; i < count; ++i)
    if (first[i].bytes < large) std::memcpy(to(first[i]), from(first[i]), first[i].bytes);
}

template <class... Arguments, std::size_t... I>
void packed_call(void (*function)(Arguments...), const std::int64_t *packed, std::index_sequence<I...>) {
  function((Arguments)packed[I]...);  // integers and pointers alike
}

// Calls `function` with arguments of any pointer or integer types. `packed` holds their values in order, then the tail
// of `stack_parts`.
template <class... Arguments>
void packed_call(void (*function)(Arguments...), const std::int64_t *packed) {
  stack_parts(packed + sizeof...(Arguments));
  packed_call(function, packed, std::index_sequence_for<Arguments...>{});
}

}  // namespace dacergnn
