// Defines fixed-width vectors through the GCC vector extensions, and cuts a row of C columns into register panels.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "half.h"
#include "simd.h"

namespace dacergnn {

// Bytes of one vector register, and the number of registers that one row of a register tile may use: 32 registers hold
// 6 rows x 4 vectors, 16 registers hold 6 rows x 2 vectors.
#if defined(DACERGNN_NO_VECTORS)
inline constexpr int64_t kVectorBytes = 1, kPanelVectors = 4;
#elif defined(__AVX512F__)
inline constexpr int64_t kVectorBytes = 64, kPanelVectors = 4;
#elif defined(__AVX2__)
inline constexpr int64_t kVectorBytes = 32, kPanelVectors = 2;
#elif defined(__aarch64__)
inline constexpr int64_t kVectorBytes = 16, kPanelVectors = 4;
#else
inline constexpr int64_t kVectorBytes = 16, kPanelVectors = 2;
#endif

template <class T, int64_t N>
struct Vector {
    typedef T type __attribute__((vector_size(N * sizeof(T))));
};
template <class T, int64_t N>
using vector_t = typename Vector<T, N>::type;

// Loads a vector by memcpy, not by a cast, since pointers may be unaligned. It compiles to one instruction.
template <class V, class T>
inline __attribute__((always_inline)) V load(const T* p) {
    V v;
    __builtin_memcpy(&v, p, sizeof(V));
    return v;
}

template <class V, class T>
inline __attribute__((always_inline)) void store(T* p, V v) {
    __builtin_memcpy(p, &v, sizeof(V));
}

// Tells whether `stream` writes past the caches.
#if defined(__x86_64__) && defined(__AVX__) && !defined(DACERGNN_NO_VECTORS)
#define DACERGNN_STREAMS
inline constexpr bool kStreams = true;
#else
inline constexpr bool kStreams = false;
#endif

// Stores a whole vector past the caches, at an address aligned to it: no cache reads the line before, or keeps it. It
// is for arrays that leave the caches before they are read. Other threads see the vector after `end_stream`.
template <class V, class T>
inline __attribute__((always_inline)) void stream(T* p, V v) {
#if defined(DACERGNN_STREAMS)
    asm volatile("vmovntps %1, (%0)" : : "r"(p), "v"(v) : "memory");
#else
    store(p, v);
#endif
}

// Does the same among many vectors in registers, which GCC spills around the other form. Loops over rows on the stack
// become slower with this one.
template <class V, class T>
inline __attribute__((always_inline)) void stream_register(T* p, V v) {
#if defined(DACERGNN_STREAMS)
    typedef V Memory __attribute__((may_alias));
    asm volatile("vmovntps %1, %0" : "=m"(*reinterpret_cast<Memory*>(p)) : "v"(v));
#else
    store(p, v);
#endif
}

inline void end_stream() {
#if defined(DACERGNN_STREAMS)
    asm volatile("sfence" : : : "memory");
#endif
}

// Arrays of more bytes than this have left the caches when they are read.
inline constexpr int64_t kBeyondCaches = int64_t{64} << 20;

// Tells whether rows of n elements are streamed into an array of so many rows: whole cache lines of a large array.
template <int64_t n, class T>
inline bool streams(const T* array, int64_t rows) {
    constexpr int64_t bytes = n * static_cast<int64_t>(sizeof(T));
    return kStreams && bytes % 64 == 0 && reinterpret_cast<std::uintptr_t>(array) % 64 == 0 &&
           rows > kBeyondCaches / bytes;
}

// Returns sum + a * b, rounded once if the machine can. When GCC tunes for Zen, it splits a lone chain of fused
// multiply-adds of at most 256 bits. The result of a row would then depend on the size of its tile. The empty assembly
// hides the chain and costs no instruction.
template <class V, class T>
inline __attribute__((always_inline)) V multiply_add(T a, V b, V sum) {
    V result = sum + a * b;
#if defined(__x86_64__) && defined(__FMA__) && !defined(__clang__)
    if constexpr (sizeof(V) <= 32 && sizeof(V) > sizeof(T)) asm("" : "+x"(result));
#endif
    return result;
}

// A pair of elements of bfloat16: one instruction multiplies it by another pair, and adds both products to a float.
using Pair = uint32_t;
#if defined(__AVX512BF16__) && defined(__AVX512VL__) && !defined(DACERGNN_NO_VECTORS)
#define DACERGNN_PAIRS
#endif

// The type of sums of products of factors, and the number of elements in a factor.
template <class Factor>
using Sum = std::conditional_t<std::is_same_v<Factor, Pair>, float, Factor>;
template <class Factor>
inline constexpr int64_t kElements = std::is_same_v<Factor, Pair> ? 2 : 1;

#if defined(DACERGNN_PAIRS)
template <class V, class B>
inline __attribute__((always_inline)) V multiply_add(Pair a, B b, V sum) {
    const B both = B{} + a;
    asm("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(both), "v"(b));
    return sum;
}
#endif

// Cuts the columns 0..C of a row into vectors whose lanes are a power of two. If C is no multiple of the lanes, the
// last vector ends at column C and overlaps its neighbor. Both then hold the same values in the common columns, so
// nothing is padded or masked. A kernel must load all vectors of a panel before it stores any of them.
template <class T, int64_t C>
struct Columns {
    static constexpr int64_t floor_pow2(int64_t n) { return n < 2 ? 1 : 2 * floor_pow2(n / 2); }
    static constexpr int64_t max_lanes = std::max(kVectorBytes / static_cast<int64_t>(sizeof(T)), int64_t{1});
    static constexpr int64_t lanes = C < max_lanes ? floor_pow2(C) : max_lanes;
    static constexpr int64_t vectors = (C + lanes - 1) / lanes;
    static constexpr int64_t panels = (vectors + kPanelVectors - 1) / kPanelVectors;
    // Panels are balanced, the larger ones last: the overlapping pair of vectors is never split between two panels.
    static constexpr int64_t small = vectors / panels;
    static constexpr int64_t large_panels = vectors % panels;
    static constexpr int64_t last = small + (large_panels > 0 ? 1 : 0);
    using V = vector_t<T, lanes>;
};

template <int64_t N>
using constant = std::integral_constant<int64_t, N>;

// Calls f(constant<vectors>, constant<offset of the last vector from the first column>, first column) for each panel.
template <class T, int64_t C, class F>
inline void for_each_panel(F f) {
    using Cols = Columns<T, C>;
    constexpr int64_t L = Cols::lanes;
    constexpr int64_t last_column = (Cols::vectors - Cols::last) * L;
    constexpr int64_t small_panels = Cols::panels - Cols::large_panels - (Cols::large_panels == 0 ? 1 : 0);
    int64_t column = 0;
    for (int64_t p = 0; p < small_panels; ++p, column += Cols::small * L)
        f(constant<Cols::small>{}, constant<(Cols::small - 1) * L>{}, column);
    for (; column < last_column; column += Cols::last * L)
        f(constant<Cols::last>{}, constant<(Cols::last - 1) * L>{}, column);
    f(constant<Cols::last>{}, constant<C - L - last_column>{}, last_column);
}

// Returns the offset of vector j in a panel of NV vectors.
template <int64_t NV, int64_t LastOffset, int64_t Lanes>
inline constexpr int64_t vector_offset(int64_t j) {
    return j + 1 == NV ? LastOffset : j * Lanes;
}

// Returns the sum of the n elements of a vector by halves; n is a power of two.
template <int64_t n, class T, class V>
inline __attribute__((always_inline)) T sum_vector(const V& v) {
    if constexpr (n == 1) {
        return v[0];
    } else {
        using Half = vector_t<T, n / 2>;
#if defined(__has_builtin) && __has_builtin(__builtin_shufflevector)
        const Half sum = [&]<std::size_t... I>(std::index_sequence<I...>) {
            return __builtin_shufflevector(v, v, I...) + __builtin_shufflevector(v, v, (I + n / 2)...);
        }(std::make_index_sequence<n / 2>{});
#else
        const T* const p = reinterpret_cast<const T*>(&v);
        const Half sum = load<Half>(p) + load<Half>(p + n / 2);
#endif
        return sum_vector<n / 2, T>(sum);
    }
}

// Returns the sum of n elements; n is a power of two.
template <int64_t n, class T>
inline __attribute__((always_inline)) T sum_lanes(const T* p) {
#if defined(DACERGNN_NO_VECTORS)
    T sums[n];
    std::copy_n(p, n, sums);
    for (int64_t half = n / 2; half > 0; half /= 2)
        for (int64_t i = 0; i < half; ++i) sums[i] += sums[i + half];
    return sums[0];
#else
    return sum_vector<n, T>(load<vector_t<T, n>>(p));
#endif
}

// Bytes to prefetch of a row of n elements: at most 16 cache lines, since hardware prefetches the rest of longer rows.
template <class T, int64_t n>
inline constexpr int64_t kPrefetched = n * int64_t(sizeof(T)) < 1024 ? n * int64_t(sizeof(T)) : 1024;
template <class T, int64_t n>
inline constexpr int64_t kPrefetchedLines = (kPrefetched<T, n> + 63) / 64;

// Asks for the cache lines of n elements. Level 1 is the nearest cache, 2 the one behind it.
template <int64_t n, int Level = 1, class T>
inline __attribute__((always_inline)) void prefetch_row(const T* p) {
    for (int64_t b = 0; b < kPrefetched<T, n>; b += 64)
        __builtin_prefetch(reinterpret_cast<const char*>(p) + b, 0, 4 - Level);
}

// Holds at most N cache lines, which are requested one by one during other computations: a core has few requests under
// way at a time, and waits if there are more.
template <int64_t N>
class Upcoming {
    const char* lines_[N];
    int64_t count_ = 0, next_ = 0;

  public:
    // Adds the lines that `prefetch_row` asks for.
    template <int64_t n, class T>
    inline __attribute__((always_inline)) void add_row(const T* p) {
        for (int64_t b = 0; b < kPrefetched<T, n>; b += 64) lines_[count_++] = reinterpret_cast<const char*>(p) + b;
    }
    inline __attribute__((always_inline)) void ask() {
        if (next_ < count_) __builtin_prefetch(lines_[next_++]);
    }
    // Asks for all but the last `rest` at once.
    void ask_but(int64_t rest) {
        while (next_ + rest < count_) ask();
    }
    void ask_all() {
        ask_but(0);
        next_ = count_ = 0;
    }
};

struct NothingUpcoming {
    template <int64_t n, class T>
    void add_row(const T*) const {}
    void ask() const {}
    void ask_but(int64_t) const {}
    void ask_all() const {}
};

}  // namespace dacergnn
