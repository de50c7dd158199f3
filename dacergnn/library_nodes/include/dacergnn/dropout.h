// Draws the factors of dropout from a Mersenne twister, in the way in which torch draws them on the CPU.
#pragma once

#include <algorithm>
#include <cstdint>

namespace dacergnn {

inline constexpr int kTwisterWords = 624;

// Replaces the words of a Mersenne twister by the next ones.
inline void twist(std::uint32_t *words) {
  constexpr int shift = 397;
  const auto mixed = [](std::uint32_t word, std::uint32_t next) {
    return (((word & 0x80000000u) | (next & 0x7fffffffu)) >> 1) ^ (-(next & 1u) & 0x9908b0dfu);
  };
  for (int i = 0; i < kTwisterWords - shift; ++i) words[i] = words[i + shift] ^ mixed(words[i], words[i + 1]);
  for (int i = kTwisterWords - shift; i < kTwisterWords - 1; ++i)
    words[i] = words[i + shift - kTwisterWords] ^ mixed(words[i], words[i + 1]);
  words[kTwisterWords - 1] = words[shift - 1] ^ mixed(words[kTwisterWords - 1], words[0]);
}

// Returns the random number that a word of a Mersenne twister stands for.
inline std::uint32_t tempered(std::uint32_t word) {
  word ^= word >> 11;
  word ^= (word << 7) & 0x9d2c5680u;
  word ^= (word << 15) & 0xefc60000u;
  return word ^ (word >> 18);
}

// Writes `kept` for each of `count` random numbers of 53 bits that is below `limit`, else zero. Two words make a number,
// the upper one first. `position` is that of the next word, and is moved.
template <class Bits>
void draw_factors(std::uint32_t *words, int &position, std::uint64_t limit, Bits kept, Bits *factors,
                  std::int64_t count) {
  std::uint32_t numbers[kTwisterWords + 1];  // behind one that is left over from the words before
  int left_over = 0;
  while (count > 0) {
    if (position == kTwisterWords) {
      twist(words);
      position = 0;
    }
    const int taken = (int)std::min<std::int64_t>(kTwisterWords - position, 2 * count - left_over);
    for (int i = 0; i < taken; ++i) numbers[left_over + i] = tempered(words[position + i]);
    position += taken;
    const int pairs = (left_over + taken) / 2;
    for (int i = 0; i < pairs; ++i) {
      const std::uint64_t number = (std::uint64_t)(numbers[2 * i] & 0x1fffffu) << 32 | numbers[2 * i + 1];
      factors[i] = (std::int64_t)number < (std::int64_t)limit ? kept : Bits{0};
    }
    factors += pairs;
    count -= pairs;
    left_over = (left_over + taken) % 2;
    numbers[0] = numbers[2 * pairs];
  }
}

}  // namespace dacergnn
