// Wraps the matrix instructions that products use: 16 x 8 sums of float32, from a depth of 8 with TF32 factors, or of
// 16 with factors of 16 bits.
#pragma once

#include "platform.cuh"

namespace dacergnn::cuda {

// Tells whether products of float32 have TF32 factors; sums are float32 in any case.
#ifdef DACERGNN_TF32
inline constexpr bool kTf32 = true;
#else
inline constexpr bool kTf32 = false;
#endif

// Returns the nearest number with the 10 bits of fraction that TF32 has, ties away from zero.
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

// Computes c += a b, shared by the lanes of a warp. With g = lane / 4 and t = lane % 4, a lane holds
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

// Holds two elements of 16 bits, which instructions take as one word.
template <class Value>
struct Pair {
    Value element[2];

    __device__ static Pair of(unsigned word) { return __builtin_bit_cast(Pair, word); }
    __device__ unsigned word() const { return __builtin_bit_cast(unsigned, *this); }
};

// Loads four matrices of 8 x 8 elements of 16 bits from shared memory. Lane 8 i + r points to row r of matrix i: 16
// bytes, aligned to 16. With g = lane / 4 and t = lane % 4, a lane gets the elements (g, 2 t) and (g, 2 t + 1) of each
// matrix, or (2 t, g) and (2 t + 1, g) with Transposed.
template <bool Transposed, class Value>
__device__ inline void load_matrices(unsigned (&words)[4], const Value* row) {
    static_assert(kSmall<Value>);
#ifdef DACERGNN_EMULATE_CUDA
    const int g = lane() / 4, t = lane() % 4;
    for (int i = 0; i < 4; ++i) {
        Pair<Value> pair;
        for (int k = 0; k < 2; ++k) {
            const int r = Transposed ? 2 * t + k : g, column = Transposed ? g : 2 * t + k;
            const auto address = __shfl_sync(kAll, reinterpret_cast<std::uintptr_t>(row), 8 * i + r);
            if (address % 16 != 0) emulation::fail("loads a row of a matrix that is not aligned to 16 bytes");
            pair.element[k] = reinterpret_cast<const Value*>(address)[column];
        }
        words[i] = pair.word();
    }
#else
    const auto address = static_cast<unsigned>(__cvta_generic_to_shared(row));
    if constexpr (Transposed)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                     : "r"(address)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                     : "r"(address)
                     : "memory");
#endif
}

// Computes c += a b, shared by the lanes of a warp, with c as above. A word of a lane holds two neighbors of the depth,
//   a: (g, 2 t), (g + 8, 2 t), (g, 2 t + 8), (g + 8, 2 t + 8)   of 16 x 16
//   b: (2 t, g), (2 t + 8, g)                                   of 16 x 8
// and those behind them.
template <class Value>
__device__ inline void multiply_add_16x8x16(float (&c)[4], const unsigned (&a)[4], const unsigned b0,
                                            const unsigned b1) {
#ifdef DACERGNN_EMULATE_CUDA
    const int g = lane() / 4, t = lane() % 4;
    for (int k = 0; k < 16; k += 2) {
        const int from = k % 8 / 2;
        const Pair<Value> left[2] = {Pair<Value>::of(__shfl_sync(kAll, a[k / 8 * 2], g * 4 + from)),
                                     Pair<Value>::of(__shfl_sync(kAll, a[k / 8 * 2 + 1], g * 4 + from))};
        const Pair<Value> right[2] = {Pair<Value>::of(__shfl_sync(kAll, k < 8 ? b0 : b1, 2 * t * 4 + from)),
                                      Pair<Value>::of(__shfl_sync(kAll, k < 8 ? b0 : b1, (2 * t + 1) * 4 + from))};
        for (int i = 0; i < 4; ++i)
            for (int n = 0; n < 2; ++n)
                c[i] += convert<float>(left[i / 2].element[n]) * convert<float>(right[i % 2].element[n]);
    }
#else
    if constexpr (std::is_same_v<Value, __half>)
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
            "{%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    else
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
            "{%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
}

}  // namespace dacergnn::cuda
