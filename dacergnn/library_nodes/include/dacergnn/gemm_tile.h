// Computes the products under segment_gemm: tiles of rows, given by pointers, times one matrix.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "parallel.h"
#include "rows.h"
#include "transpose.h"
#include "vector.h"

namespace dacergnn {
namespace gemm {

// Names what happens to a product: it is stored, or added to the old value.
enum class Write { kStore, kAdd };

// Tells whether tiles write rows of C elements in whole vectors, as `stream` takes them.
template <class F, int64_t C>
inline constexpr bool kStreamable = kStreams && C % Columns<F, C>::max_lanes == 0;

// Tells whether tiles of NV vectors have time to request a cache line in every other step of their depth.
template <int64_t NV>
inline constexpr bool kAsks = NV > 1;

// Computes y[r] (+)= x[r] @ w for R rows and one panel of NV vectors of columns: an outer-product kernel whose R x NV
// sums stay in registers over the whole depth of D factors. w is row-major with C columns. Meanwhile it requests
// `upcoming` lines. With `streamed`, it stores sums past the caches; rows must be kStreamable.
template <class F, int64_t D, int64_t C, int64_t R, int64_t NV, int64_t LastOffset, Write How, class Lines>
inline __attribute__((always_inline)) void tile(const F* const* x, const F* w, Sum<F>* const* y, bool streamed,
                                                Lines& upcoming) {
    constexpr int64_t L = Columns<F, C>::lanes;
    using V = vector_t<Sum<F>, L>;
    const F* row[R];
    V sum[R][NV];
#pragma GCC unroll 8
    for (int64_t r = 0; r < R; ++r) {
        row[r] = x[r];
#pragma GCC unroll 4
        for (int64_t j = 0; j < NV; ++j) sum[r][j] = V{};
    }
#pragma GCC unroll 2
    for (int64_t k = 0; k < D; ++k, w += C) {
        if (kAsks<NV> && k % 2 == 0) upcoming.ask();
        vector_t<F, L> b[NV];
#pragma GCC unroll 4
        for (int64_t j = 0; j < NV; ++j) b[j] = load<vector_t<F, L>>(w + vector_offset<NV, LastOffset, L>(j));
#pragma GCC unroll 8
        for (int64_t r = 0; r < R; ++r) {
            const F a = load<F>(row[r] + k);
#pragma GCC unroll 4
            for (int64_t j = 0; j < NV; ++j) sum[r][j] = multiply_add(a, b[j], sum[r][j]);
        }
    }
#pragma GCC unroll 8
    for (int64_t r = 0; r < R; ++r) {
        if constexpr (How == Write::kAdd) {
#pragma GCC unroll 4
            for (int64_t j = 0; j < NV; ++j) sum[r][j] += load<V>(y[r] + vector_offset<NV, LastOffset, L>(j));
        }
    }
#pragma GCC unroll 8
    for (int64_t r = 0; r < R; ++r) {
#pragma GCC unroll 4
        for (int64_t j = 0; j < NV; ++j) {
            Sum<F>* const into = y[r] + vector_offset<NV, LastOffset, L>(j);
            if (How == Write::kStore && kStreamable<F, C> && streamed)
                stream_register(into, sum[r][j]);
            else
                store(into, sum[r][j]);
        }
    }
}

// Holds the choices of a plan for a product: the rows of a register tile, and the depth of a block. 0: by the sizes.
template <int64_t Rows = 0, int64_t Depth = 0>
struct Tile {
    static constexpr int64_t kRows = Rows, kDepth = Depth;
};

// Rows of a register tile: as many as the registers allow beside the panel of the weight.
template <class F, int64_t C, class P = Tile<>>
inline constexpr int64_t kTileRows = P::kRows > 0 ? P::kRows : Columns<F, C>::last >= kPanelVectors ? 6 : 8;

// Computes y[r] (+)= x[r] @ w for n rows, with D factors of x[r] and C elements of y[r], each from its offset.
template <class F, int64_t D, int64_t C, Write How, class P, class Lines>
inline void rows_times_matrix(const F* const* x, const F* w, Sum<F>* const* y, int64_t n, int64_t x_offset,
                              int64_t y_offset, bool streamed, Lines& upcoming) {
    if constexpr (C == 1) {
        upcoming.ask_all();
        for (int64_t r = 0; r < n; ++r) {
            const F* row = x[r] + x_offset;
            F sum = 0;
            DACERGNN_SIMD_SUM(sum)
            for (int64_t k = 0; k < D; ++k) sum += row[k] * w[k];
            y[r][y_offset] = How == Write::kAdd ? y[r][y_offset] + sum : sum;
        }
    } else {
        for_each_panel<F, C>([&](auto nv, auto last_offset, int64_t column) {
            constexpr int64_t NV = decltype(nv)::value, Off = decltype(last_offset)::value;
            constexpr int64_t most = kTileRows<F, C, P>;
            static_assert(0 < most && most <= 8, "the rows that are left are at most 4 + 2 + 1");
            const F* rows[most];
            Sum<F>* out[most];
            const auto step = [&](auto count, int64_t r) {
                constexpr int64_t R = decltype(count)::value;
                for (int64_t i = 0; i < R; ++i) {
                    rows[i] = x[r + i] + x_offset;
                    out[i] = y[r + i] + y_offset + column;
                }
                tile<F, D, C, R, NV, Off, How>(rows, w + column, out, streamed, upcoming);
            };
            int64_t r = 0;
            for (; r + most <= n; r += most) step(constant<most>{}, r);
            if constexpr (most > 4) {
                if (n - r >= 4) step(constant<4>{}, r), r += 4;
            }
            if constexpr (most > 2) {
                if (n - r >= 2) step(constant<2>{}, r), r += 2;
            }
            if (n - r >= 1) step(constant<1>{}, r);
        });
    }
}

// Does the same for pairs: GCC spills their sums inside other functions, those of other factors outside of them.
template <class F, int64_t D, int64_t C, Write How, class P, class Lines>
__attribute__((noinline)) void pairs_times_matrix(const F* const* x, const F* w, Sum<F>* const* y, int64_t n,
                                                  int64_t x_offset, int64_t y_offset, bool streamed, Lines& upcoming) {
    rows_times_matrix<F, D, C, How, P>(x, w, y, n, x_offset, y_offset, streamed, upcoming);
}

struct Transposed;
struct Converted;
struct ScaledRows;
struct RoundedRows;
struct FinishedRows;

// The factors of products whose sums have type T, with rows of elements X: pairs if the processor has them, else T.
#if defined(DACERGNN_PAIRS)
template <class T, class X, int64_t Depth, int64_t C>
using Factor = std::conditional_t<std::is_same_v<X, bfloat16> && std::is_same_v<T, float> && Depth % 2 == 0 &&
                                      (Columns<T, C>::lanes >= 4),
                                  Pair, T>;
#else
template <class T, class X, int64_t Depth, int64_t C>
using Factor = T;
#endif

// Makes pairs of the elements of two rows.
template <int64_t n, class First, class Second>
inline void pair_rows(const First* first, const Second* second, Pair* to) {
    DACERGNN_SIMD
    for (int64_t j = 0; j < n; ++j) to[j] = bfloat16(first[j]).bits | Pair(bfloat16(second[j]).bits) << 16;
}

template <class Tag>
struct OfAllTypes;

// Gives the weights of the types as H matrices of D x C factors: W itself, or copies, which are transposed or have other
// elements. Each thread copies the weight of the current type, if no copies of all were made before. Every Tag has
// copies of its own.
template <class F, class Element, int64_t H, int64_t K, int64_t M, bool TransposeW, class Tag = Transposed>
class Weight {
    static constexpr bool kTransposed = TransposeW && K > 1 && M > 1;
    static constexpr bool kCopied = kTransposed || !std::is_same_v<F, Element>;
    static constexpr int64_t kFactors = H * K * M / kElements<F>;
    const Element* all_;
    const F* copies_ = nullptr;
    const F* current_ = nullptr;
    int64_t type_ = -1;

