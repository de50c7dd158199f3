// Computes gradients of the weights of segment_gemm: dW[t] = sum of X[gx(i)]^T Y[gy(i)] over the rows i of type t.
#pragma once

#include <algorithm>
#include <cstdint>

#include "gemm_tile.h"
#include "parallel.h"
#include "vector.h"

namespace dacergnn {
namespace outer {

// Computes into[k] (+)= sum over n > 0 rows of x[i][k] * y[i] for KB values of k and one panel of columns. The KB x NV
// sums stay in registers over the block of rows, which stays in L1 while the tiles of dW pass over it. The rows are not
// copied next to each other: that cost more than the pointers do. The empty assembly keeps GCC from computing the
// address of every x[k], for which there are no registers. With `Asks`, each row is prefetched for the next tiles,
// since no hardware prefetcher follows so many rows at once.
template <class T, int64_t C, int64_t KB, int64_t NV, int64_t LastOffset, bool Asks>
inline __attribute__((always_inline)) void tile(const T* const* xs, int64_t x_offset, const T* const* ys,
                                                int64_t y_offset, int64_t n, T* into, bool add) {
    using V = typename Columns<T, C>::V;
    constexpr int64_t L = Columns<T, C>::lanes;
    V sum[KB][NV];
#pragma GCC unroll 16
    for (int64_t k = 0; k < KB; ++k) {
#pragma GCC unroll 4
        for (int64_t j = 0; j < NV; ++j)
            sum[k][j] = add ? load<V>(into + k * C + vector_offset<NV, LastOffset, L>(j)) : V{};
    }
    if (n <= 0) __builtin_unreachable();
    for (int64_t i = 0; i < n; ++i) {
        const T* x = xs[i] + x_offset;
        asm("" : "+r"(x));
        const T* y = ys[i] + y_offset;
        if constexpr (Asks) __builtin_prefetch(x + KB + 64 / sizeof(T));
        V b[NV];
#pragma GCC unroll 4
        for (int64_t j = 0; j < NV; ++j) b[j] = load<V>(y + vector_offset<NV, LastOffset, L>(j));
#pragma GCC unroll 16
        for (int64_t k = 0; k < KB; ++k) {
            const T a = x[k];
#pragma GCC unroll 4
            for (int64_t j = 0; j < NV; ++j) sum[k][j] = multiply_add(a, b[j], sum[k][j]);
        }
    }
#pragma GCC unroll 16
    for (int64_t k = 0; k < KB; ++k) {
#pragma GCC unroll 4
        for (int64_t j = 0; j < NV; ++j) store(into + k * C + vector_offset<NV, LastOffset, L>(j), sum[k][j]);
    }
}

// Computes into (D x C) (+)= x^T y over n rows, each from its offset, and calls ahead() once per tile. With `Asks`, x
// may be in a far cache.
template <class T, int64_t D, int64_t C, bool Asks, class Ahead>
inline void block_product(const T* const* x, int64_t x_offset, const T* const* y, int64_t y_offset, int64_t n, T* into,
                          bool add, const Ahead& ahead) {
    constexpr int64_t KB = std::min<int64_t>({D, 16, 6 * kPanelVectors / Columns<T, C>::last}), rest = D % KB;
    constexpr bool asks = Asks && D > KB;
    for_each_panel<T, C>([&](auto nv, auto last_offset, int64_t column) {
        constexpr int64_t NV = decltype(nv)::value, Off = decltype(last_offset)::value;
        int64_t k = 0;
        for (; k + KB <= D; k += KB, ahead())
            tile<T, C, KB, NV, Off, asks>(x, x_offset + k, y, y_offset + column, n, into + k * C + column, add);
        if constexpr (rest > 0)
            tile<T, C, rest, NV, Off, false>(x, x_offset + k, y, y_offset + column, n, into + k * C + column, add);
    });
}

struct Sums;

}  // namespace outer

// Names the operand that repeats over consecutive rows, so that the rows of the other are summed before the product.
enum class Runs { kNone, kOfX, kOfY };

// Computes dW[t] (H, K, M) = sum of scale[i] * X[xgather[i]]^T Y[ygather[i]] over the rows i of type t, zeros for a
// type without rows. Rows, gathers (nullptr: identity) and scale are as in segment_gemm; X rows are (H, K), Y rows are
// (H, M). The sums do not depend on the number of threads.
template <class T, class I, int64_t H, int64_t K, int64_t M, int HS, Runs R, class XGather, class YGather, class Rows>
void segment_outer(const T* X, const XGather xgather, const T* Y, const YGather ygather, const I* ptr, int64_t types,
                   const Rows rows, const T* scale, T* dW) {
    // (K, 1) and (1, K) are the same memory: a single column is computed as a single row.
    constexpr bool swap = M == 1 && K > 1;
    constexpr int64_t D = swap ? M : K, C = swap ? K : M;
    // The panel of Y that a tile reads takes a third of L1; if narrow tiles pass over the rows many times, all rows
    // together take a third. The tiles request the next rows.
    constexpr int64_t panel = std::min(C, Columns<T, C>::last * Columns<T, C>::lanes) * int64_t(sizeof(T));
    constexpr int64_t kBlock = std::clamp<int64_t>(16384 / panel, 32, kPanelVectors < 4 ? 48 : 128);
    constexpr int64_t kAhead = kBlock / (H * Columns<T, C>::panels * std::max<int64_t>(D / 8, 1)) + 1;
    // The operand that is scaled and summed, and the size of its heads.
    constexpr bool sums_y = R == Runs::kOfX;
    constexpr int64_t S = sums_y ? M : K;
    // Scaled rows are in a near cache: they have just been written.
    constexpr bool asks = HS == 0 || sums_y != swap;
    constexpr bool irregular = !(is_identity<Rows> && is_identity<XGather> && is_identity<YGather>);
    const auto x_row = [=](int64_t p) { return X + at(xgather, at(rows, p)) * (H * K); };
    const auto y_row = [=](int64_t p) { return Y + at(ygather, at(rows, p)) * (H * M); };
    const auto sum = [=](int64_t begin, int64_t end, int64_t, T* into) {
        if (begin == end) std::fill(into, into + H * K * M, T(0));
        T* sums = HS == 0 && R == Runs::kNone ? nullptr : scratch<outer::Sums, T>(kBlock * H * S);
        const T* xs[kBlock];
        const T* ys[kBlock];
        const T** summed = sums_y ? ys : xs;
        int64_t next = begin;
        const auto ahead = [&] {
            const int64_t stop = std::min(end, next + kAhead);
            for (; next < stop; ++next) {
                prefetch_row<H * K, 2>(x_row(next));
                prefetch_row<H * M, 2>(y_row(next));
            }
        };
        for (int64_t p = begin, first = true; p < end; first = false) {
            int64_t n = 0;
            const T* repeated = nullptr;
            for (; p < end; ++p) {
                const T *x = x_row(p), *y = y_row(p), *factor = scale + at(rows, p) * HS;
                T* place = sums + (n - 1) * (H * S);
                if (R != Runs::kNone && n > 0 && (sums_y ? x : y) == repeated) {
                    if (summed[n - 1] != place) copy_row<H * S, false>(summed[n - 1], T(1), place);
                    summed[n - 1] = place;
                    gemm::scaled_row<T, H, S, HS, true>(sums_y ? y : x, factor, place);
                    continue;
                }
                if (n == kBlock) break;
                xs[n] = x;
                ys[n] = y;
                repeated = sums_y ? x : y;
                if constexpr (HS != 0) {
                    gemm::scaled_row<T, H, S, HS, false>(sums_y ? y : x, factor, place + H * S);
                    summed[n] = place + H * S;
                }
                ++n;
            }
            next = irregular ? p : end;  // the hardware prefetcher follows regular rows
            for (int64_t h = 0; h < H; ++h) {
                T* block = into + h * (K * M);
                if constexpr (swap)
                    outer::block_product<T, D, C, asks>(ys, h * M, xs, h * K, n, block, !first, ahead);
                else
                    outer::block_product<T, D, C, asks>(xs, h * K, ys, h * M, n, block, !first, ahead);
            }
        }
    };
    chunked_sum<T>(ptr, types, H * K * M, gemm::kRowWork<H, K, M>, dW, sum);
}

}  // namespace dacergnn
