// Defines scalar functions that generated traversal bodies use.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#ifdef __CUDACC__
#define DACERGNN_ANYWHERE __host__ __device__
#else
#define DACERGNN_ANYWHERE
#endif

namespace dacergnn {

// Return the maximum and the minimum; as in torch, NaN is passed on. If both are equal, they return the second, which
// matters for the signs of zeros.
template <class T> DACERGNN_ANYWHERE inline T maximum(T a, T b) { return (a > b || a != a) ? a : b; }
template <class T> DACERGNN_ANYWHERE inline T minimum(T a, T b) { return (a < b || a != a) ? a : b; }

// Returns a where the condition is not 0, else b. It works bit by bit, because GCC 12 compiles loads that depend on a
// condition wrongly in loops that it unrolls.
template <class T> DACERGNN_ANYWHERE inline T chosen(T condition, T a, T b) {
#ifdef __CUDA_ARCH__
    return condition != 0 ? a : b;
#else
    using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
    const Bits mask = -Bits(condition != 0);
    return __builtin_bit_cast(T, (__builtin_bit_cast(Bits, a) & mask) | (__builtin_bit_cast(Bits, b) & ~mask));
#endif
}

// Returns x, limited to low .. high. NaN stays NaN. Each limit takes one comparison; maximum and minimum take two.
template <class T> inline T bounded(T x, T low, T high) {
    const T lower = x < low ? low : x;
    return lower > high ? high : lower;
}

// Represents x = n log 2 + r with an integer n and |r| <= log 2 / 2, for |x| up to 2^21.
struct Reduced {
    float r;
    int32_t n;
};

inline Reduced reduced(float x) {
    constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer in the lowest bits
    const float shifted = x * 1.44269504f + kRound, n = shifted - kRound;
    const float r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
    return {r, __builtin_bit_cast(int32_t, shifted) - __builtin_bit_cast(int32_t, kRound)};
}

// Returns 2^n for the exponents of normal numbers.
inline float power_of_two(int32_t n) { return __builtin_bit_cast(float, uint32_t(n + 127) << 23); }
inline double power_of_two(int64_t n) { return __builtin_bit_cast(double, uint64_t(n + 1023) << 52); }

// Returns (e^r - 1) / r for a reduced r, by a Taylor polynomial.
inline float slope_of_exp(float r) {
    float p = 1.0f / 5040;
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    return p * r + 1.0f;
}

// Represents e^x = power 2^n for a power near 1 and an integer n.
template <class T, class Integer> struct Scaled {
    T power;
    Integer n;
};

// Returns e^x for |x| up to 2^21.
inline Scaled<float, int32_t> scaled_exp(float x) {
    const auto [r, n] = reduced(x);
    return {slope_of_exp(r) * r + 1.0f, n};
}

// Returns e^x for |x| up to 2^50.
inline Scaled<double, int64_t> scaled_exp(double x) {
    constexpr double kRound = 6755399441055744.0;  // 1.5 * 2^52
    const double shifted = x * 1.4426950408889634 + kRound, n = shifted - kRound;
    const double r = (x - n * 0.6931471803691238) - n * 1.9082149292705877e-10;
    double p = 1.0 / 6227020800.0;
    p = p * r + 1.0 / 479001600.0;
    p = p * r + 1.0 / 39916800.0;
    p = p * r + 1.0 / 3628800.0;
    p = p * r + 1.0 / 362880.0;
    p = p * r + 1.0 / 40320.0;
    p = p * r + 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    p = p * r + 1.0;
    p = p * r + 1.0;
    return {p, __builtin_bit_cast(int64_t, shifted) - __builtin_bit_cast(int64_t, kRound)};
}

// Returns e^x without branches or calls, so that loops over it vectorize. It multiplies e^r by 2^n in two factors,
// because n may lie outside the exponents of normal numbers. The error is within 2 ulp; -inf gives 0, overflow gives
// inf, NaN gives NaN. Devices use their own functions, which have instructions for this.
DACERGNN_ANYWHERE inline float exp(float x) {
#ifdef __CUDA_ARCH__
    return ::expf(x);
#else
    const auto [power, n] = scaled_exp(bounded(x, -104.0f, 89.0f));
    const auto half = n >> 1;
    return power * power_of_two(half) * power_of_two(n - half);
#endif
}

DACERGNN_ANYWHERE inline double exp(double x) {
#ifdef __CUDA_ARCH__
    return ::exp(x);
#else
    const auto [power, n] = scaled_exp(bounded(x, -746.0, 710.0));
    const auto half = n >> 1;
    return power * power_of_two(half) * power_of_two(n - half);
#endif
}

// Returns e^x - 1 as 2^n (e^r - 1) + (2^n - 1), computed with half of 2^n, which may be too large. The error is within
// 3 ulp.
DACERGNN_ANYWHERE inline float expm1(float x) {
#ifdef __CUDA_ARCH__
    return ::expm1f(x);
#else
    const auto [r, n] = reduced(bounded(x, -18.0f, 89.0f));
    const float scale = power_of_two(n - 1);
    return 2.0f * (scale * (slope_of_exp(r) * r) + (scale - 0.5f));
#endif
}

DACERGNN_ANYWHERE inline double expm1(double x) { return std::expm1(x); }

// Returns tanh(x) = (1 - p) / (1 + p) with p = e^-2|x| and the sign of x; loops over it vectorize. Near 1 it computes
// 1 - 2 p / (1 + p), because slopes depend on the distance to 1. The error is within 3 ulp; near 1, the result is the
// nearest number or a neighbor of it.
DACERGNN_ANYWHERE inline float tanh(float x) {
#ifdef __CUDA_ARCH__
    return ::tanhf(x);
#else
    const float size = std::abs(x);
    const auto [r, n] = reduced(size > 10.0f ? -20.0f : -2.0f * size);
    const float scale = power_of_two(n), grown = scale * (slope_of_exp(r) * r), power = grown + scale;
    const bool near = size > 0.55f;
    const float share = (near ? -2.0f * power : grown + (scale - 1.0f)) / (power + 1.0f);
    return std::copysign(near ? 1.0f + share : share, x);
#endif
}

DACERGNN_ANYWHERE inline double tanh(double x) { return std::tanh(x); }

// Returns 1 / (1 + e^-x). Both sides of the fraction are scaled by half of the power of two, so that neither overflows.
template <class T> DACERGNN_ANYWHERE inline T sigmoid(T x) {
#ifdef __CUDA_ARCH__
    const T power = exp(-std::abs(x));
    return (x < 0 ? power : T(1)) / (power + T(1));
#else
    constexpr T kMost = sizeof(T) == 4 ? 104 : 746;
    const auto [power, n] = scaled_exp(bounded(-x, -kMost, kMost));
    const auto half = n >> 1;
    const T one = power_of_two(-half);
    return one / (one + power * power_of_two(n - half));
#endif
}

// Returns 1 / (2 First + 1) + w / (2 First + 3) + ... + w^(Last - First) / (2 Last + 1).
template <class T, int First, int Last> DACERGNN_ANYWHERE inline T odd_series(T w) {
    constexpr T kFirst = T(1) / (2 * First + 1);
    if constexpr (First == Last)
        return kFirst;
    else
        return kFirst + w * odd_series<T, First + 1, Last>(w);
}

// Returns log(1 + e^x) = max(x, 0) + log(1 + p) with p = e^-|x|; loops over it vectorize. The logarithm is 2 artanh(z)
// with z = p / (2 + p) up to 1/3. The error is within 3 ulp.
template <class T> DACERGNN_ANYWHERE inline T softplus(T x) {
    const T power = exp(-std::abs(x)), z = power / (power + T(2)), w = z * z, twice = T(2) * z;
    return maximum(x, T(0)) + (twice + twice * w * odd_series<T, 1, sizeof(T) == 4 ? 7 : 16>(w));
}

// Returns erf(x) without branches or calls, so that loops over it vectorize. Up to 1 it is x times a polynomial in x^2,
// above it is 1 - e^-p for a polynomial p in |x|, both fitted at Chebyshev points. The error is within 3 ulp.
DACERGNN_ANYWHERE inline float erf(float x) {
    const float size = std::abs(x), t = size > 4.0f ? 4.0f : size, u = t * t;
    float small = 7.8824971e-5f;
    small = small * u - 8.0188550e-4f;
    small = small * u + 5.1893119e-3f;
    small = small * u - 2.6854329e-2f;
    small = small * u + 1.1283597e-1f;
    small = small * u - 3.7612627e-1f;
    small = small * u + 1.1283792f;
    float large = 6.5828586e-8f;
    large = large * t - 3.0952048e-6f;
    large = large * t + 6.0068797e-5f;
    large = large * t - 6.7333756e-4f;
    large = large * t + 5.0210448e-3f;
    large = large * t - 2.6999497e-2f;
    large = large * t + 1.1090742e-1f;
    large = large * t + 6.3108887e-1f;
    large = large * t + 1.1306045f;
    large = large * t - 4.0050051e-4f;
    return t < 1.0f ? x * small : std::copysign(1.0f - exp(-large), x);
}

DACERGNN_ANYWHERE inline double erf(double x) { return std::erf(x); }

}  // namespace dacergnn