    static void copy(const Element* w, F* to) {
        if constexpr (std::is_same_v<F, Pair> && TransposeW && std::is_same_v<Element, bfloat16>) {
            transpose<Pair, K, M / 2>(reinterpret_cast<const Pair*>(w), to);
        } else if constexpr (std::is_same_v<F, Pair> && TransposeW) {
            bfloat16* narrow = scratch<Converted, bfloat16>(K * M);
            for (int64_t k = 0; k < K; ++k) copy_row<M, false>(w + k * M, Computed<Element>(1), narrow + k * M);
            transpose<Pair, K, M / 2>(reinterpret_cast<const Pair*>(narrow), to);
        } else if constexpr (std::is_same_v<F, Pair>) {
            for (int64_t k = 0; k < K; k += 2) pair_rows<M>(w + k * M, w + (k + 1) * M, to + k / 2 * M);
        } else if constexpr (std::is_same_v<F, Element>) {
            transpose<F, K, M>(w, to);
        } else {
            F* wide = kTransposed ? scratch<Converted, F>(K * M) : to;
            for (int64_t k = 0; k < K; ++k) copy_row<M, false>(w + k * M, Computed<Element>(1), wide + k * M);
            if constexpr (kTransposed) transpose<F, K, M>(wide, to);
        }
    }

