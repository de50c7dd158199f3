// Products of gathered rows with the weight of their type: Y[i] = scale * X[gather[i]] @ W[type of i], and the form
// that adds the products into target rows.
#pragma once

#include <algorithm>
#include <cstdint>

#include "parallel.h"
#include "transpose.h"
#include "vector.h"

namespace dacergnn {
namespace gemm {

// y[r] (+)= x[r] @ w for R rows and one panel of NV vectors of columns: an outer-product kernel whose R x NV sums stay in
// registers over the whole depth D. w is row-major with C columns.
template <class T, int64_t D, int64_t C, int64_t R, int64_t NV, int64_t LastOffset, bool Accumulate>
inline __attribute__((always_inline)) void tile(const T* const* x, const T* w, T* const* y) {
    using V = typename Columns<T, C>::V;
    constexpr int64_t L = Columns<T, C>::lanes;
    const T* row[R];
    V sum[R][NV];
#pragma GCC unroll 8
    for (int64_t r = 0; r < R; ++r) {
        row[r] = x[r];
#pragma GCC unroll 4
        for (int64_t j = 0; j < NV; ++j) sum[r][j] = V{};
    }
#pragma GCC unroll 2
    for (int64_t k = 0; k < D; ++k, w += C) {
        V b[NV];
#pragma GCC unroll 4
        for (int64_t j = 0; j < NV; ++j) b[j] = load<V>(w + vector_offset<NV, LastOffset, L>(j));
#pragma GCC unroll 8
        for (int64_t r = 0; r < R; ++r) {
            const T a = row[r][k];
#pragma GCC unroll 4
            for (int64_t j = 0; j < NV; ++j) sum[r][j] = multiply_add(a, b[j], sum[r][j]);
        }
    }
#pragma GCC unroll 8
    for (int64_t r = 0; r < R; ++r) {
        if constexpr (Accumulate) {
#pragma GCC unroll 4
            for (int64_t j = 0; j < NV; ++j) sum[r][j] += load<V>(y[r] + vector_offset<NV, LastOffset, L>(j));
        }
#pragma GCC unroll 4
        for (int64_t j = 0; j < NV; ++j) store(y[r] + vector_offset<NV, LastOffset, L>(j), sum[r][j]);
    }
}

// Rows of a register tile: as many as the registers allow beside the panel of the weight.
template <class T, int64_t C>
inline constexpr int64_t kTileRows = Columns<T, C>::last >= kPanelVectors ? 6 : 8;

// y[r] (+)= x[r] @ w for n rows; x[r] has D elements, y[r] has C.
template <class T, int64_t D, int64_t C, bool Accumulate>
inline void rows_times_matrix(const T* const* x, const T* w, T* const* y, int64_t n, int64_t x_offset, int64_t y_offset) {
    if constexpr (C == 1) {
        for (int64_t r = 0; r < n; ++r) {
            const T* row = x[r] + x_offset;
            T sum = 0;
#pragma omp simd reduction(+ : sum)
            for (int64_t k = 0; k < D; ++k) sum += row[k] * w[k];
            y[r][y_offset] = Accumulate ? y[r][y_offset] + sum : sum;
        }
    } else {
        for_each_panel<T, C>([&](auto nv, auto last_offset, int64_t column) {
            constexpr int64_t NV = decltype(nv)::value, Off = decltype(last_offset)::value;
            const T* rows[kTileRows<T, C>];
            T* out[kTileRows<T, C>];
            const auto step = [&](auto count, int64_t r) {
                constexpr int64_t R = decltype(count)::value;
                for (int64_t i = 0; i < R; ++i) {
                    rows[i] = x[r + i] + x_offset;
                    out[i] = y[r + i] + y_offset + column;
                }
                tile<T, D, C, R, NV, Off, Accumulate>(rows, w + column, out);
            };
            int64_t r = 0;
            for (; r + kTileRows<T, C> <= n; r += kTileRows<T, C>) step(constant<kTileRows<T, C>>{}, r);
            if (n - r >= 4) step(constant<4>{}, r), r += 4;
            if (n - r >= 2) step(constant<2>{}, r), r += 2;
            if (n - r >= 1) step(constant<1>{}, r);
        });
    }
}

struct Transposed;
struct ScaledRows;

// The weights of the types as H matrices of D x C: W itself, or a transposed copy of the current type.
template <class T, int64_t H, int64_t K, int64_t M, bool TransposeW>
class Weight {
    const T* all_;
    const T* current_ = nullptr;
    int64_t type_ = -1;

