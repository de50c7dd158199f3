// Sorts and counts vectors of indices, in time linear in their length. Every function takes the address of an array of
// 64-bit numbers: addresses, lengths and bounds.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <new>
#include <type_traits>
#include <utility>

namespace dacergnn {

using Number = std::int64_t;

// Holds numbers, without a value or zeros; none if there is no memory. <memory> would take half of the time of a build.
template <class T>
class Buffer {
  T *numbers_;
  explicit Buffer(T *numbers) : numbers_(numbers) {}

 public:
  explicit Buffer(std::uint64_t count) : numbers_(new (std::nothrow) T[count]) {}
  static Buffer zeros(std::uint64_t count) { return Buffer(new (std::nothrow) T[count]()); }
  Buffer(const Buffer &) = delete;
  Buffer &operator=(const Buffer &) = delete;
  ~Buffer() { delete[] numbers_; }
  explicit operator bool() const { return numbers_ != nullptr; }
  T *get() const { return numbers_; }
  T &operator[](std::uint64_t i) const { return numbers_[i]; }
};

// Calls `function` with a vector of 4 or 8 bytes an index, as a pointer of the right type.
template <class Function>
auto with_indices(Number address, Number bytes, Function function) {
  if (bytes == 4) return function((std::int32_t *)address);
  return function((std::int64_t *)address);
}

// Writes the smallest and the largest index of each vector, and 0 and -1 for an empty vector.
// `numbers`: count of vectors; then of each its address, bytes of an index, length. `ends`: two for each vector.
inline void extremes(const Number *numbers, Number *ends) {
  for (Number vector = 0; vector < numbers[0]; ++vector, ends += 2) {
    const Number *field = numbers + 1 + 3 * vector;
    with_indices(field[0], field[1], [&](const auto *index) {
      const Number length = field[2];
      auto low = length ? index[0] : 0, high = length ? index[0] : -1;
      for (Number i = 0; i < length; ++i) {
        low = std::min(low, index[i]);
        high = std::max(high, index[i]);
      }
      ends[0] = low;
      ends[1] = high;
    });
  }
}

// Sorts numbers by their bits from `first` to before `last`, least important digit first, so that equal ones keep their
// order. Returns the one of the two buffers that holds them in the end.
inline std::uint64_t *sorted_by_bits(std::uint64_t *from, std::uint64_t *to, Number count, int first, int last) {
  const int widest = count < 4096 ? 8 : 12, passes = (last - first + widest - 1) / widest;
  const int digit = passes ? (last - first + passes - 1) / passes : 1;  // as few passes as may be, of equal width
  const std::uint64_t mask = (1u << digit) - 1;
  Number starts[1 << 12];
  for (int shift = first; shift < last; shift += digit) {
    std::fill(starts, starts + mask + 1, 0);
    for (Number i = 0; i < count; ++i) ++starts[from[i] >> shift & mask];
    if (starts[from[0] >> shift & mask] == count) continue;
    Number start = 0;
    for (std::uint64_t value = 0; value <= mask; ++value) start += std::exchange(starts[value], start);
    for (Number i = 0; i < count; ++i) to[starts[from[i] >> shift & mask]++] = from[i];
    std::swap(from, to);
  }
  return from;
}

// Writes the positions of numbers, all below `bound`, in stably sorted order, by counting each value. Returns whether
// there was memory for that.
template <class Index>
bool order_by_counts(const std::uint64_t *number, Number count, std::uint64_t bound, Index *positions) {
  const auto starts = Buffer<std::uint32_t>::zeros(bound);
  if (!starts) return false;
  for (Number i = 0; i < count; ++i) ++starts[number[i]];
  std::uint32_t start = 0;
  for (std::uint64_t value = 0; value < bound; ++value) start += std::exchange(starts[value], start);
  for (Number i = 0; i < count; ++i) positions[starts[number[i]]++] = (Index)i;
  return true;
}

// Writes the positions of rows, stably sorted by several keys. Returns 0, and writes nothing, if rows are sorted
// already; 1 if they were not; -1 if keys and positions together need more than 64 bits, or there is no memory.
// `numbers`: length, address of the positions, their bytes, count of keys; then of each key, the most important first,
// its address, bytes of an index, and an upper bound, which no index reaches.
inline Number stable_order(const Number *numbers) {
  const Number length = numbers[0], keys = numbers[3];
  std::uint64_t bound = 1;
  for (Number key = 0; key < keys; ++key) {
    const std::uint64_t limit = std::max<Number>(numbers[6 + 3 * key], 1);
    if (__builtin_mul_overflow(bound, limit, &bound)) return -1;
  }
  const int place = std::bit_width((std::uint64_t)std::max<Number>(length - 1, 0));
  const int last = place + std::bit_width(bound - 1);
  if (last > 64) return -1;
  const Buffer<std::uint64_t> buffers(2 * length);
  if (!buffers) return -1;
  std::uint64_t *const rows = buffers.get();
  for (Number key = 0; key < keys; ++key) {
    const Number *field = numbers + 4 + 3 * key;
    with_indices(field[0], field[1], [&](const auto *index) {
      const std::uint64_t limit = std::max<Number>(field[2], 1);
      if (key == 0)
        for (Number i = 0; i < length; ++i) rows[i] = (std::uint64_t)index[i];
      else
        for (Number i = 0; i < length; ++i) rows[i] = rows[i] * limit + (std::uint64_t)index[i];
    });
  }
  if (std::is_sorted(rows, rows + length)) return 0;
  constexpr std::uint64_t counted = 1 << 20;  // values, whose counts are in a cache while they are written to
  if (bound <= counted && bound <= 4 * (std::uint64_t)length && place <= 32 &&
      with_indices(numbers[1], numbers[2], [&](auto *positions) { return order_by_counts(rows, length, bound, positions); }))
    return 1;
  for (Number i = 0; i < length; ++i) rows[i] = rows[i] << place | (std::uint64_t)i;
  const std::uint64_t *sorted = sorted_by_bits(rows, rows + length, length, place, last);
  const std::uint64_t mask = ((std::uint64_t)1 << place) - 1;
  with_indices(numbers[1], numbers[2], [&](auto *positions) {
    for (Number i = 0; i < length; ++i) positions[i] = sorted[i] & mask;
  });
  return 1;
}

// Copies vectors of a length, with their entries in the order of `positions` (0: the same order).
// `vectors`: their count; then of each its address and bytes of an index, and both for the copy.
inline void reordered(Number length, Number positions, Number bytes, const Number *vectors) {
  for (Number vector = 0; vector < vectors[0]; ++vector) {
    const Number *field = vectors + 1 + 4 * vector;
    with_indices(field[0], field[1], [&](const auto *from) {
      with_indices(field[2], field[3], [&](auto *to) {
        if (positions == 0)
          for (Number i = 0; i < length; ++i) to[i] = from[i];
        else
          with_indices(positions, bytes, [&](const auto *position) {
            for (Number i = 0; i < length; ++i) to[i] = from[position[i]];
          });
      });
    });
  }
}

// Does the same. `numbers`: length, address of positions (0: the same order), their bytes, and the vectors as above.
inline void reordered(const Number *numbers) {
  reordered(numbers[0], numbers[1], numbers[2], numbers + 3);
}

// Sorts rows, and copies vectors in their order. Returns the same as `stable_order`.
// `numbers`: those of `stable_order`, then the vectors as `reordered` takes them.
inline Number sorted_rows(const Number *numbers) {
  const Number found = stable_order(numbers);
  if (found >= 0) reordered(numbers[0], found ? numbers[1] : 0, numbers[2], numbers + 4 + 3 * numbers[3]);
  return found;
}

// Tells whether indices are not negative, and below a limit.
inline bool all_below(Number address, Number bytes, Number count, Number limit) {
  return with_indices(address, bytes, [&](const auto *index) {
    using Unsigned = std::make_unsigned_t<std::remove_cvref_t<decltype(*index)>>;
    Unsigned largest = 0;  // a negative one is larger than all others
    for (Number i = 0; i < count; ++i) largest = std::max(largest, (Unsigned)index[i]);
    return count == 0 || largest < (std::uint64_t)limit;
  });
}

// Checks edges, and copies them as `sorted_rows` does, by type and destination: destinations, sources, and types if
// there are several. Returns the same as `stable_order`; returns 2, and writes nothing, if an index is out of range.
// `numbers`: length; address of the positions; address of the copies, and bytes of an index in these; then of
// destinations, sources and types the address (0: one type), bytes of an index, and an upper bound, which none reaches.
inline Number sorted_edges(const Number *numbers) {
  const Number length = numbers[0], positions = numbers[1], to = numbers[2], bytes = numbers[3];
  const Number *const destinations = numbers + 4, *const sources = numbers + 7, *const types = numbers + 10;
  for (const Number *field : {destinations, sources, types})
    if (field[0] && !all_below(field[0], field[1], length, field[2])) return 2;
  const bool typed = types[0] && types[2] > 1;
  Number keys[10] = {length, positions, bytes, 1 + typed}, *key = keys + 4;
  if (typed) key = std::copy_n(types, 3, key);
  std::copy_n(destinations, 3, key);
  const Number found = stable_order(keys);
  if (found < 0) return found;
  Number copies[13] = {2 + typed}, *copy = copies + 1;
  for (const Number *field : {destinations, sources, types}) {
    if (field == types && !typed) break;
    const Number number = (copy - copies) / 4;
    for (const Number value : {field[0], field[1], to + number * length * bytes, bytes}) *copy++ = value;
  }
  reordered(length, found ? positions : 0, bytes, copies);
  return found;
}

// Describes edges of one type, whose ids are local to the types of their ends: their type, where they begin in the
// user's list, how many there are, and bytes of an index; then of destinations and of sources the address, the number
// of nodes of their type, and the first of these nodes.
struct Part {
  Number type, begin, count, bytes;
  struct End {
    Number ids, nodes, first;
  } ends[2];
};

// Joins edges of several types, in the order of types, by destination within each; sources and destinations get global
// ids. Returns the same as `stable_order`; returns 2 if an id is out of range.
// `numbers`: number of edges; address of the positions; address of destinations, sources and edge types, one behind the
// other, and of node types; bytes of an index in all of these; number of node types, and the number of nodes of each;
// number of parts, and the parts.
inline Number joined_parts(const Number *numbers) {
  const Number edges = numbers[0], bytes = numbers[4], node_types = numbers[5], *const nodes = numbers + 6;
  const Number parts = nodes[node_types];
  const auto *const first = (const Part *)(nodes + node_types + 1);
  for (const Part *part = first; part != first + parts; ++part)
    for (const Part::End &end : part->ends)
      if (!all_below(end.ids, part->bytes, part->count, end.nodes)) return 2;
  Number result = 0;
  const bool done = with_indices(numbers[2], bytes, [&](auto *to) {
    using Index = std::remove_pointer_t<decltype(to)>;
    auto *positions = (Index *)numbers[1], *node_type = (Index *)numbers[3];
    for (Number type = 0; type < node_types; ++type) node_type = std::fill_n(node_type, nodes[type], (Index)type);
    Number place = 0;
    for (const Part *part = first; part != first + parts; ++part) {
      const Number keys[] = {part->count, (Number)positions, bytes, 1, part->ends[0].ids, part->bytes, part->ends[0].nodes};
      const Number found = stable_order(keys);
      if (found < 0) return false;
      if (found || part->begin != place) result = 1;
      for (int end = 0; end < 2; ++end)
        with_indices(part->ends[end].ids, part->bytes, [&](const auto *id) {
          Index *const own = to + end * edges + place;
          const Number start = part->ends[end].first;
          for (Number i = 0; i < part->count; ++i) own[i] = (Index)(start + id[found ? positions[i] : i]);
        });
      std::fill_n(to + 2 * edges + place, part->count, (Index)part->type);
      for (Number i = 0; i < part->count; ++i) positions[i] = (Index)(part->begin + (found ? positions[i] : i));
      positions += part->count;
      place += part->count;
    }
    return true;
  });
  return done ? result : -1;
}

// Copies edges between different nodes, then adds self loops at the first nodes. Returns the number of edges; returns
// -1, and writes nothing, if an index is out of range.
// `numbers`: number of edges, address of the sources, of the destinations, bytes of an index, number of sources, of
// destinations, of self loops, addresses of the copies, which have room for all edges and loops.
inline Number with_loops(const Number *numbers) {
  const Number edges = numbers[0], bytes = numbers[3], loops = numbers[6];
  for (int end = 0; end < 2; ++end)
    if (!all_below(numbers[1 + end], bytes, edges, numbers[4 + end])) return -1;
  return with_indices(numbers[1], bytes, [&](const auto *src) {
    using Index = std::remove_cvref_t<decltype(*src)>;
    const auto *dst = (const Index *)numbers[2];
    auto *from = (Index *)numbers[7], *to = (Index *)numbers[8];
    Number kept = 0;
    for (Number i = 0; i < edges; ++i) {
      from[kept] = src[i];
      to[kept] = dst[i];
      kept += src[i] != dst[i];
    }
    for (Number node = 0; node < loops; ++node) from[kept + node] = to[kept + node] = (Index)node;
    return kept + loops;
  });
}

// Writes the count + 1 starts of the groups of equal targets, as if the targets were sorted; all are below `count`.
// `numbers`: length, address of the targets, their bytes, count, address of the starts, their bytes.
inline void pointers(const Number *numbers) {
  const Number length = numbers[0], count = numbers[3];
  with_indices(numbers[4], numbers[5], [&](auto *starts) {
    std::fill(starts, starts + count + 1, 0);
    with_indices(numbers[1], numbers[2], [&](const auto *target) {
      for (Number i = 0; i < length; ++i) ++starts[target[i] + 1];
    });
    for (Number i = 0; i < count; ++i) starts[i + 1] += starts[i];
  });
}

// Writes the group of each row.
// `numbers`: count of groups, address of their starts, address of the rows in the order of the groups or 0, address of
// the groups of rows, bytes of all of these.
inline void groups_of_rows(const Number *numbers) {
  with_indices(numbers[1], numbers[4], [&](const auto *starts) {
    using Index = std::remove_cvref_t<decltype(*starts)>;
    const auto *row = (const Index *)numbers[2];
    auto *group = (Index *)numbers[3];
    for (Number g = 0; g < numbers[0]; ++g)
      for (Number i = starts[g]; i < starts[g + 1]; ++i) group[row ? row[i] : i] = (Index)g;
  });
}

}  // namespace dacergnn