    static void copy_type(const Element* w, F* to) {
        for (int64_t h = 0; h < H; ++h) copy(w + h * K * M, to + h * K * M / kElements<F>);
    }

  public:
    explicit Weight(const Element* all) : all_(all) {}

    // Copies the weights of all types, for loops in which every thread comes back to them.
    void copy_all(int64_t types) {
        if constexpr (kCopied) {
            F* const copies = scratch<OfAllTypes<Tag>, F>(types * kFactors);
            parallel_for(types, H * K * M / 4, [all = all_, copies](int64_t type) {
                copy_type(all + type * (H * K * M), copies + type * kFactors);
            });
            copies_ = copies;
        }
    }

    const F* of(int64_t type) {
        const Element* w = all_ + type * (H * K * M);
        if constexpr (!kCopied) {
            return w;
        } else {
            if (copies_ != nullptr) return copies_ + type * kFactors;
            if (type != type_) {
                F* copies = scratch<Tag, F>(kFactors);
                copy_type(w, copies);
                type_ = type;
                current_ = copies;
            }
            return current_;
        }
    }
};

// Computes into (+)= scale * x for a row of H heads of D elements, with one scale for the row or one per head.
template <int64_t H, int64_t D, int HS, bool Accumulate, class X, class Scale, class Into>
inline void scaled_row(const X* __restrict x, const Scale* scale, Into* __restrict into) {
    constexpr int64_t parts = HS > 1 ? H : 1, size = H * D / parts;
    using T = Computed<X>;
    for (int64_t part = 0; part < parts; ++part, x += size, into += size) {
        const T s = HS == 0 ? T(1) : T(scale[part]);
        if constexpr (Accumulate) {
            DACERGNN_SIMD
            for (int64_t d = 0; d < size; ++d) into[d] += s * T(x[d]);
        } else {
            copy_row<size, HS != 0>(x, s, into);
        }
    }
}

// Work of one row as parallel.h counts it, in the time of simple element operations. Products with few columns take the
// time in which their weights are read.
template <int64_t H, int64_t K, int64_t M>
inline constexpr int64_t kRowWork = H * std::max(K * M + 31, 8 * std::max(K, M)) / 32;

// Half of a second-level cache of 1 MiB. A smaller weight stays there, and every group of rows finds it.
inline constexpr int64_t kWeightBytes = int64_t{512} << 10;

// The most depth that is multiplied at a time if the weight is larger: its panel (128 KiB) and the same depth of the
// rows of a group (288 KiB) stay in the second-level cache while tiles pass over them. Copying each panel together
// first was slower. Deeper blocks are slower if the columns are a large power of two.
template <class F, class P = Tile<>>
inline constexpr int64_t kMostDepth = P::kDepth > 0 ? P::kDepth : 2048 / int64_t(sizeof(F));

// Tells whether products go through the depth block by block. Below two blocks, or with a single panel, this was not
// faster.
template <class F, int64_t H, int64_t D, int64_t C, class P = Tile<>>
inline constexpr bool kBlocked =
    P::kDepth > 0 ? C > 1 && D > P::kDepth
                  : Columns<F, C>::panels > 1 && D >= 2 * kMostDepth<F, P> &&
                        H * D * C * int64_t(sizeof(F)) > kWeightBytes;

// Rows that are multiplied together: two tiles, more if several matrices or panels pass over the same rows, and many
// if the weight has to come from a farther cache for each group.
template <class F, int64_t H, int64_t D, int64_t C, class P = Tile<>>
inline constexpr int64_t kGroupRows =
    kTileRows<F, C, P> * (kBlocked<F, H, D, C, P> ? 24
                       : H * Columns<F, C>::panels == 1
                           ? 2
                           : std::clamp<int64_t>(16384 / (H * D * int64_t(sizeof(F)) * kTileRows<F, C, P>), 2, 8));

// Returns the rows of the groups into which `total` rows are cut: fewer where threads would have too few groups.
template <class F, int64_t H, int64_t D, int64_t C, class P>
inline int64_t group_rows(int64_t total) {
    constexpr int64_t most = kGroupRows<F, H, D, C, P>, tile = kTileRows<F, C, P>;
    if constexpr (!kBlocked<F, H, D, C, P>) return most;
    return std::min(most, (total / (2 * thread_count()) / tile + 1) * tile);
}

// Requests the rows of the next group, of so many lines each. Rows of blocks need no requests: they are long, and read
// in order.
template <class F, int64_t H, int64_t D, int64_t C, class P, int64_t lines>
using LinesOf =
    std::conditional_t<kBlocked<F, H, D, C, P>, NothingUpcoming, Upcoming<kGroupRows<F, H, D, C, P> * lines>>;

// Lines that the product of a group requests meanwhile.
template <class F, int64_t H, int64_t D, int64_t C, class P>
inline constexpr int64_t kLinesMeanwhile =
    kAsks<Columns<F, C>::small>
        ? H * Columns<F, C>::panels * (kGroupRows<F, H, D, C, P> / kTileRows<F, C, P>)*(D / 2)
        : 0;

// Computes y[r] (+)= x[r] @ w for n rows of H heads, each with its own matrix. Blocks of the depth are added to y.
template <class F, int64_t H, int64_t D, int64_t C, Write How, class P = Tile<>, class Lines>
inline void group_product(const F* const* x, const F* w, Sum<F>* const* y, int64_t n, bool streamed, Lines& upcoming) {
    if constexpr (kBlocked<F, H, D, C, P>) {
        constexpr int64_t blocks = (D + kMostDepth<F, P> - 1) / kMostDepth<F, P>, block = (D + blocks - 1) / blocks;
        if constexpr (How == Write::kStore) {
            for (int64_t r = 0; r < n; ++r) std::fill(y[r], y[r] + H * C, Sum<F>(0));
        }
        for (int64_t h = 0; h < H; ++h, w += D * C) {
            int64_t k = 0;
            for (; k + block <= D; k += block)
                rows_times_matrix<F, block, C, Write::kAdd, P>(x, w + k * C, y, n, h * D + k, h * C, false,
                                                                 upcoming);
            if constexpr (D % block > 0)
                rows_times_matrix<F, D % block, C, Write::kAdd, P>(x, w + k * C, y, n, h * D + k, h * C, false,
                                                                     upcoming);
        }
    } else {
        for (int64_t h = 0; h < H; ++h) {
            if constexpr (std::is_same_v<F, Pair>)
                pairs_times_matrix<F, D, C, How, P>(x, w + h * (D * C), y, n, h * D, h * C, streamed, upcoming);
            else
                rows_times_matrix<F, D, C, How, P>(x, w + h * (D * C), y, n, h * D, h * C, streamed, upcoming);
        }
    }
}

}  // namespace gemm
}  // namespace dacergnn
