// Computes products of weights: the matrix of a linear after a linear, and its gradients.
#pragma once

#include "segment_gemm.cuh"
#include "segment_outer.cuh"

namespace dacergnn::cuda {

// Finds the rows k of the matrices A[a[i]] and Y[y[i]] side by side.
template <class Value, int64_t K, int64_t AWidth, int64_t YWidth, bool TransposeA, bool TransposeY, class AList,
          class YList>
struct MatrixPairs {
    using Left = MatrixRows<Value, K, AWidth, TransposeA, AList>;
    using Right = MatrixRows<Value, K, YWidth, TransposeY, YList>;
    static constexpr int64_t kXStride = Left::kColumnStride, kYStride = Right::kColumnStride;
    const Value *X, *Y;
    AList a;
    YList y;

    __device__ OuterPlace find(int64_t p) const { return {Left{X, a}.find(p).source, Right{Y, y}.find(p).source, p}; }
};

// Computes Y[i] (K, H * M) from A[a[i]] (K, H * D), cut into H blocks of columns: each is multiplied with its matrix of
// B[b[i]] (H, D, M), for i in 0..rows. a and b are nullptr for the identity. With TransposeA, rows of A are (H * D, K);
// with TransposeB, rows of B are (H, M, D).
template <class Value, int64_t H, int64_t K, int64_t D, int64_t M, bool TransposeA, bool TransposeB, bool Tf32 = kTf32,
          class AList, class BList>
auto compose(const Value* A, AList a, const Value* B, BList b, int64_t rows, Value* Y) {
    constexpr int64_t kLeft = TransposeB ? M : D, kRight = TransposeB ? D : M;
    const MatrixRows<Value, K, H * D, TransposeA, AList> source = {A, a};
    const EqualSegments<BList> types = {K, rows, b};
    constexpr const Value* kNone = nullptr;
    return detail::product<Tf32, 64, 0, Value, H, kLeft, kRight, TransposeB, 0, 0>(source, B, types, rows * K, kNone, Y,
                                                                            Keep());
}

// Computes P[i] (H, D, M) = sum of A[a[i]][k]^T Y[y[i]][k] over k in 0..K, head by head. Rows of A are (K, H * D), rows
// of Y are (K, H * M), or (H * D, K) and (H * M, K) with TransposeA and TransposeY. a and y are as in compose.
template <class Value, int64_t H, int64_t K, int64_t D, int64_t M, bool TransposeA, bool TransposeY, bool Tf32 = kTf32,
          class AList, class YList>
auto inner(const Value* A, AList a, const Value* Y, YList y, int64_t rows, Value* P) {
    check_alignment({A, Y, P});
    using T = OuterTiling<Value, H, D, M, Tf32>;
    using Source = MatrixPairs<Value, K, H * D, H * M, TransposeA, TransposeY, AList, YList>;
    constexpr const Value* kNone = nullptr;
    // A block has all rows of a matrix, so that there are no partial sums.
    const OuterBlocks<T, H, D, M, 0, Source, EqualSegments<>> blocks = {{A, Y, a, y}, {K, rows}, kNone, P,
                                                                        nullptr, rows * K, K};
    return one_launch<kTileThreads>(rows * T::kPanels, blocks.kBytes, blocks);
}

}  // namespace dacergnn::cuda
