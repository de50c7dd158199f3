// Defines types of numbers: elements of arrays, and values of computations.
#pragma once

#include <type_traits>

#ifdef DACERGNN_EMULATE_CUDA
#include "small_floats.h"
#else
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

namespace dace {  // as generated code has them
using bfloat16 = __nv_bfloat16;
using float16 = __half;
}  // namespace dace

namespace dacergnn::cuda {

// The type of all computed values and sums: float32 for elements of 16 and 32 bits. Values are rounded to the type of
// elements when an array is stored, and when they become factors of a matrix instruction.
template <class Element>
using Accumulator = std::conditional_t<std::is_same_v<Element, double>, double, float>;

template <class Element>
inline constexpr bool kSmall = sizeof(Element) == 2;

template <class To, class From>
__host__ __device__ inline To convert(const From& value) {
    return static_cast<To>(value);
}

}  // namespace dacergnn::cuda
