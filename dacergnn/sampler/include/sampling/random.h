// Streams of random numbers that depend on nothing but their key, so that threads may draw in any order.
#pragma once

#include <cstdint>

namespace dacergnn::sampling {

inline constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15;

// Mixes the bits of a number: the last step of the generator SplitMix64.
inline std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}

// Makes one key of two.
inline std::uint64_t joined(std::uint64_t key, std::uint64_t part) { return mixed(key + kStep * (part + 1)); }

// The generator SplitMix64.
class Random {
 public:
  explicit Random(std::uint64_t key) : state_(key) {}

  std::uint64_t next() { return mixed(state_ += kStep); }

  // Draws a number below `bound`, all with the same chance: the high half of a product, drawn again in the rare case
  // that would favour some numbers (Lemire, "Fast random integer generation in an interval").
  std::uint64_t below(std::uint64_t bound) {
    auto product = (unsigned __int128)next() * bound;
    if ((std::uint64_t)product < bound) {
      const std::uint64_t favoured = -bound % bound;
      while ((std::uint64_t)product < favoured) product = (unsigned __int128)next() * bound;
    }
    return (std::uint64_t)(product >> 64);
  }

  // Draws a number above 0, up to 1.
  double unit() { return (double)((next() >> 11) + 1) * 0x1p-53; }

 private:
  std::uint64_t state_;
};

}  // namespace dacergnn::sampling