  public:
    explicit Weight(const T* all) : all_(all) {}

    const T* of(int64_t type) {
        const T* w = all_ + type * (H * K * M);
        if constexpr (!TransposeW || K == 1 || M == 1) return w;
        if (type != type_) {
            T* copy = scratch<Transposed, T>(H * K * M);
            for (int64_t h = 0; h < H; ++h) transpose<T, K, M>(w + h * K * M, copy + h * K * M);
            type_ = type;
            current_ = copy;
        }
        return current_;
    }
};

// into (+)= scale * x for a row of H heads of D elements; one scale for the row or one per head.
template <class T, int64_t H, int64_t D, int HS, bool Accumulate>
inline void scaled_row(const T* __restrict x, const T* scale, T* __restrict into) {
    constexpr int64_t parts = HS > 1 ? H : 1, size = H * D / parts;
    for (int64_t part = 0; part < parts; ++part, x += size, into += size) {
        const T s = HS == 0 ? T(1) : scale[part];
        if constexpr (Accumulate) {
#pragma omp simd
            for (int64_t d = 0; d < size; ++d) into[d] += s * x[d];
        } else {
            copy_row<size, HS != 0>(x, s, into);
        }
    }
}

// Rows that are multiplied together: two tiles, more when several matrices or panels pass over the same rows.
template <class T, int64_t H, int64_t D, int64_t C>
inline constexpr int64_t kGroupRows =
    kTileRows<T, C> * (H * Columns<T, C>::panels == 1
                           ? 2
                           : std::clamp<int64_t>(16384 / (H * D * int64_t(sizeof(T)) * kTileRows<T, C>), 2, 8));

template <class T, int64_t H, int64_t D, int64_t C, bool Accumulate>
inline void group_product(const T* const* x, const T* w, T* const* y, int64_t n) {
    for (int64_t h = 0; h < H; ++h)
        rows_times_matrix<T, D, C, Accumulate>(x, w + h * (D * C), y, n, h * D, h * C);
}

}  // namespace gemm

// Y[i] = scale[i] * X[gather[i]] @ W[t] for the rows i of every type t: i in rows[ptr[t] .. ptr[t + 1]), rows == nullptr
// and gather == nullptr standing for the identity. X rows are (H, K), W is (types, H, K, M), Y rows are (H, M).
// TransposeW: X rows are (H, M), Y rows are (H, K), multiplied with the transposed weight. HS scales per row, read at
// scale[i * HS + h]: 0 none, 1 one for the row, H one per head.
template <class T, class I, int64_t H, int64_t K, int64_t M, bool TransposeW, int HS>
void segment_gemm(const T* X, const I* gather, const T* W, const I* ptr, int64_t types, const I* rows, const T* scale,
                  T* Y) {
    constexpr int64_t D = TransposeW ? M : K, C = TransposeW ? K : M, G = gemm::kGroupRows<T, H, D, C>;
    if (types <= 0) return;
    const int64_t first = ptr[0], total = static_cast<int64_t>(ptr[types]) - first;
    constexpr int64_t row_work = (H * K * M + 15) / 16;
    const int64_t blocks = total * row_work < kSerialWork ? 1 : block_count(total, total * row_work);
    const int64_t size = ((total + blocks - 1) / blocks + G - 1) / G * G;
    gemm::Weight<T, H, K, M, TransposeW> weight(W);
    run_blocks(blocks, blocks == 1, [=](int64_t b) mutable {
        int64_t p = first + b * size;
        const int64_t end = std::min(first + total, p + size);
        const T* x[G];
        T* y[G];
        T* scaled = HS == 0 ? nullptr : scratch<gemm::ScaledRows, T>(G * H * D);
        const auto source = [&](int64_t q) {
            const int64_t i = rows ? static_cast<int64_t>(rows[q]) : q;
            return X + (gather ? static_cast<int64_t>(gather[i]) : i) * (H * D);
        };
        int64_t t = std::upper_bound(ptr, ptr + types, static_cast<I>(p)) - ptr - 1;
        for (; p < end; ++t) {
            const int64_t stop = std::min<int64_t>(end, ptr[t + 1]);
            if (p >= stop) continue;
            const T* w = weight.of(t);
            for (; p < stop;) {
                const int64_t n = std::min(G, stop - p);
                for (int64_t r = 0; r < n; ++r, ++p) {
                    const int64_t i = rows ? static_cast<int64_t>(rows[p]) : p;
                    x[r] = source(p);
                    y[r] = Y + i * (H * C);
                    if constexpr (HS != 0) {
                        gemm::scaled_row<T, H, D, HS, false>(x[r], scale + i * HS, scaled + r * (H * D));
                        x[r] = scaled + r * (H * D);
                    }
                    if (p + G < end) prefetch_row<H * D>(source(p + G));
                }
                gemm::group_product<T, H, D, C, false>(x, w, y, n);
            }
        }
    });
}

// Y[scatter[i]] += scale[i] * X[gather[i]] @ W[t] into the zeroed y_rows rows of Y; otherwise as segment_gemm. Inside a
// type, rows are sorted by target; scatter_ptr[targets + 1] is the CSR pointer of all rows by target, targets <= y_rows.
// Every thread owns contiguous targets and passes over the types in order: no atomics, and the same sums for any number
// of threads. The rows of one type with the same target are added before they are multiplied.
template <class T, class I, int64_t H, int64_t K, int64_t M, bool TransposeW, int HS>
void segment_gemm_scatter(const T* X, const I* gather, const T* W, const I* ptr, int64_t types, const I* rows,
                          const T* scale, const I* scatter, const I* scatter_ptr, int64_t targets, int64_t y_rows, T* Y) {
    constexpr int64_t D = TransposeW ? M : K, C = TransposeW ? K : M, G = gemm::kGroupRows<T, H, D, C>;
    const int64_t total = types > 0 ? static_cast<int64_t>(ptr[types]) - static_cast<int64_t>(ptr[0]) : 0;
    constexpr int64_t row_work = (H * K * M + 15) / 16;
    // A block meets every type: few blocks, so that the weights are read by enough rows.
    const int64_t threads = thread_count();
    int64_t blocks = 1;
    if (total * row_work + y_rows * (H * C) / 16 >= kSerialWork)
        blocks = std::min(std::max<int64_t>(targets, 1), std::clamp(total / (64 * std::max<int64_t>(types, 1)), threads, 8 * threads));
    gemm::Weight<T, H, K, M, TransposeW> weight(W);
    run_blocks(blocks, blocks == 1, [=](int64_t b) mutable {
        const int64_t begin = targets > 0 ? balanced_cut(scatter_ptr, targets, b, blocks) : 0;
        const int64_t end = targets > 0 ? balanced_cut(scatter_ptr, targets, b + 1, blocks) : 0;
        std::fill(Y + begin * (H * C), Y + (b + 1 == blocks ? y_rows : end) * (H * C), T(0));
        if (begin == end) return;
        const T* x[G];
        T* y[G];
        T* sums = scratch<gemm::ScaledRows, T>(G * H * D);
        const auto row_of = [&](int64_t q) { return rows ? static_cast<int64_t>(rows[q]) : q; };
        const auto source = [&](int64_t i) {
            return X + (gather ? static_cast<int64_t>(gather[i]) : i) * (H * D);
        };
        for (int64_t t = 0; t < types; ++t) {
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
                if (n > 0) gemm::group_product<T, H, D, C, true>(x, weight.of(t), y, n);
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
                if (p + G < stop) prefetch_row<H * D>(source(row_of(p + G)));
            }
            flush();
        }
    });
}

}  // namespace dacergnn
