// Gradient of the weights of segment_gemm: dW[t] = sum of X[gx(i)]^T Y[gy(i)] over the rows i of type t.
#pragma once

#include <algorithm>
#include <cstdint>

#include "parallel.h"
#include "segment_gemm.h"
#include "vector.h"

namespace dacergnn {
namespace outer {

#ifndef PB
#define PB 24576
#endif
constexpr int64_t kPanelBytes = PB;

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

// into (D x C) (+)= x^T y over n rows; ahead() is called once per tile.
template <class T, int64_t D, int64_t C, class Ahead>
inline void block_product(const T* x, int64_t x_stride, const T* y, int64_t y_stride, int64_t n, T* into, bool add,
                          const Ahead& ahead) {
    constexpr int64_t limit = Columns<T, C>::last >= kPanelVectors ? 6 : 8;
    constexpr int64_t KB = std::min(D, limit), rest = D % KB;
    for_each_panel<T, C>([&](auto nv, auto last_offset, int64_t column) {
        constexpr int64_t NV = decltype(nv)::value, Off = decltype(last_offset)::value;
        int64_t k = 0;
        for (; k + KB <= D; k += KB, ahead())
            tile<T, C, KB, NV, Off>(x + k, x_stride, y + column, y_stride, n, into + k * C + column, add);
        if constexpr (rest > 0)
            tile<T, C, rest, NV, Off>(x + k, x_stride, y + column, y_stride, n, into + k * C + column, add);
    });
}

// Distance between the rows of a packed block: an odd number of cache lines, so that a column of the block, which a tile
// reads, is spread over all sets of the cache.
template <class T>
inline constexpr int64_t packed_stride(int64_t elements) {
    constexpr int64_t line = 64 / int64_t(sizeof(T));
    return ((elements + line - 1) / line | 1) * line;
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
    // (K, 1) and (1, K) are the same memory: a single column is computed as a single row.
    constexpr bool swap = M == 1 && K > 1;
    constexpr int64_t D = swap ? M : K, C = swap ? K : M;
    // A block of one panel of Y takes half of L1; the tiles that pass over a block ask for the rows of the next one.
    constexpr int64_t panel = std::min(C, Columns<T, C>::last * Columns<T, C>::lanes) * int64_t(sizeof(T));
    constexpr int64_t kBlock = std::clamp<int64_t>(outer::kPanelBytes / panel, 32, 128);
    constexpr int64_t kAhead = kBlock / (H * Columns<T, C>::panels * std::max<int64_t>(D / 8, 1)) + 1;
    constexpr int64_t x_packed = outer::packed_stride<T>(H * K), y_packed = outer::packed_stride<T>(H * M);
    const auto x_row = [=](int64_t p) {
        const int64_t i = rows ? static_cast<int64_t>(rows[p]) : p;
        return X + (xgather ? static_cast<int64_t>(xgather[i]) : i) * (H * K);
    };
    const auto y_row = [=](int64_t p) {
        const int64_t i = rows ? static_cast<int64_t>(rows[p]) : p;
        return Y + (ygather ? static_cast<int64_t>(ygather[i]) : i) * (H * M);
    };
    // Gathered or scaled rows are copied next to each other: the tiles read them many times.
    const bool pack_x = HS != 0 || rows || xgather, pack_y = rows || ygather;
    const auto sum = [=](int64_t begin, int64_t end, int64_t, T* into) {
        if (begin == end) std::fill(into, into + H * K * M, T(0));
        T* x_copy = scratch<outer::PackedX, T>(kBlock * x_packed);
        T* y_copy = scratch<outer::PackedY, T>(kBlock * y_packed);
        int64_t next = begin;
        const auto ahead = [&] {
            const int64_t stop = std::min(end, next + kAhead);
            for (; next < stop; ++next) {
                if (pack_x) prefetch_row<H * K, 2>(x_row(next));
                if (pack_y) prefetch_row<H * M, 2>(y_row(next));
            }
        };
        for (int64_t p = begin; p < end; p += kBlock) {
            const int64_t n = std::min(kBlock, end - p);
            for (int64_t r = 0; pack_x && r < n; ++r) {
                const int64_t i = rows ? static_cast<int64_t>(rows[p + r]) : p + r;
                gemm::scaled_row<T, H, K, HS, false>(x_row(p + r), scale + i * HS, x_copy + r * x_packed);
            }
            for (int64_t r = 0; pack_y && r < n; ++r) copy_row<H * M, false>(y_row(p + r), T(1), y_copy + r * y_packed);
            const T* x = pack_x ? x_copy : X + p * (H * K);
            const T* y = pack_y ? y_copy : Y + p * (H * M);
            const int64_t x_stride = pack_x ? x_packed : H * K, y_stride = pack_y ? y_packed : H * M;
            next = pack_x || pack_y ? p + n : end;
            for (int64_t h = 0; h < H; ++h) {
                T* block = into + h * (K * M);
                if constexpr (swap)
                    outer::block_product<T, D, C>(y + h * M, y_stride, x + h * K, x_stride, n, block, p > begin, ahead);
                else
                    outer::block_product<T, D, C>(x + h * K, x_stride, y + h * M, y_stride, n, block, p > begin, ahead);
            }
        }
    };
    chunked_sum<T>(ptr, types, H * K * M, (H * K * M + 15) / 16, dW, sum);
}

}  // namespace dacergnn
