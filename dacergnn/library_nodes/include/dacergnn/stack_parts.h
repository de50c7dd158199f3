// Joins the parts of arrays that a call gets in parts.
#pragma once

#include <cstdint>
#include <cstring>

namespace dacergnn {

// Describes bytes of a part that go into an array of the workspace.
struct Piece {
  std::int64_t part, from, to, bytes;
};

inline void copy_in_parallel(char *to, const char *from, std::int64_t bytes) {
  constexpr std::int64_t block = 1 << 18;
#pragma omp parallel for
  for (std::int64_t start = 0; start < bytes; start += block)
    std::memcpy(to + start, from + start, bytes - start < block ? bytes - start : block);
}

// Joins them. `tail` holds a pointer (or null) to the number of pieces and the pieces, then the workspace, and the
// parts. Threads share the bytes of large pieces, and many small pieces; for less than that it would take longer to ask
// for them.
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

}  // namespace dacergnn
