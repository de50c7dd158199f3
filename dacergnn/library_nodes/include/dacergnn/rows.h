// Copies rows of a few elements, and converts those of 16 bits, by whole vectors.
#pragma once

#include <cstdint>
#include <type_traits>

#include "half.h"
#include "simd.h"
#include "vector.h"

namespace dacergnn {

// Tells whether vectors of L elements of 16 bits are converted at once; other elements convert themselves.
#if defined(DACERGNN_NO_VECTORS)
template <class Half, int64_t L>
inline constexpr bool kConverts = false;
#elif defined(__F16C__)
template <class Half, int64_t L>
inline constexpr bool kConverts =
    (L > 1 && std::is_same_v<Half, bfloat16>) || (L >= 8 && std::is_same_v<Half, float16>);
#else
template <class Half, int64_t L>
inline constexpr bool kConverts = L > 1 && std::is_same_v<Half, bfloat16>;
#endif

template <class Half, int64_t L>
inline __attribute__((always_inline)) vector_t<float, L> widened(vector_t<uint16_t, L> bits) {
    vector_t<float, L> wide;
    if constexpr (std::is_same_v<Half, bfloat16>) {
        const vector_t<uint32_t, L> upper = __builtin_convertvector(bits, vector_t<uint32_t, L>) << 16;
        __builtin_memcpy(&wide, &upper, sizeof(wide));
    } else {
#if defined(__F16C__)
        asm("vcvtph2ps %1, %0" : "=v"(wide) : "v"(bits));
#endif
    }
    return wide;
}

template <class Half, int64_t L>
inline __attribute__((always_inline)) vector_t<uint16_t, L> rounded(vector_t<float, L> wide) {
    if constexpr (std::is_same_v<Half, bfloat16>) {
#if defined(DACERGNN_PAIRS)
        if constexpr (L >= 8) {
            vector_t<uint16_t, L> bits;
            asm("vcvtneps2bf16 %1, %0" : "=v"(bits) : "v"(wide));
            return bits;
        }
#endif
        vector_t<uint32_t, L> bits;
        __builtin_memcpy(&bits, &wide, sizeof(bits));
        const auto nearest = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
        return __builtin_convertvector(wide != wide ? 0x7fc0 : nearest, vector_t<uint16_t, L>);
    } else {
        vector_t<uint16_t, L> bits;
#if defined(__F16C__)
        asm("vcvtps2ph $0, %1, %0" : "=v"(bits) : "v"(wide));
#endif
        return bits;
    }
}

// Sets to[0..n] = scale * from[0..n]. The loop is explicit because the compiler would call memmove for a short row.
template <int64_t n, bool Scaled, class From, class To>
inline __attribute__((always_inline)) void copy_row(const From* from, Computed<From> scale, To* to) {
    using T = Computed<From>;
    constexpr int64_t L = Columns<T, n>::lanes;
    constexpr bool converts = (!is_half<From> || kConverts<From, L>) && (!is_half<To> || kConverts<To, L>);
    if constexpr (converts && std::is_same_v<T, Computed<To>>) {
#pragma GCC unroll 4
        for (int64_t j = 0; j < n; j += L) {
            const int64_t at = j + L <= n ? j : n - L;
            vector_t<T, L> v;
            if constexpr (is_half<From>)
                v = widened<From, L>(load<vector_t<uint16_t, L>>(from + at));
            else
                v = load<vector_t<T, L>>(from + at);
            if constexpr (Scaled) v *= scale;
            if constexpr (is_half<To>)
                store(to + at, rounded<To, L>(v));
            else
                store(to + at, v);
        }
    } else {
        DACERGNN_SIMD
        for (int64_t j = 0; j < n; ++j) to[j] = Scaled ? scale * T(from[j]) : T(from[j]);
    }
}

// Sets to[0..n] = from[0..n], by streaming if `streams` has said so, which it does of whole cache lines alone.
template <int64_t n, class From, class To>
inline __attribute__((always_inline)) void write_row(To* to, const From* from, bool streamed) {
    if constexpr (kStreams && n * sizeof(To) % 64 == 0) {
        if (streamed) {
            using Bits = std::conditional_t<is_half<To>, uint16_t, To>;
            using V = typename Columns<Bits, n>::V;
            alignas(64) To row[n];
            if constexpr (!std::is_same_v<From, To>) copy_row<n, false>(from, Computed<From>(1), row);
            const void* const whole = std::is_same_v<From, To> ? static_cast<const void*>(from) : row;
#pragma GCC unroll 4
            for (int64_t j = 0; j < n; j += Columns<Bits, n>::lanes)
                stream(to + j, load<V>(static_cast<const To*>(whole) + j));
            return;
        }
    }
    copy_row<n, false>(from, Computed<From>(1), to);
}

// Stands for rows that are in no array: make(i, row) computes row i, of elements T, where a kernel needs it.
template <class T, class Make>
struct Made {
    using Element = T;
    Make make;
};

template <class T, class Make>
inline Made<T, Make> made_rows(Make make) {
    return {make};
}

// Tells the elements of rows, and whether they are made.
template <class Rows>
struct RowsOf {
    using Element = typename Rows::Element;
    static constexpr bool made = true;
};
template <class E>
struct RowsOf<E*> {
    using Element = std::remove_const_t<E>;
    static constexpr bool made = false;
};

}  // namespace dacergnn
