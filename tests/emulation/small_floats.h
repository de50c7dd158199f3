// Floating-point numbers of 16 bits, rounded to the nearest, ties to even.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>

namespace dacergnn::emulation {

inline std::uint16_t to_bfloat16(float value) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
    if (value != value) return static_cast<std::uint16_t>(bits >> 16 | 0x40);
    return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
inline float from_bfloat16(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }

inline std::uint16_t to_half(float value) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
    const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000);
    const float size = std::fabs(value);
    std::uint32_t rounded = 0x7e00;
    if (size >= 65520.0f)
        rounded = 0x7c00;
    else if (size < 0x1p-14f)  // multiples of 2^-24
        rounded = static_cast<std::uint32_t>(std::nearbyint(size * 0x1p24f));
    else if (size == size)
        rounded = ((bits & 0x7fffffff) - (112u << 23) + 0xfff + (bits >> 13 & 1)) >> 13;
    return static_cast<std::uint16_t>(sign | rounded);
}
inline float from_half(std::uint16_t bits) {
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    float size = std::ldexp(static_cast<float>(exponent > 0 ? fraction + 1024 : fraction), std::max(exponent, 1) - 25);
    if (exponent == 31)
        size = fraction > 0 ? std::numeric_limits<float>::quiet_NaN() : std::numeric_limits<float>::infinity();
    return std::copysign(size, bits & 0x8000 ? -1.0f : 1.0f);
}

}  // namespace dacergnn::emulation

struct __nv_bfloat16 {
    std::uint16_t bits;

    __nv_bfloat16() = default;
    template <class T>
        requires std::integral<T> || std::floating_point<T>
    __nv_bfloat16(T value) : bits(dacergnn::emulation::to_bfloat16(static_cast<float>(value))) {}
    operator float() const { return dacergnn::emulation::from_bfloat16(bits); }
};

struct __half {
    std::uint16_t bits;

    __half() = default;
    template <class T>
        requires std::integral<T> || std::floating_point<T>
    __half(T value) : bits(dacergnn::emulation::to_half(static_cast<float>(value))) {}
    operator float() const { return dacergnn::emulation::from_half(bits); }
};
