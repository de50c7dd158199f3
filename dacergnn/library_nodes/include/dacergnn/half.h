// Elements of 16 bits: arrays hold them, kernels compute in float. Both types convert to and from float by themselves,
// rounding to nearest, ties to even; loops over them vectorize on every processor.
#pragma once

#include <cstdint>
#include <type_traits>

namespace dacergnn {

// The upper half of a float.
struct bfloat16 {
    uint16_t bits;

    bfloat16() = default;
    bfloat16(float value) : bits(rounded(value)) {}
    bfloat16& operator=(float value) {
        bits = rounded(value);
        return *this;
    }
    operator float() const { return __builtin_bit_cast(float, uint32_t(bits) << 16); }

  private:
    static uint16_t rounded(float value) {
        const uint32_t wide = __builtin_bit_cast(uint32_t, value);
        const uint16_t nearest = (wide + 0x7fff + (wide >> 16 & 1)) >> 16;
        return value != value ? uint16_t(0x7fc0) : nearest;
    }
};

// IEEE's binary16: a sign, 5 bits of exponent, 10 of mantissa. Arithmetic on bits, because GCC 12 converts its own type
// one by one.
struct float16 {
    uint16_t bits;

    float16() = default;
    float16(float value) : bits(rounded(value)) {}
    float16& operator=(float value) {
        bits = rounded(value);
        return *this;
    }
    operator float() const {
        const uint32_t magnitude = uint32_t(bits & 0x7fff) << 13, sign = uint32_t(bits & 0x8000) << 16;
        // As bits of a float, exponents are 112 too small. The product is exact, also below the normal numbers.
        const uint32_t scaled = __builtin_bit_cast(uint32_t, __builtin_bit_cast(float, magnitude) * 0x1p112f);
        const uint32_t infinite = magnitude >= 0x0f800000 ? 0x7f800000 : 0;  // or not a number
        return __builtin_bit_cast(float, scaled | infinite | sign);
    }

  private:
    static uint16_t rounded(float value) {
        const uint32_t wide = __builtin_bit_cast(uint32_t, value), magnitude = wide & 0x7fffffff;
        // Normal numbers: the mantissa is rounded, and may carry into the exponent.
        uint32_t result = (magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13;
        // Smaller ones have steps of 2^-24, those of a float near 1/2: adding that rounds them.
        const float near_half = __builtin_bit_cast(float, magnitude) + 0.5f;
        result = magnitude < 0x38800000 ? __builtin_bit_cast(uint32_t, near_half) - 0x3f000000 : result;
        result = magnitude >= 0x477ff000 ? 0x7c00u : result;
        result = magnitude > 0x7f800000 ? 0x7e00u : result;
        return result | (wide >> 16 & 0x8000);
    }
};

// Tells whether a type is one of these, or DaCe's of the same meaning.
template <class T>
inline constexpr bool is_half = std::is_class_v<T> && sizeof(T) == 2;

// What elements of a type are computed in.
template <class Element>
using Computed = std::conditional_t<is_half<Element>, float, Element>;

}  // namespace dacergnn
