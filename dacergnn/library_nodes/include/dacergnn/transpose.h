// Makes a transposed copy of a small matrix, block by block in registers.
#pragma once

#include <cstdint>
#include <utility>

#include "vector.h"

namespace dacergnn {
namespace detail {

// Does one exchange of the butterfly: in every 2S x 2S block, the upper right and lower left S x S parts swap places.
template <int64_t S, class V, std::size_t... l>
inline __attribute__((always_inline)) void exchange(V& a, V& b, std::index_sequence<l...>) {
    constexpr int64_t L = sizeof...(l);
    constexpr auto at = [](int64_t lane, int64_t from_a, int64_t from_b) { return lane & S ? from_b : from_a; };
#if defined(__clang__)
    const V upper = __builtin_shufflevector(a, b, at(l, l, L + l - S)...);
    const V lower = __builtin_shufflevector(a, b, at(l, l + S, L + l)...);
#else  // GCC has the other only from version 12 on
    using Mask = vector_t<std::conditional_t<sizeof(V) / L == 4, int32_t, int64_t>, L>;
    const V upper = __builtin_shuffle(a, b, Mask{at(l, l, L + l - S)...});
    const V lower = __builtin_shuffle(a, b, Mask{at(l, l + S, L + l)...});
#endif
    a = upper;
    b = lower;
}

template <int64_t S, int64_t L, class V>
inline __attribute__((always_inline)) void butterfly(V (&rows)[L]) {
    if constexpr (S < L) {
#pragma GCC unroll 16
        for (int64_t i = 0; i < L; ++i)
            if ((i & S) == 0) exchange<S>(rows[i], rows[i + S], std::make_index_sequence<L>{});
        butterfly<2 * S, L>(rows);
    }
}

}  // namespace detail

// Sets to (M, K) = from (K, M) transposed, both row-major. Blocks at the edges overlap their neighbors.
template <class T, int64_t K, int64_t M>
void transpose(const T* from, T* to) {
    constexpr int64_t L = Columns<T, (K < M ? K : M)>::lanes;
    if constexpr (L == 1) {
        for (int64_t k = 0; k < K; ++k)
            for (int64_t m = 0; m < M; ++m) to[m * K + k] = from[k * M + m];
    } else {
        using V = vector_t<T, L>;
        for (int64_t k = 0; k < K; k += L) {
            const int64_t k0 = k + L <= K ? k : K - L;
            for (int64_t m = 0; m < M; m += L) {
                const int64_t m0 = m + L <= M ? m : M - L;
                V rows[L];
#pragma GCC unroll 16
                for (int64_t i = 0; i < L; ++i) rows[i] = load<V>(from + (k0 + i) * M + m0);
                detail::butterfly<1, L>(rows);
#pragma GCC unroll 16
                for (int64_t i = 0; i < L; ++i) store(to + (m0 + i) * K + k0, rows[i]);
            }
        }
    }
}

}  // namespace dacergnn
