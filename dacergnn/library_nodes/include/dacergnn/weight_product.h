// Computes products of weights: the matrix of a linear after a linear, and its gradients.
#pragma once

#include <algorithm>
#include <cstdint>

#include "gemm_tile.h"
#include "parallel.h"
#include "segment_outer.h"

namespace dacergnn {
namespace gemm {

struct TransposedLeft;

}  // namespace gemm

// Computes Y[i] (K, H * M) from A[a[i]] (K, H * D), cut into H blocks of columns: each is multiplied with its matrix of
// B[b[i]] (H, D, M), for i in 0..rows. a and b are nullptr for the identity. With TransposeA, rows of A are (H * D, K);
// with TransposeB, rows of B are (H, M, D). Products are of type T, whatever the elements of the arrays are.
template <class T, class I, int64_t H, int64_t K, int64_t D, int64_t M, bool TransposeA, bool TransposeB, class AE,
          class BE, class YE>
void compose(const AE* A, const I* a, const BE* B, const I* b, int64_t rows, YE* Y) {
    constexpr int64_t G = std::min(K, gemm::kGroupRows<T, H, D, M>), parts = (K + G - 1) / G;
    gemm::Weight<T, AE, 1, TransposeA ? H * D : K, TransposeA ? K : H * D, TransposeA, gemm::TransposedLeft> left(A);
    gemm::Weight<T, BE, H, TransposeB ? M : D, TransposeB ? D : M, TransposeB> right(B);
    parallel_for(rows * parts, G * gemm::kRowWork<H, D, M>, [=](int64_t item) mutable {
        const int64_t i = item / parts, first = item % parts * G, n = std::min(G, K - first);
        const T* from = left.of(a ? static_cast<int64_t>(a[i]) : i) + first * (H * D);
        YE* into = Y + (i * K + first) * (H * M);
        constexpr bool kRounded = !std::is_same_v<YE, T>;
        const T* x[G];
        T* y[G];
        for (int64_t r = 0; r < n; ++r) {
            x[r] = from + r * (H * D);
            if constexpr (kRounded)
                y[r] = scratch<gemm::FinishedRows, T>(G * H * M) + r * (H * M);
            else
                y[r] = into + r * (H * M);
        }
        NothingUpcoming nothing;
        const T* w = right.of(b ? static_cast<int64_t>(b[i]) : i);
        gemm::group_product<T, H, D, M, gemm::Write::kStore>(x, w, y, n, false, nothing);
        if constexpr (kRounded) {
            for (int64_t r = 0; r < n; ++r) write_row<H * M>(into + r * (H * M), y[r], false);
        }
    });
}

// Computes P[i] (H, D, M) = sum of A[a[i]][k]^T Y[y[i]][k] over k in 0..K, head by head. Rows of A are (K, H * D), rows
// of Y are (K, H * M), or (H * D, K) and (H * M, K) with TransposeA and TransposeY. a, y and T are as in compose.
template <class T, class I, int64_t H, int64_t K, int64_t D, int64_t M, bool TransposeA, bool TransposeY, class AE,
          class YE, class PE>
void inner(const AE* A, const I* a, const YE* Y, const I* y, int64_t rows, PE* P) {
    // (D, 1) and (1, D) are the same memory: a single column is computed as a single row.
    constexpr bool swap = M == 1 && D > 1;
    constexpr int64_t kBlock = std::min<int64_t>(K, 64);  // rows whose pointers are listed at a time
    gemm::Weight<T, AE, 1, TransposeA ? H * D : K, TransposeA ? K : H * D, TransposeA, gemm::TransposedLeft> left(A);
    gemm::Weight<T, YE, 1, TransposeY ? H * M : K, TransposeY ? K : H * M, TransposeY> right(Y);
    parallel_for(rows * H, gemm::kRowWork<K, D, M>, [=](int64_t item) mutable {
        const int64_t i = item / H, h = item % H;
        const T* from_a = left.of(a ? static_cast<int64_t>(a[i]) : i);
        const T* from_y = right.of(y ? static_cast<int64_t>(y[i]) : i);
        constexpr bool kRounded = !std::is_same_v<PE, T>;
        T* into;
        if constexpr (kRounded)
            into = scratch<gemm::FinishedRows, T>(D * M);
        else
            into = P + item * (D * M);
        const T* xs[kBlock];
        const T* ys[kBlock];
        for (int64_t first = 0; first < K; first += kBlock) {
            const int64_t n = std::min(kBlock, K - first);
            for (int64_t r = 0; r < n; ++r) {
                xs[r] = from_a + (first + r) * (H * D);
                ys[r] = from_y + (first + r) * (H * M);
            }
            if constexpr (swap)
                outer::block_product<T, M, D, false>(ys, h * M, xs, h * D, n, into, first > 0, [] {});
            else
                outer::block_product<T, D, M, false>(xs, h * D, ys, h * M, n, into, first > 0, [] {});
        }
        if constexpr (kRounded) std::copy_n(into, D * M, P + item * (D * M));
    });
}

}  // namespace dacergnn
