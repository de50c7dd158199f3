// Computes gradients of the weights of segment_gemm: dW[t] = sum of X[gx(i)]^T Y[gy(i)] over the rows i of type t.
#pragma once

#include <algorithm>
#include <cstdint>

#include "gemm_tile.h"
#include "parallel.h"
#include "rows.h"
#include "vector.h"

namespace dacergnn {
namespace outer {

// Computes into[k] (+)= sum over n > 0 rows of x[i][k] * y[i] for KB values of k and one panel of columns. The KB x NV
// sums stay in registers over the block of rows, which stays in L1 while the tiles of dW pass over it. The rows are not
// copied next to each other: that cost more than the pointers do. The empty assembly keeps GCC from computing the
// address of every x[k], for which there are no registers. With `Asks`, each row is prefetched for the next tiles,
// since no hardware prefetcher follows so many rows at once.
template <class F, int64_t C, int64_t KB, int64_t NV, int64_t LastOffset, bool Asks>
inline __attribute__((always_inline)) void tile(const F* const* xs, int64_t x_offset, const F* const* ys,
                                                int64_t y_offset, int64_t n, Sum<F>* into, bool add) {
    constexpr int64_t L = Columns<F, C>::lanes;
    using V = vector_t<Sum<F>, L>;
    V sum[KB][NV];
#pragma GCC unroll 16
    for (int64_t k = 0; k < KB; ++k) {
#pragma GCC unroll 4
        for (int64_t j = 0; j < NV; ++j)
            sum[k][j] = add ? load<V>(into + k * C + vector_offset<NV, LastOffset, L>(j)) : V{};
    }
    if (n <= 0) __builtin_unreachable();
    for (int64_t i = 0; i < n; ++i) {
        const F* x = xs[i] + x_offset;
        asm("" : "+r"(x));
        const F* y = ys[i] + y_offset;
        if constexpr (Asks) __builtin_prefetch(x + KB + 64 / sizeof(F));
        vector_t<F, L> b[NV];
#pragma GCC unroll 4
        for (int64_t j = 0; j < NV; ++j) b[j] = load<vector_t<F, L>>(y + vector_offset<NV, LastOffset, L>(j));
#pragma GCC unroll 16
        for (int64_t k = 0; k < KB; ++k) {
            const F a = x[k];
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
template <class F, int64_t D, int64_t C, bool Asks, class Ahead>
inline void block_product(const F* const* x, int64_t x_offset, const F* const* y, int64_t y_offset, int64_t n,
                          Sum<F>* into, bool add, const Ahead& ahead) {
    constexpr int64_t KB = std::min<int64_t>({D, 16, 6 * kPanelVectors / Columns<F, C>::last}), rest = D % KB;
    constexpr bool asks = Asks && D > KB;
    for_each_panel<F, C>([&](auto nv, auto last_offset, int64_t column) {
        constexpr int64_t NV = decltype(nv)::value, Off = decltype(last_offset)::value;
        int64_t k = 0;
        for (; k + KB <= D; k += KB, ahead())
            tile<F, C, KB, NV, Off, asks>(x, x_offset + k, y, y_offset + column, n, into + k * C + column, add);
        if constexpr (rest > 0)
            tile<F, C, rest, NV, Off, false>(x, x_offset + k, y, y_offset + column, n, into + k * C + column, add);
    });
}

struct Sums;
struct XFactors;
struct YFactors;

// Tells whether all elements of a row are zero.
template <int64_t Width, class E>
inline bool is_zero(const E* row) {
    bool any = false;
    for (int64_t i = 0; i < Width; ++i) any |= static_cast<std::conditional_t<(sizeof(E) < 4), float, E>>(row[i]) != 0;
    return !any;
}

template <bool First, class A, class B>
inline auto& either(A& a, B& b) {
    if constexpr (First)
        return a;
    else
        return b;
}

// Holds n rows of elements as rows of factors: the rows themselves, or copies in scratch memory. Two rows make a row of
// pairs.
template <class F, class Element, int64_t Width, int64_t Most, class Tag>
struct Factors {
    static constexpr bool kThere = std::is_same_v<F, Element>;
    const F* copies[kThere ? 1 : Most];
    const F* const* rows;

    Factors(const Element* const* from, int64_t n) {
        if constexpr (kThere) {
            rows = from;
        } else {
            F* into = scratch<Tag, F>(Most * Width);
            rows = copies;
            for (int64_t r = 0; r < n; r += kElements<F>, into += Width) {
                copies[r / kElements<F>] = into;
                if constexpr (!std::is_same_v<F, Pair>) {
                    copy_row<Width, false>(from[r], F(1), into);
                } else if (r + 1 < n) {
                    gemm::pair_rows<Width>(from[r], from[r + 1], into);
                } else {
                    for (int64_t j = 0; j < Width; ++j) into[j] = bfloat16(from[r][j]).bits;
                }
            }
        }
    }
};

}  // namespace outer

// Bytes of the rows that are made for a block: a part of a near cache, which also holds the sums.
inline constexpr int64_t kMadeBytes = int64_t{192} << 10;

// Names the operand that repeats over consecutive rows, so that the rows of the other are summed before the product.
enum class Runs { kNone, kOfX, kOfY };

// Names the operand that is a gradient of the rows themselves. Rows where it is zero take no part: nobody reads them,
// and a missing value of the other operand, which is NaN, must not reach the weights.
enum class Gradient { kNone, kX, kY };

// Computes dW[t] (H, K, M) = sum of scale[i] * X[xgather[i]]^T Y[ygather[i]] over the rows i of type t, zeros for a
// type without rows. Rows, gathers (nullptr: identity), scale and T are as in segment_gemm; X rows are (H, K), Y rows
// are (H, M). The sums do not depend on the number of threads. X may be `made_rows`, if nothing scales or repeats.
template <class T, class I, int64_t H, int64_t K, int64_t M, int HS, Runs R, Gradient G = Gradient::kNone, class X_,
          class YE, class Scale, class Out, class XGather, class YGather, class Rows>
void segment_outer(const X_ X, const XGather xgather, const YE* Y, const YGather ygather, const I* ptr, int64_t types,
                   const Rows rows, const Scale* scale, Out* dW) {
    using XE = typename RowsOf<X_>::Element;
    constexpr bool kMade = RowsOf<X_>::made;
    static_assert(!kMade || (HS == 0 && R == Runs::kNone && G != Gradient::kX), "made rows are plain");
    // (K, 1) and (1, K) are the same memory: a single column is computed as a single row.
    constexpr bool swap = M == 1 && K > 1;
    constexpr int64_t D = swap ? M : K, C = swap ? K : M;
    // Two rows make a row of pairs.
    using F = std::conditional_t<std::is_same_v<XE, YE>, gemm::Factor<T, XE, 2, C>, T>;
    // The panel of Y that a tile reads takes a third of L1; if narrow tiles pass over the rows many times, all rows
    // together take a third. The tiles request the next rows.
    constexpr int64_t panel = std::min(C, Columns<T, C>::last * Columns<T, C>::lanes) * int64_t(sizeof(T));
    constexpr int64_t kMost = std::clamp<int64_t>(16384 / panel, 32, kPanelVectors < 4 ? 48 : 128);
    // Made rows lie apart by some lines more than their length, else wide ones would share the sets of a cache.
    constexpr int64_t kStride = H * K + 64 / int64_t(sizeof(T));
    constexpr int64_t kBlock =
        kMade ? std::clamp<int64_t>(kMadeBytes / (kStride * int64_t(sizeof(T))), 8, kMost) : kMost;
    constexpr int64_t kAhead = kBlock / (H * Columns<T, C>::panels * std::max<int64_t>(D / 8, 1)) + 1;
    // The operand that is scaled and summed, and the size of its heads.
    constexpr bool sums_y = R == Runs::kOfX, kSums = HS != 0 || R != Runs::kNone;
    constexpr int64_t S = sums_y ? M : K;
    using Summed = std::conditional_t<sums_y, YE, XE>;
    constexpr bool kCopies = HS != 0 || (kSums && !std::is_same_v<Summed, T>);
    // The elements of the rows that become factors.
    using Left = std::conditional_t<kSums && !sums_y, T, XE>;
    using Right = std::conditional_t<kSums && sums_y, T, YE>;
    // Scaled rows are in a near cache: they have just been written.
    constexpr bool asks = !kMade && (HS == 0 || sums_y != swap) && std::is_same_v<F, std::conditional_t<swap, Right, Left>>;
    constexpr bool irregular = !(is_identity<Rows> && is_identity<XGather> && is_identity<YGather>);
    const auto x_row = [=](int64_t p) -> const XE* {
        if constexpr (kMade)
            return nullptr;
        else
            return X + at(xgather, at(rows, p)) * (H * K);
    };
    const auto y_row = [=](int64_t p) { return Y + at(ygather, at(rows, p)) * (H * M); };
    const auto sum = [=](int64_t begin, int64_t end, int64_t, T* into) {
        T* sums = kSums || kMade ? scratch<outer::Sums, T>(kBlock * (kMade ? kStride : H * S)) : nullptr;
        const Left* xs[kBlock];
        const Right* ys[kBlock];
        int64_t next = begin;
        const auto ahead = [&] {
            const int64_t stop = std::min(end, next + kAhead);
            for (; next < stop; ++next) {
                if constexpr (!kMade) prefetch_row<H * K, 2>(x_row(next));
                prefetch_row<H * M, 2>(y_row(next));
            }
        };
        bool first = true;
        for (int64_t p = begin; p < end; first = false) {
            int64_t n = 0;
            const void* repeated = nullptr;
            for (; p < end; ++p) {
                const XE* x = x_row(p);
                const YE* y = y_row(p);
                if constexpr (G == Gradient::kX)
                    if (outer::is_zero<H * K>(x)) continue;
                if constexpr (G == Gradient::kY)
                    if (outer::is_zero<H * M>(y)) continue;
                const void* const other = sums_y ? static_cast<const void*>(x) : y;
                const Scale* factor = scale + at(rows, p) * HS;
                if constexpr (kSums) {
                    const T*& summed = outer::either<sums_y>(ys, xs)[R != Runs::kNone && n > 0 ? n - 1 : 0];
                    const Summed* own = outer::either<sums_y>(y, x);
                    T* place = sums + (n - 1) * (H * S);
                    if (R != Runs::kNone && n > 0 && other == repeated) {
                        if constexpr (!kCopies) {
                            if (summed != place) copy_row<H * S, false>(summed, T(1), place);
                            summed = place;
                        }
                        gemm::scaled_row<H, S, HS, true>(own, factor, place);
                        continue;
                    }
                }
                if (n == kBlock) break;
                repeated = other;
                if constexpr (kMade) {
                    T* place = sums + n * kStride;
                    X.make(at(rows, p), place);
                    x = place;
                }
                if constexpr (kCopies) {
                    T* place = sums + n * (H * S);
                    gemm::scaled_row<H, S, HS, false>(outer::either<sums_y>(y, x), factor, place);
                    outer::either<sums_y>(ys, xs)[n] = place;
                } else {
                    outer::either<sums_y>(ys, xs)[n] = outer::either<sums_y>(y, x);
                }
                outer::either<!sums_y>(ys, xs)[n] = outer::either<!sums_y>(y, x);
                ++n;
            }
            if (n == 0) break;  // no row is left
            next = irregular ? p : end;  // the hardware prefetcher follows regular rows
            const outer::Factors<F, Left, H * K, kBlock, outer::XFactors> a(xs, n);
            const outer::Factors<F, Right, H * M, kBlock, outer::YFactors> b(ys, n);
            const int64_t count = (n + kElements<F> - 1) / kElements<F>;
            for (int64_t h = 0; h < H; ++h) {
                T* block = into + h * (K * M);
                if constexpr (swap)
                    outer::block_product<F, D, C, asks>(b.rows, h * M, a.rows, h * K, count, block, !first, ahead);
                else
                    outer::block_product<F, D, C, asks>(a.rows, h * K, b.rows, h * M, count, block, !first, ahead);
            }
        }
        if (first) std::fill(into, into + H * K * M, T(0));
    };
    chunked_sum<T>(ptr, types, H * K * M, gemm::kRowWork<H, K, M>, dW, sum);
}

}  // namespace dacergnn
