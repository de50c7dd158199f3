// Computes sums, maxima and minima over the lanes of a warp.
#pragma once

#include "launch.cuh"

namespace dacergnn::cuda {

// In emulation, functions that synchronize lanes of a warp pass on the place of their call: lanes may only meet if they
// come from the same place.
#ifdef DACERGNN_EMULATE_CUDA
#define DACERGNN_CALLED_AT , const char *file = __builtin_FILE(), int line = __builtin_LINE()
#define DACERGNN_AT , file, line
#else
#define DACERGNN_CALLED_AT
#define DACERGNN_AT
#endif

// Returns `combine` over the values of all lanes of a full warp, in the same order in every lane.
template <class T, class Combine>
__device__ inline T warp_reduce(T value, Combine combine DACERGNN_CALLED_AT) {
#pragma unroll
    for (int distance = kWarp / 2; distance > 0; distance /= 2)
        value = combine(value, __shfl_xor_sync(kAll, value, distance, kWarp DACERGNN_AT));
    return value;
}
struct Sum {
    template <class T>
    __device__ T operator()(T a, T b) const {
        return a + b;
    }
};
struct Max {
    template <class T>
    __device__ T operator()(T a, T b) const {
        return a < b ? b : a;
    }
};
struct Min {
    template <class T>
    __device__ T operator()(T a, T b) const {
        return b < a ? b : a;
    }
};
template <class T>
__device__ inline T warp_sum(T value DACERGNN_CALLED_AT) {
    return warp_reduce(value, Sum() DACERGNN_AT);
}
template <class T>
__device__ inline T warp_max(T value DACERGNN_CALLED_AT) {
    return warp_reduce(value, Max() DACERGNN_AT);
}
template <class T>
__device__ inline T warp_min(T value DACERGNN_CALLED_AT) {
    return warp_reduce(value, Min() DACERGNN_AT);
}

}  // namespace dacergnn::cuda
