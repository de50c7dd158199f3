// The matrix instruction that products use: 16 x 8 results from a depth of 8, TF32 factors, float32 sums.
#pragma once

#include "platform.cuh"

namespace dacergnn::cuda {

// Whether products of float32 are made of TF32 numbers; sums are float32 in any case.
#ifdef DACERGNN_TF32
inline constexpr bool kTf32 = true;
#else
inline constexpr bool kTf32 = false;
#endif

// The nearest number with the 10 bits of fraction that TF32 has, ties away from zero.
__device__ inline float round_to_tf32(float x) {
#ifdef DACERGNN_EMULATE_CUDA
    const uint32_t bits = __builtin_bit_cast(uint32_t, x);
    if ((bits & 0x7f800000u) == 0x7f800000u) return x;
    return __builtin_bit_cast(float, (bits + 0x1000u) & ~0x1fffu);
#else
    uint32_t bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
    return __uint_as_float(bits);
#endif
}

// c += a b, shared by the lanes of a warp. With g = lane / 4 and t = lane % 4, a lane holds
//   a: (g, t), (g + 8, t), (g, t + 4), (g + 8, t + 4)   of 16 x 8
//   b: (t, g), (t + 4, g)                               of 8 x 8
//   c: (g, 2 t), (g, 2 t + 1), (g + 8, 2 t), (g + 8, 2 t + 1)   of 16 x 8
// a and b hold numbers of TF32: the instruction leaves out the bits that TF32 lacks.
__device__ inline void multiply_add_16x8x8(float (&c)[4], const float (&a)[4], const float (&b)[2]) {
#ifdef DACERGNN_EMULATE_CUDA
    const int g = lane() / 4, t = lane() % 4;
    for (int k = 0; k < 8; ++k) {
        const float left[2] = {__shfl_sync(kAll, a[k / 4 * 2], g * 4 + k % 4),
                               __shfl_sync(kAll, a[k / 4 * 2 + 1], g * 4 + k % 4)};
        const float right[2] = {__shfl_sync(kAll, b[k / 4], 2 * t * 4 + k % 4),
                                __shfl_sync(kAll, b[k / 4], (2 * t + 1) * 4 + k % 4)};
        for (int i = 0; i < 4; ++i) c[i] += left[i / 2] * right[i % 2];
    }
#else
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[2])),
          "r"(__float_as_uint(a[3])), "r"(__float_as_uint(b[0])), "r"(__float_as_uint(b[1])));
#endif
}

}  // namespace dacergnn::cuda
