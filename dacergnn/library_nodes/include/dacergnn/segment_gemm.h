// Multiplies gathered rows with the weight of their type: Y[i] = scale * X[gather[i]] @ W[type of i]. Another form
// adds the products into target rows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "gemm_tile.h"
#include "parallel.h"
#include "rows.h"
#include "vector.h"

namespace dacergnn {

// The most sums in 32 bits, 4 MiB, that a thread holds until their rows are rounded to 16.
inline constexpr int64_t kMostSums = int64_t{1} << 20;

// Leaves a finished row of Y as it is. Epilogues in its place are finish(row, pointer to it); the row is in the cache.
struct Keep {
    template <class T>
    void operator()(int64_t, T*) const {}
};

// Computes Y[i] = scale[i] * X[gather[i]] @ W[t] for the rows i of every type t: i in rows[ptr[t] .. ptr[t + 1]).
// nullptr for rows or gather is the identity. X rows are (H, K), W is (types, H, K, M), Y rows are (H, M). With
// TransposeW, X rows are (H, M), Y rows are (H, K), and the weight is transposed. HS is the number of scales per row,
// read at scale[i * HS + h]: 0 none, 1 one for the row, H one per head. finish(i, row) is called for every finished
// row. P holds the choices of the plan for tiles. Sums are of type T, whatever the elements of the arrays are. X may be
// `made_rows`, which are scaled by nothing. If Y is nullptr, only finish sees the rows.
template <class T, class I, int64_t H, int64_t K, int64_t M, bool TransposeW, int HS, class P = gemm::Tile<>, class X_,
          class WE, class Scale, class YE, class Gather, class Rows, class Finish = Keep>
void segment_gemm(const X_ X, const Gather gather, const WE* W, const I* ptr, int64_t types, const Rows rows,
                  const Scale* scale, YE* Y, const Finish finish = {}) {
    constexpr int64_t depth = TransposeW ? M : K, C = TransposeW ? K : M;
    using XE = typename RowsOf<X_>::Element;
    constexpr bool kMade = RowsOf<X_>::made;
    static_assert(!kMade || HS == 0, "made rows are not scaled");
    using F = gemm::Factor<T, XE, depth, C>;
    constexpr int64_t D = depth / kElements<F>, G = gemm::kGroupRows<F, H, D, C, P>;
    using Lines = gemm::LinesOf<F, H, D, C, P, kPrefetchedLines<XE, H * depth>>;
    // Tells whether rows of X are in scratch: rows that are made, scaled, or have other elements than the factors.
    using Element = std::conditional_t<std::is_same_v<F, Pair>, XE, T>;
    constexpr bool kStaged = kMade || HS != 0 || !std::is_same_v<XE, Element>;
    if (types <= 0) return;
    const int64_t first = ptr[0], total = static_cast<int64_t>(ptr[types]) - first;
    constexpr int64_t row_work = gemm::kRowWork<H, K, M>;
    const int64_t blocks = total * row_work < kSerialWork ? 1 : block_count(total, total * row_work);
    const int64_t group = gemm::group_rows<F, H, D, C, P>(total);
    const int64_t size = ((total + blocks - 1) / blocks + group - 1) / group * group;
    // Tells whether a row is written more than once: blocks of the depth are added to it, or an epilogue changes it. If
    // such a row is streamed, it is in a buffer before, and so is a row that is rounded.
    constexpr bool kRounded = !std::is_same_v<YE, T>;
    constexpr bool kRevised = gemm::kBlocked<F, H, D, C, P> || !std::is_same_v<Finish, Keep>;
    const bool streamed = (kRounded || kRevised || gemm::kStreamable<T, C>) && streams<H * C>(Y, total);
    const bool apart = kRounded || Y == nullptr || (kRevised && streamed);
    gemm::Weight<F, WE, H, K, M, TransposeW> weight(W);
    run_blocks(blocks, blocks == 1, [=](int64_t b) mutable {
        int64_t p = first + b * size;
        const int64_t end = std::min(first + total, p + size);
        const F* x[G];
        T* y[G];
        int64_t number[G];
        Lines upcoming;
        T* finished = apart ? scratch<gemm::FinishedRows, T>(G * H * C) : nullptr;
        Element* staged = kStaged ? scratch<gemm::ScaledRows, Element>(G * H * depth) : nullptr;
        const auto source = [&](int64_t q) -> const XE* {
            if constexpr (kMade)
                return nullptr;
            else
                return X + at(gather, at(rows, q)) * (H * depth);
        };
        int64_t t = std::upper_bound(ptr, ptr + types, static_cast<I>(p)) - ptr - 1;
        for (; p < end; ++t) {
            const int64_t stop = std::min<int64_t>(end, ptr[t + 1]);
            if (p >= stop) continue;
            const F* w = weight.of(t);
            for (; p < stop;) {
                const int64_t n = std::min(G, stop - p);
                for (int64_t r = 0; r < n; ++r, ++p) {
                    const int64_t i = number[r] = at(rows, p);
                    if constexpr (kRounded)
                        y[r] = finished + r * (H * C);
                    else
                        y[r] = apart ? finished + r * (H * C) : Y + i * (H * C);
                    if constexpr (kStaged) {
                        Element* row = staged + r * (H * depth);
                        if constexpr (kMade)
                            X.make(i, row);
                        else
                            gemm::scaled_row<H, depth, HS, false>(source(p), scale + i * HS, row);
                        x[r] = reinterpret_cast<const F*>(row);
                    } else {
                        x[r] = reinterpret_cast<const F*>(source(p));
                    }
                    if (!kMade && p + G < end) upcoming.template add_row<H * depth>(source(p + G));
                }
                upcoming.ask_but(gemm::kLinesMeanwhile<F, H, D, C, P>);
                gemm::group_product<F, H, D, C, gemm::Write::kStore, P>(x, w, y, n, streamed && !apart, upcoming);
                upcoming.ask_all();
                for (int64_t r = 0; r < n; ++r) {
                    finish(number[r], y[r]);
                    if (apart && Y != nullptr) write_row<H * C>(Y + number[r] * (H * C), y[r], streamed);
                }
            }
        }
        if (streamed) end_stream();
    });
}

// Computes Y[scatter[i]] += scale[i] * X[gather[i]] @ W[t]. Before, the y_rows rows of Y are set to those of `start`,
// which may be Y, or to zero (nullptr). Other arguments are as in segment_gemm.
// Inside a type, rows are sorted by target; scatter_ptr[targets + 1] is the CSR pointer of all rows by target, and
// targets <= y_rows. Every thread owns contiguous targets and visits the types in order: there are no atomics, and the
// sums are the same for any number of threads. Rows of one type with the same target are added before the product.
template <class T, class I, int64_t H, int64_t K, int64_t M, bool TransposeW, int HS, class P = gemm::Tile<>, class XE,
          class WE, class Scale, class YE, class Gather, class Rows, class Finish = Keep, class Start = YE>
void segment_gemm_scatter(const XE* X, const Gather gather, const WE* W, const I* ptr, int64_t types, const Rows rows,
                          const Scale* scale, const I* scatter, const I* scatter_ptr, int64_t targets,
                          int64_t y_rows, YE* Y, const Finish finish = {}, const Start* start = nullptr) {
    constexpr int64_t depth = TransposeW ? M : K, C = TransposeW ? K : M;
    using F = gemm::Factor<T, XE, depth, C>;
    constexpr int64_t D = depth / kElements<F>, G = gemm::kGroupRows<F, H, D, C, P>;
    constexpr bool kPairs = std::is_same_v<F, Pair>, kRounded = !std::is_same_v<YE, T>;
    constexpr bool kStaged = HS != 0 || !(kPairs || std::is_same_v<XE, T>);
    using Lines = gemm::LinesOf<F, H, D, C, P, kPrefetchedLines<XE, H * depth> + kPrefetchedLines<T, H * C>>;
    const int64_t total = types > 0 ? static_cast<int64_t>(ptr[types]) - static_cast<int64_t>(ptr[0]) : 0;
    constexpr int64_t row_work = gemm::kRowWork<H, K, M>;
    int64_t blocks = 1;
    if (targets > 0 && total * row_work + targets * (H * C) / 16 >= kSerialWork) {
        // A block meets every type: few blocks, so that enough rows share a weight.
        const int64_t threads = thread_count(), rows_per_type = total / std::max<int64_t>(types, 1);
        blocks = std::min(targets, std::clamp(rows_per_type / 64, 4 * threads, 8 * threads));
    }
    gemm::Weight<F, WE, H, K, M, TransposeW> weight(W);
    static constexpr I none[1] = {};
    if (blocks > 32) weight.copy_all(types);  // fewer blocks copy them into near caches
    const I* const cut = targets > 0 ? scatter_ptr : none;
    const auto begin_rows = [=](int64_t begin, int64_t end) {  // returns their sums
        T* totals;
        if constexpr (kRounded)
            totals = scratch<gemm::FinishedRows, T>((end - begin) * (H * C));
        else
            totals = Y + begin * (H * C);
        if (start == nullptr)
            std::fill(totals, totals + (end - begin) * (H * C), T(0));
        else if (static_cast<const void*>(start + begin * (H * C)) != totals)
            std::copy(start + begin * (H * C), start + end * (H * C), totals);
        return totals;
    };
    const auto finish_row = [=](int64_t row, T* sum) {
        finish(row, sum);
        if constexpr (kRounded) write_row<H * C>(Y + row * (H * C), sum, false);
    };
    if (targets < y_rows)  // rows without products: all threads share them, and none holds sums of many
        parallel_for(y_rows - targets, H * C, [=](int64_t i) {
            const int64_t row = targets + i;
            finish_row(row, begin_rows(row, row + 1));
        });
    auto run_rows = [=](int64_t begin, int64_t end) mutable {
        T* const totals = begin_rows(begin, end);
        const F* x[G];
        T* y[G];
        Lines upcoming;
        T* sums = scratch<gemm::ScaledRows, T>(G * H * depth);
        XE* rounded = kPairs ? scratch<gemm::RoundedRows, XE>(G * H * depth) : nullptr;
        const auto row_of = [&](int64_t q) { return at(rows, q); };
        const auto source = [&](int64_t i) {
            return X + at(gather, i) * (H * depth);
        };
        for (int64_t t = 0; begin < end && t < types; ++t) {
            const int64_t stop = ptr[t + 1];
            int64_t p = ptr[t], high = stop;
            while (p < high) {  // first row of the type whose target is in the block
                const int64_t middle = p + (high - p) / 2;
                if (static_cast<int64_t>(scatter[row_of(middle)]) < begin)
                    p = middle + 1;
                else
                    high = middle;
            }
            int64_t n = 0;
            const auto flush = [&] {
                upcoming.ask_but(gemm::kLinesMeanwhile<F, H, D, C, P>);
                if (n > 0) gemm::group_product<F, H, D, C, gemm::Write::kAdd, P>(x, weight.of(t), y, n, false, upcoming);
                upcoming.ask_all();
                n = 0;
            };
            while (p < stop) {
                int64_t i = row_of(p);
                const int64_t target = scatter[i];
                if (target >= end) break;
                const XE* from = source(i);
                T* sum = sums + n * (H * depth);
                bool summed = kStaged;
                if constexpr (kStaged) gemm::scaled_row<H, depth, HS, false>(from, scale + i * HS, sum);
                for (++p; p < stop && static_cast<int64_t>(scatter[i = row_of(p)]) == target; ++p) {
                    if (!summed) copy_row<H * depth, false>(from, T(1), sum);
                    summed = true;
                    gemm::scaled_row<H, depth, HS, true>(source(i), scale + i * HS, sum);
                }
                x[n] = reinterpret_cast<const F*>(from);
                if constexpr (kPairs) {
                    XE* row = rounded + n * (H * depth);
                    if (summed) copy_row<H * depth, false>(sum, T(1), row);
                    if (summed) x[n] = reinterpret_cast<const F*>(row);
                } else {
                    if (summed) x[n] = sum;
                }
                y[n] = totals + (target - begin) * (H * C);
                if (++n == G) flush();
                if (p + G < stop) {
                    const int64_t later = row_of(p + G);
                    upcoming.template add_row<H * depth>(source(later));
                    const int64_t next = scatter[later];
                    if (next < end) upcoming.template add_row<H * C>(totals + (next - begin) * (H * C));
                }
            }
            flush();
        }
        for (int64_t row = begin; row < end; ++row) finish_row(row, totals + (row - begin) * (H * C));
    };
    run_ranges(cut, targets, blocks, blocks == 1, [=](int64_t begin, int64_t end, int64_t) mutable {
        const int64_t most = kRounded ? kMostSums / (H * C) + 1 : targets;
        for (; begin < end; begin += most) run_rows(begin, std::min(begin + most, end));
    }, std::max<int64_t>(1, depth / 16));
}

}  // namespace dacergnn
