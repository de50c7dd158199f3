// Multiplies gathered rows with the weight of their type: Y[i] = scale * X[gather[i]] @ W[type of i]. Other forms add
// the products into target rows. All sums have a fixed order; nothing is added by atomics.
#pragma once

#include "hubs.cuh"
#include "segment_product.cuh"
#include "summed_rows.cuh"

namespace dacergnn::cuda {

namespace detail {

template <bool Tf32, int TileRows, int Least, class Value, int64_t H, int64_t K, int64_t M, bool TransposeW, int HS,
          int Local, class Result, class Source, class Types, class Finish>
auto product(const Source& source, const Value* W, const Types& types, int64_t total, const Value* scale, Result* Y,
             const Finish& finish) {
    check_alignment({source.X, W, Y});
    constexpr int64_t D = TransposeW ? M : K, C = TransposeW ? K : M;
    using T = Tiling<Value, Result, H, D, C, Tf32, TileRows, Least>;
    return SegmentProduct<T, H, D, C, TransposeW, HS, Local, Source, Types, Finish>{source, types,  W,     scale,
                                                                                    Y,      finish, total, 0}
        .prepared();
}

// Returns the launch that computes the sums of the parts of hubs, then the launches that f returns for these sums.
// Without chunks, it returns f(nullptr).
template <class Acc, int64_t Width, int64_t Columns, class I, class Term, class Hubs, class F>
auto with_hubs(const I* ptr, int64_t groups, const Term& term, const Hubs& chunks, const F& f) {
    if constexpr (std::is_null_pointer_v<Hubs>) {
        return f(nullptr);
    } else {
        Acc* const partials = take<Acc>(kMostChunks * Width);
        const HubSums<Acc, Width, Columns, I, Term> sums = {{ptr, 0}, groups, chunks, term, partials};
        return in_order(sums.prepared(), f(HubRows<Acc, Width>{chunks, partials}));
    }
}

template <class Acc, int64_t Width, class List>
struct ListedRows {
    const Acc* X;
    List list;
    template <class, int N>
    __device__ Vector<Acc, N> value(int64_t q, int column) const {
        return load_vector<N>(X + at(list, q) * Width + column);
    }
};

template <int64_t Width, int Local, class Value, class Acc, class I, class List, class Finish, class Hubs>
auto sum_rows(const Acc* X, const I* ptr, List list, int64_t first, int64_t targets, int64_t y_rows, Value* Y,
              const Finish& finish, const Hubs& hubs) {
    check_alignment({X, Y});
    return RowSums<Value, Acc, Width, Local, I, List, Finish, Hubs>{X,      ptr, list,   first, targets,
                                                                    y_rows, Y,   finish, hubs}
        .prepared();
}

}  // namespace detail

// Computes Y[i] = scale[i] * X[gather[i]] @ W[t] for the rows i of every type t: i = rows[p] for p in start(t) ..
// start(t + 1) of `types` (Segments, EqualSegments), `total` rows in all. nullptr for rows or gather is the identity. X
// rows are (H, K), W is (types, H, K, M), Y rows are (H, M). With TransposeW, X rows are (H, M), Y rows are (H, K), and
// the weight is transposed. HS is the number of scales per row, read at scale[i * HS + h]: 0 none, 1 one for the row, H
// one per head. A warp calls finish(i, row, local) for every finished row; `local` are Local elements of the warp's
// own. TileRows and Least are those of Tiling.
template <class Value, int64_t H, int64_t K, int64_t M, bool TransposeW, int HS, int Local = 0, bool Tf32 = kTf32,
          int TileRows = 64, int Least = 0, class Gather, class Types, class Rows, class Finish = Keep>
auto segment_gemm(const Value* X, Gather gather, const Value* W, const Types& types, int64_t total, Rows rows,
                  const Value* scale, Value* Y, const Finish& finish = {}) {
    const GatheredRows<Value, H*(TransposeW ? M : K), Gather, Rows> source = {X, gather, rows};
    return detail::product<Tf32, TileRows, Least, Value, H, K, M, TransposeW, HS, Local>(source, W, types, total, scale, Y, finish);
}

// Computes the same with sums of rows in place of rows: Y[j] = (sum of scale[list[q]] * X[gather[q]]) @ W[t] over q in
// ptr[j] .. ptr[j + 1], and j = rows[p] in the order of types. With Chunks of the rows i, several blocks share the
// sum of a hub: there is one more launch, and kMostChunks sums are taken of the workspace.
template <class Value, int64_t H, int64_t K, int64_t M, bool TransposeW, int HS, int Local = 0, bool Tf32 = kTf32,
          int TileRows = 64, int Least = 0, class Gather, class I, class List, class Types, class Rows, class Result, class Finish = Keep,
          class Hubs = std::nullptr_t>
auto segment_gemm_of_sums(const Value* X, Gather gather, const Value* W, const Types& types, int64_t total, Rows rows,
                          const Value* scale, const I* ptr, List list, Result* Y, const Finish& finish = {},
                          const Hubs& chunks = nullptr) {
    constexpr int64_t D = TransposeW ? M : K;
    using Sums = SummedRows<Value, H, D, HS, I, Gather, List, Rows, std::nullptr_t>;
    const Sums sums = {X, gather, ptr, list, scale, rows, nullptr};
    return detail::with_hubs<Accumulator<Value>, H * D, D>(ptr, total, sums, chunks, [&](const auto& hubs) {
        using Source = SummedRows<Value, H, D, HS, I, Gather, List, Rows, std::remove_cvref_t<decltype(hubs)>>;
        const Source source = {X, gather, ptr, list, scale, rows, hubs};
        constexpr const Value* kNone = nullptr;
        return detail::product<Tf32, TileRows, Least, Value, H, K, M, TransposeW, 0, Local>(source, W, types, total, kNone, Y, finish);
    });
}

// Sets Y[j] to the sum of scale[i] * X[gather[i]] @ W[type of i] over the rows i = target_rows[q] with the target j, q
// in target_ptr[j] .. target_ptr[j + 1], for `targets` rows, and to zeros for rows up to y_rows. Other arguments are as
// in segment_gemm. It takes `total` rows of Y of the workspace; chunks are as above.
template <class Value, int64_t H, int64_t K, int64_t M, bool TransposeW, int HS, int Local = 0, bool Tf32 = kTf32,
          int TileRows = 64, int Least = 0, class Gather, class Types, class Rows, class I, class TargetRows, class Finish = Keep,
          class Hubs = std::nullptr_t>
auto segment_gemm_scatter(const Value* X, Gather gather, const Value* W, const Types& types, int64_t total, Rows rows,
                          const Value* scale, const I* target_ptr, TargetRows target_rows, int64_t targets,
                          int64_t y_rows, Value* Y, const Finish& finish = {}, const Hubs& chunks = nullptr) {
    const GatheredRows<Value, H*(TransposeW ? M : K), Gather, Rows> source = {X, gather, rows};
    using Acc = Accumulator<Value>;
    constexpr int64_t kWidth = H * (TransposeW ? K : M);
    Acc* const products = take<Acc>(total * kWidth);
    const auto made =
        detail::product<Tf32, TileRows, Least, Value, H, K, M, TransposeW, HS, 0>(source, W, types, total, scale, products, Keep());
    const detail::ListedRows<Acc, kWidth, TargetRows> terms = {products, target_rows};
    const auto summed = [&](const auto& hubs) {
        return detail::sum_rows<kWidth, Local>(products, target_ptr, target_rows, 0, targets, y_rows, Y, finish, hubs);
    };
    return in_order(made, detail::with_hubs<Acc, kWidth, kWidth>(target_ptr, targets, terms, chunks, summed));
}

// Computes the same if the rows of a target and a type form a pair: pair j has the rows X[gather[q]], scaled by
// scale[pair_rows[q]], for q in pair_ptr[j] .. pair_ptr[j + 1], and they are added before the product. `types` are the types of the pairs; target_ptr
// and target_rows list the pairs of a target. It takes `pairs` rows of Y of the workspace; chunks are as above, of the
// rows of pairs.
template <class Value, int64_t H, int64_t K, int64_t M, bool TransposeW, int HS, int Local = 0, bool Tf32 = kTf32,
          int TileRows = 64, int Least = 0, class Gather, class Types, class PairRows, class I, class TargetRows, class Finish = Keep,
          class Hubs = std::nullptr_t>
auto segment_gemm_scatter_pairs(const Value* X, Gather gather, const Value* W, const Types& types, int64_t pairs,
                                const Value* scale, const I* pair_ptr, PairRows pair_rows, const I* target_ptr,
                                TargetRows target_rows, int64_t targets, int64_t y_rows, Value* Y,
                                const Finish& finish = {}, const Hubs& chunks = nullptr) {
    using Acc = Accumulator<Value>;
    constexpr int64_t kWidth = H * (TransposeW ? K : M);
    Acc* const products = take<Acc>(pairs * kWidth);
    return in_order(
        segment_gemm_of_sums<Value, H, K, M, TransposeW, HS, 0, Tf32, TileRows, Least>(
            X, gather, W, types, pairs, nullptr, scale, pair_ptr, pair_rows, products, Keep(), chunks),
        detail::sum_rows<kWidth, Local>(products, target_ptr, target_rows, 0, targets, y_rows, Y, finish, nullptr));
}

// Sets the rows first .. last of Y to zeros, and runs `finish` on them.
template <class Value, int64_t Width, int Local = 0, class Finish = Keep>
auto zero_rows(int64_t first, int64_t last, Value* Y, const Finish& finish = {}) {
    constexpr const Accumulator<Value>* kNone = nullptr;
    constexpr const int32_t* kNoRows = nullptr;
    return detail::sum_rows<Width, Local>(kNone, kNoRows, nullptr, first, 0, last, Y, finish, nullptr);
}

}  // namespace dacergnn::cuda
