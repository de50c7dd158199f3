// Runs code for several rows at once, so that what it loads for all of them is under way together.
#pragma once

#include <type_traits>

#include "platform.cuh"

namespace dacergnn::cuda {

// Runs f(N, place) for N places from there on, `step` apart, N as a type: for as many at once as possible, `Batch` at
// most, so that loads of all of them are under way together.
template <int Batch, class F>
__device__ inline void in_batches(int64_t begin, int64_t end, int64_t step, const F& f) {
    for (; begin + (Batch - 1) * step < end; begin += Batch * step) f(std::integral_constant<int, Batch>(), begin);
    if constexpr (Batch > 2) {
        if (begin + step < end) {
            f(std::integral_constant<int, 2>(), begin);
            begin += 2 * step;
        }
    }
    if constexpr (Batch > 1)
        if (begin < end) f(std::integral_constant<int, 1>(), begin);
}

}  // namespace dacergnn::cuda
