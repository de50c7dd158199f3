// Divides many numbers by the same one without a division for each.
#pragma once

#include <limits>

#include "platform.cuh"

namespace dacergnn::cuda {

template <class T>
__host__ __device__ constexpr T power_of_two(int exponent) {
    T result = 1;
    for (; exponent > 0; --exponent) result *= T(2);
    for (; exponent < 0; ++exponent) result *= T(0.5);
    return result;
}

// Holds a divisor as its reciprocal: x / divisor is off by a few roundings at most, also where the reciprocal itself
// would overflow or vanish. A division's own code has a branch for such numbers, which keeps loads of several rows
// from being under way at once.
template <class T>
class Divisor {
    static constexpr int kHalf = std::numeric_limits<T>::max_exponent / 2;
    static constexpr T kLarge = power_of_two<T>(kHalf), kSmall = power_of_two<T>(-kHalf);
    T reciprocal_, scale_;

  public:
    Divisor() = default;
    __device__ explicit Divisor(T value) {
        const T size = value < 0 ? -value : value;
        scale_ = size < kSmall ? kLarge : size > kLarge ? kSmall : T(1);
        reciprocal_ = T(1) / (value * scale_);
    }
    __device__ friend T operator/(T x, const Divisor& by) { return x * by.scale_ * by.reciprocal_; }
};

}  // namespace dacergnn::cuda
