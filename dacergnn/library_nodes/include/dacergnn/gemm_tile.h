// Computes the products under segment_gemm: tiles of rows, given by pointers, times one matrix.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "parallel.h"
#include "transpose.h"
#include "vector.h"

namespace dacergnn {
namespace gemm {

// Names what happens to a product: it is stored, added to the old value, or stored past the caches.
enum class Write { kStore, kAdd, kStream };

// Tells whether tiles of NV vectors have time to request a cache line in every other step of their depth.
template <int64_t NV>
inline constexpr bool kAsks = NV > 1;

// Computes y[r] (+)= x[r] @ w for R rows and one panel of NV vectors of columns: an outer-product kernel whose R x NV
// sums stay in registers over the whole depth D. w is row-major with C columns. Meanwhile it requests `upcoming` lines.
template <class T, int64_t D, int64_t C, int64_t R, int64_t NV, int64_t LastOffset, Write How, class Lines>
inline __attribute__((always_inline)) void tile(const T* const* x, const T* w, T* const* y, Lines& upcoming) {
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
        if (kAsks<NV> && k % 2 == 0) upcoming.ask();
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
        if constexpr (How == Write::kAdd) {
#pragma GCC unroll 4
            for (int64_t j = 0; j < NV; ++j) sum[r][j] += load<V>(y[r] + vector_offset<NV, LastOffset, L>(j));
        }
#pragma GCC unroll 4
        for (int64_t j = 0; j < NV; ++j) {
            T* const into = y[r] + vector_offset<NV, LastOffset, L>(j);
            if constexpr (How == Write::kStream)
                stream(into, sum[r][j]);
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
template <class T, int64_t C, class P = Tile<>>
inline constexpr int64_t kTileRows = P::kRows > 0 ? P::kRows : Columns<T, C>::last >= kPanelVectors ? 6 : 8;

// Computes y[r] (+)= x[r] @ w for n rows, with D elements of x[r] and C elements of y[r], each from its offset.
template <class T, int64_t D, int64_t C, Write How, class P, class Lines>
inline void rows_times_matrix(const T* const* x, const T* w, T* const* y, int64_t n, int64_t x_offset,
                              int64_t y_offset, Lines& upcoming) {
    if constexpr (C == 1) {
        upcoming.ask_all();
        for (int64_t r = 0; r < n; ++r) {
            const T* row = x[r] + x_offset;
            T sum = 0;
            DACERGNN_SIMD_SUM(sum)
            for (int64_t k = 0; k < D; ++k) sum += row[k] * w[k];
            y[r][y_offset] = How == Write::kAdd ? y[r][y_offset] + sum : sum;
        }
    } else {
        for_each_panel<T, C>([&](auto nv, auto last_offset, int64_t column) {
            constexpr int64_t NV = decltype(nv)::value, Off = decltype(last_offset)::value;
            constexpr int64_t most = kTileRows<T, C, P>;
            static_assert(0 < most && most <= 8, "the rows that are left are at most 4 + 2 + 1");
            const T* rows[most];
            T* out[most];
            const auto step = [&](auto count, int64_t r) {
                constexpr int64_t R = decltype(count)::value;
                for (int64_t i = 0; i < R; ++i) {
                    rows[i] = x[r + i] + x_offset;
                    out[i] = y[r + i] + y_offset + column;
                }
                tile<T, D, C, R, NV, Off, How>(rows, w + column, out, upcoming);
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

struct Transposed;
struct ScaledRows;
struct FinishedRows;

// Gives the weights of the types as H matrices of D x C: W itself, or a transposed copy for the current type. Every Tag
// has a copy of its own.
template <class T, int64_t H, int64_t K, int64_t M, bool TransposeW, class Tag = Transposed>
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
            T* copy = scratch<Tag, T>(H * K * M);
            for (int64_t h = 0; h < H; ++h) transpose<T, K, M>(w + h * K * M, copy + h * K * M);
            type_ = type;
            current_ = copy;
        }
        return current_;
    }
};

// Computes into (+)= scale * x for a row of H heads of D elements, with one scale for the row or one per head.
template <class T, int64_t H, int64_t D, int HS, bool Accumulate>
inline void scaled_row(const T* __restrict x, const T* scale, T* __restrict into) {
    constexpr int64_t parts = HS > 1 ? H : 1, size = H * D / parts;
    for (int64_t part = 0; part < parts; ++part, x += size, into += size) {
        const T s = HS == 0 ? T(1) : scale[part];
        if constexpr (Accumulate) {
            DACERGNN_SIMD
            for (int64_t d = 0; d < size; ++d) into[d] += s * x[d];
        } else {
            copy_row<size, HS != 0>(x, s, into);
        }
    }
}

// Tells whether tiles write rows of C elements in whole vectors, as `stream` takes them.
template <class T, int64_t C>
inline constexpr bool kStreamable = kStreams && C % Columns<T, C>::max_lanes == 0;

// Work of one row as parallel.h counts it, in the time of simple element operations.
template <int64_t H, int64_t K, int64_t M>
inline constexpr int64_t kRowWork = (H * K * M + 31) / 32;

// Half of a second-level cache of 1 MiB. A smaller weight stays there, and every group of rows finds it.
inline constexpr int64_t kWeightBytes = int64_t{512} << 10;

// The most depth that is multiplied at a time if the weight is larger: its panel (128 KiB) and the same depth of the
// rows of a group (288 KiB) stay in the second-level cache while tiles pass over them. Copying each panel together
// first was slower. Deeper blocks are slower if the columns are a large power of two.
template <class T, class P = Tile<>>
inline constexpr int64_t kMostDepth = P::kDepth > 0 ? P::kDepth : 2048 / int64_t(sizeof(T));

// Tells whether products go through the depth block by block. Below two blocks, or with a single panel, this was not
// faster.
template <class T, int64_t H, int64_t D, int64_t C, class P = Tile<>>
inline constexpr bool kBlocked =
    P::kDepth > 0 ? C > 1 && D > P::kDepth
                  : Columns<T, C>::panels > 1 && D >= 2 * kMostDepth<T, P> &&
                        H * D * C * int64_t(sizeof(T)) > kWeightBytes;

// Rows that are multiplied together: two tiles, more if several matrices or panels pass over the same rows, and many
// if the weight has to come from a farther cache for each group.
template <class T, int64_t H, int64_t D, int64_t C, class P = Tile<>>
inline constexpr int64_t kGroupRows =
    kTileRows<T, C, P> * (kBlocked<T, H, D, C, P> ? 24
                       : H * Columns<T, C>::panels == 1
                           ? 2
                           : std::clamp<int64_t>(16384 / (H * D * int64_t(sizeof(T)) * kTileRows<T, C, P>), 2, 8));

// Returns the rows of the groups into which `total` rows are cut: fewer where threads would have too few groups.
template <class T, int64_t H, int64_t D, int64_t C, class P>
inline int64_t group_rows(int64_t total) {
    constexpr int64_t most = kGroupRows<T, H, D, C, P>, tile = kTileRows<T, C, P>;
    if constexpr (!kBlocked<T, H, D, C, P>) return most;
    return std::min(most, (total / (2 * thread_count()) / tile + 1) * tile);
}

// Requests the rows of the next group, of so many lines each. Rows of blocks need no requests: they are long, and read
// in order.
template <class T, int64_t H, int64_t D, int64_t C, class P, int64_t lines>
using LinesOf =
    std::conditional_t<kBlocked<T, H, D, C, P>, NothingUpcoming, Upcoming<kGroupRows<T, H, D, C, P> * lines>>;

// Lines that the product of a group requests meanwhile.
template <class T, int64_t H, int64_t D, int64_t C, class P>
inline constexpr int64_t kLinesMeanwhile =
    kAsks<Columns<T, C>::small>
        ? H * Columns<T, C>::panels * (kGroupRows<T, H, D, C, P> / kTileRows<T, C, P>)*(D / 2)
        : 0;

// Computes y[r] (+)= x[r] @ w for n rows of H heads, each with its own matrix. Blocks of the depth are added to y.
template <class T, int64_t H, int64_t D, int64_t C, Write How, class P = Tile<>, class Lines>
inline void group_product(const T* const* x, const T* w, T* const* y, int64_t n, Lines& upcoming) {
    if constexpr (kBlocked<T, H, D, C, P>) {
        static_assert(How != Write::kStream);
        constexpr int64_t blocks = (D + kMostDepth<T, P> - 1) / kMostDepth<T, P>, block = (D + blocks - 1) / blocks;
        if constexpr (How == Write::kStore) {
            for (int64_t r = 0; r < n; ++r) std::fill(y[r], y[r] + H * C, T(0));
        }
        for (int64_t h = 0; h < H; ++h, w += D * C) {
            int64_t k = 0;
            for (; k + block <= D; k += block)
                rows_times_matrix<T, block, C, Write::kAdd, P>(x, w + k * C, y, n, h * D + k, h * C, upcoming);
            if constexpr (D % block > 0)
                rows_times_matrix<T, D % block, C, Write::kAdd, P>(x, w + k * C, y, n, h * D + k, h * C, upcoming);
        }
    } else {
        for (int64_t h = 0; h < H; ++h)
            rows_times_matrix<T, D, C, How, P>(x, w + h * (D * C), y, n, h * D, h * C, upcoming);
    }
}

}  // namespace gemm
}  // namespace dacergnn
