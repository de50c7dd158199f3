// Multiplies gathered rows with the weight of their type: Y[i] = scale * X[gather[i]] @ W[type of i]. Another form
// adds the products into target rows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "gemm_tile.h"
#include "parallel.h"
#include "vector.h"

namespace dacergnn {

// Leaves a finished row of Y as it is. Epilogues in its place are finish(row, pointer to it); the row is in the cache.
struct Keep {
    template <class T>
    void operator()(int64_t, T*) const {}
};

// Computes Y[i] = scale[i] * X[gather[i]] @ W[t] for the rows i of every type t: i in rows[ptr[t] .. ptr[t + 1]).
// nullptr for rows or gather is the identity. X rows are (H, K), W is (types, H, K, M), Y rows are (H, M). With
// TransposeW, X rows are (H, M), Y rows are (H, K), and the weight is transposed. HS is the number of scales per row,
// read at scale[i * HS + h]: 0 none, 1 one for the row, H one per head. finish(i, row) is called for every finished
// row. P holds the choices of the plan for tiles.
template <class T, class I, int64_t H, int64_t K, int64_t M, bool TransposeW, int HS, class P = gemm::Tile<>, class Gather,
          class Rows, class Finish = Keep>
void segment_gemm(const T* X, const Gather gather, const T* W, const I* ptr, int64_t types, const Rows rows,
                  const T* scale, T* Y, const Finish finish = {}) {
    constexpr int64_t D = TransposeW ? M : K, C = TransposeW ? K : M, G = gemm::kGroupRows<T, H, D, C, P>;
    using Lines = gemm::LinesOf<T, H, D, C, P, kPrefetchedLines<T, H * D>>;
    if (types <= 0) return;
    const int64_t first = ptr[0], total = static_cast<int64_t>(ptr[types]) - first;
    constexpr int64_t row_work = gemm::kRowWork<H, K, M>;
    const int64_t blocks = total * row_work < kSerialWork ? 1 : block_count(total, total * row_work);
    const int64_t group = gemm::group_rows<T, H, D, C, P>(total);
    const int64_t size = ((total + blocks - 1) / blocks + group - 1) / group * group;
    // Tells whether a row is written more than once: blocks of the depth are added to it, or an epilogue changes it.
    constexpr bool kRevised = gemm::kBlocked<T, H, D, C, P> || !std::is_same_v<Finish, Keep>;
    gemm::Weight<T, H, K, M, TransposeW> weight(W);
    const auto run = [&](auto write) {
        run_blocks(blocks, blocks == 1, [=](int64_t b) mutable {
            constexpr gemm::Write How = static_cast<gemm::Write>(decltype(write)::value);
            // Rows that are streamed when they are finished: before, they are in a buffer, in the cache.
            constexpr bool kApart = How == gemm::Write::kStream && kRevised;
            int64_t p = first + b * size;
            const int64_t end = std::min(first + total, p + size);
            const T* x[G];
            T* y[G];
            int64_t number[G];
            Lines upcoming;
            T* finished = kApart ? scratch<gemm::FinishedRows, T>(G * H * C) : nullptr;
            T* scaled = HS == 0 ? nullptr : scratch<gemm::ScaledRows, T>(G * H * D);
            const auto source = [&](int64_t q) {
                return X + at(gather, at(rows, q)) * (H * D);
            };
            int64_t t = std::upper_bound(ptr, ptr + types, static_cast<I>(p)) - ptr - 1;
            for (; p < end; ++t) {
                const int64_t stop = std::min<int64_t>(end, ptr[t + 1]);
                if (p >= stop) continue;
                const T* w = weight.of(t);
                for (; p < stop;) {
                    const int64_t n = std::min(G, stop - p);
                    for (int64_t r = 0; r < n; ++r, ++p) {
                        const int64_t i = number[r] = at(rows, p);
                        x[r] = source(p);
                        y[r] = kApart ? finished + r * (H * C) : Y + i * (H * C);
                        if constexpr (HS != 0) {
                            gemm::scaled_row<T, H, D, HS, false>(x[r], scale + i * HS, scaled + r * (H * D));
                            x[r] = scaled + r * (H * D);
                        }
                        if (p + G < end) upcoming.template add_row<H * D>(source(p + G));
                    }
                    upcoming.ask_but(gemm::kLinesMeanwhile<T, H, D, C, P>);
                    gemm::group_product<T, H, D, C, kApart ? gemm::Write::kStore : How, P>(x, w, y, n, upcoming);
                    upcoming.ask_all();
                    for (int64_t r = 0; r < n; ++r) {
                        finish(number[r], y[r]);
                        if constexpr (kApart) write_row<H * C>(Y + number[r] * (H * C), y[r], true);
                    }
                }
            }
            if constexpr (How == gemm::Write::kStream) end_stream();
        });
    };
    if constexpr (kStreams && (kRevised || gemm::kStreamable<T, C>)) {
        if (streams<H * C>(Y, total)) return run(constant<int64_t(gemm::Write::kStream)>{});
    }
    run(constant<int64_t(gemm::Write::kStore)>{});
}

// Computes Y[scatter[i]] += scale[i] * X[gather[i]] @ W[t]. Before, the y_rows rows of Y are set to those of `start`,
// which may be Y, or to zero (nullptr). Other arguments are as in segment_gemm.
// Inside a type, rows are sorted by target; scatter_ptr[targets + 1] is the CSR pointer of all rows by target, and
// targets <= y_rows. Every thread owns contiguous targets and visits the types in order: there are no atomics, and the
// sums are the same for any number of threads. Rows of one type with the same target are added before the product.
template <class T, class I, int64_t H, int64_t K, int64_t M, bool TransposeW, int HS, class P = gemm::Tile<>, class Gather,
          class Rows, class Finish = Keep>
void segment_gemm_scatter(const T* X, const Gather gather, const T* W, const I* ptr, int64_t types, const Rows rows,
                          const T* scale, const I* scatter, const I* scatter_ptr, int64_t targets,
                          int64_t y_rows, T* Y, const Finish finish = {}, const T* start = nullptr) {
    constexpr int64_t D = TransposeW ? M : K, C = TransposeW ? K : M, G = gemm::kGroupRows<T, H, D, C, P>;
    using Lines = gemm::LinesOf<T, H, D, C, P, kPrefetchedLines<T, H * D> + kPrefetchedLines<T, H * C>>;
    const int64_t total = types > 0 ? static_cast<int64_t>(ptr[types]) - static_cast<int64_t>(ptr[0]) : 0;
    constexpr int64_t row_work = gemm::kRowWork<H, K, M>;
    int64_t blocks = 1;
    if (targets > 0 && total * row_work + y_rows * (H * C) / 16 >= kSerialWork) {
        // A block meets every type: few blocks, so that enough rows share a weight.
        const int64_t threads = thread_count(), rows_per_type = total / std::max<int64_t>(types, 1);
        blocks = std::min(targets, std::clamp(rows_per_type / 64, threads, 8 * threads));
    }
    gemm::Weight<T, H, K, M, TransposeW> weight(W);
    run_blocks(blocks, blocks == 1, [=](int64_t b) mutable {
        const int64_t begin = targets > 0 ? balanced_cut(scatter_ptr, targets, b, blocks) : 0;
        const int64_t end = targets > 0 ? balanced_cut(scatter_ptr, targets, b + 1, blocks) : 0;
        const int64_t last = b + 1 == blocks ? y_rows : end;
        if (start == nullptr)
            std::fill(Y + begin * (H * C), Y + last * (H * C), T(0));
        else if (start != Y)
            std::copy(start + begin * (H * C), start + last * (H * C), Y + begin * (H * C));
        const T* x[G];
        T* y[G];
        Lines upcoming;
        T* sums = scratch<gemm::ScaledRows, T>(G * H * D);
        const auto row_of = [&](int64_t q) { return at(rows, q); };
        const auto source = [&](int64_t i) {
            return X + at(gather, i) * (H * D);
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
                upcoming.ask_but(gemm::kLinesMeanwhile<T, H, D, C, P>);
                if (n > 0) gemm::group_product<T, H, D, C, gemm::Write::kAdd, P>(x, weight.of(t), y, n, upcoming);
                upcoming.ask_all();
                n = 0;
            };
            while (p < stop) {
                int64_t i = row_of(p);
                const int64_t target = scatter[i];
                if (target >= end) break;
                T* sum = sums + n * (H * D);
                x[n] = source(i);
                if constexpr (HS != 0) {
                    gemm::scaled_row<T, H, D, HS, false>(x[n], scale + i * HS, sum);
                    x[n] = sum;
                }
                for (++p; p < stop && static_cast<int64_t>(scatter[i = row_of(p)]) == target; ++p) {
                    if (x[n] != sum) copy_row<H * D, false>(x[n], T(1), sum);
                    x[n] = sum;
                    gemm::scaled_row<T, H, D, HS, true>(source(i), scale + i * HS, sum);
                }
                y[n] = Y + target * (H * C);
                if (++n == G) flush();
                if (p + G < stop) {
                    const int64_t later = row_of(p + G);
                    upcoming.template add_row<H * D>(source(later));
                    upcoming.template add_row<H * C>(Y + static_cast<int64_t>(scatter[later]) * (H * C));
                }
            }
            flush();
        }
        for (int64_t row = begin; row < last; ++row) finish(row, Y + row * (H * C));
    });
}

}  // namespace dacergnn
