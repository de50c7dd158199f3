// Gradient of the weights of segment_gemm: dW[t] = sum of X[gx(i)]^T Y[gy(i)] over the rows i of type t.
#pragma once

#include <algorithm>
#include <cstdint>

#include "parallel.h"
#include "segment_gemm.h"
#include "vector.h"

namespace dacergnn {
namespace outer {

// sum[k] (+)= x[i][k] * y[i] over n rows for KB values of k and one panel of columns. The KB x NV sums stay in registers
// over the block of rows, which stays in L1 while the tiles of dW pass over it.
template <class T, int64_t C, int64_t KB, int64_t NV, int64_t LastOffset>
inline __attribute__((always_inline)) void tile(const T* x, int64_t x_stride, const T* y, int64_t y_stride, int64_t n,
                                                T* into, bool add) {
    using V = typename Columns<T, C>::V;
    constexpr int64_t L = Columns<T, C>::lanes;
    V sum[KB][NV];
#pragma GCC unroll 8
    for (int64_t k = 0; k < KB; ++k) {
#pragma GCC unroll 4
        for (int64_t j = 0; j < NV; ++j)
            sum[k][j] = add ? load<V>(into + k * C + vector_offset<NV, LastOffset, L>(j)) : V{};
    }
    for (int64_t i = 0; i < n; ++i, x += x_stride, y += y_stride) {
        V b[NV];
#pragma GCC unroll 4
        for (int64_t j = 0; j < NV; ++j) b[j] = load<V>(y + vector_offset<NV, LastOffset, L>(j));
#pragma GCC unroll 8
        for (int64_t k = 0; k < KB; ++k) {
            const T a = x[k];
#pragma GCC unroll 4
            for (int64_t j = 0; j < NV; ++j) sum[k][j] = multiply_add(a, b[j], sum[k][j]);
        }
    }
#pragma GCC unroll 8
    for (int64_t k = 0; k < KB; ++k) {
#pragma GCC unroll 4
        for (int64_t j = 0; j < NV; ++j) store(into + k * C + vector_offset<NV, LastOffset, L>(j), sum[k][j]);
    }
}

// into (D x C) (+)= x^T y over n rows.
template <class T, int64_t D, int64_t C>
inline void block_product(const T* x, int64_t x_stride, const T* y, int64_t y_stride, int64_t n, T* into, bool add) {
    constexpr int64_t limit = Columns<T, C>::last >= kPanelVectors ? 6 : 8;
    constexpr int64_t KB = std::min(D, limit), rest = D % KB;
    for_each_panel<T, C>([&](auto nv, auto last_offset, int64_t column) {
        constexpr int64_t NV = decltype(nv)::value, Off = decltype(last_offset)::value;
        int64_t k = 0;
        for (; k + KB <= D; k += KB)
            tile<T, C, KB, NV, Off>(x + k, x_stride, y + column, y_stride, n, into + k * C + column, add);
        if constexpr (rest > 0)
            tile<T, C, rest, NV, Off>(x + k, x_stride, y + column, y_stride, n, into + k * C + column, add);
    });
}

struct PackedX;
struct PackedY;

}  // namespace outer

// dW[t] (H, K, M) = sum of scale[i] * X[xgather[i]]^T Y[ygather[i]] over the rows i of type t; zeros for a type without
// rows. Rows, gathers (nullptr: identity) and scale as in segment_gemm; X rows are (H, K), Y rows are (H, M). The sums
// do not depend on the number of threads.
template <class T, class I, int64_t H, int64_t K, int64_t M, int HS>
void segment_outer(const T* X, const I* xgather, const T* Y, const I* ygather, const I* ptr, int64_t types,
                   const I* rows, const T* scale, T* dW) {
    constexpr int64_t kBlock = std::clamp<int64_t>(24576 / (H * (K + M) * int64_t(sizeof(T))), 16, 128);
    const auto sum = [=](int64_t begin, int64_t end, int64_t, T* into) {
        if (begin == end) std::fill(into, into + H * K * M, T(0));
        T* packed_x = scratch<outer::PackedX, T>(kBlock * H * K);
        T* packed_y = scratch<outer::PackedY, T>(kBlock * H * M);
        for (int64_t p = begin; p < end; p += kBlock) {
            const int64_t n = std::min(kBlock, end - p);
            // Gathered or scaled rows are copied next to each other: the tiles read them many times.
            const T* x = X + p * (H * K);
            const T* y = Y + p * (H * M);
            if (HS != 0 || rows || xgather) {
                x = packed_x;
                for (int64_t r = 0; r < n; ++r) {
                    const int64_t i = rows ? static_cast<int64_t>(rows[p + r]) : p + r;
                    const T* from = X + (xgather ? static_cast<int64_t>(xgather[i]) : i) * (H * K);
                    gemm::scaled_row<T, H, K, HS, false>(from, scale + i * HS, packed_x + r * (H * K));
                }
            }
            if (rows || ygather) {
                y = packed_y;
                for (int64_t r = 0; r < n; ++r) {
                    const int64_t i = rows ? static_cast<int64_t>(rows[p + r]) : p + r;
                    const T* from = Y + (ygather ? static_cast<int64_t>(ygather[i]) : i) * (H * M);
                    std::copy(from, from + H * M, packed_y + r * (H * M));
                }
            }
            for (int64_t h = 0; h < H; ++h) {
                T* block = into + h * (K * M);
                if constexpr (M == 1 && K > 1)  // (K, 1) and (1, K) are the same memory: let K be the columns
                    outer::block_product<T, M, K>(y + h * M, H * M, x + h * K, H * K, n, block, p > begin);
                else
                    outer::block_product<T, K, M>(x + h * K, H * K, y + h * M, H * M, n, block, p > begin);
            }
        }
    };
    chunked_sum<T>(ptr, types, H * K * M, (H * K * M + 15) / 16, dW, sum);
}

}  // namespace dacergnn
