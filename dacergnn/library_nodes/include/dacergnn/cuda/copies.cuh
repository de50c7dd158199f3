// Loads and stores wide words, and copies to shared memory while a thread does something else.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "launch.cuh"

namespace dacergnn::cuda {

// Holds N consecutive elements, in registers if the compiler knows all indices.
template <class T, int N>
struct Vector {
    T element[N];
    __device__ T& operator[](int i) { return element[i]; }
    __device__ const T& operator[](int i) const { return element[i]; }
};

namespace detail {
// Names the widest word that N elements are made of; void if that is not wider than an element.
template <int Bytes, int Element>
struct Wide {
    using type = void;
};
template <int Bytes, int Element>
    requires(Bytes % 16 == 0 && Element < 16)
struct Wide<Bytes, Element> {
    using type = int4;
};
template <int Bytes, int Element>
    requires(Bytes % 16 == 8 && Element < 8)
struct Wide<Bytes, Element> {
    using type = int2;
};
template <class Word, int Bytes>
__device__ inline void copy_words(void* to, const void* from) {
#pragma unroll
    for (int i = 0; i < Bytes / static_cast<int>(sizeof(Word)); ++i)
        static_cast<Word*>(to)[i] = static_cast<const Word*>(from)[i];
}
// Stores a word to global memory by one instruction, where the compiler might store its parts one by one.
__device__ inline void store_word(int4* to, const int4& word) {
#ifdef DACERGNN_EMULATE_CUDA
    *to = word;
#else
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(to)), "r"(word.x), "r"(word.y),
                 "r"(word.z), "r"(word.w)
                 : "memory");
#endif
}
__device__ inline void store_word(int2* to, const int2& word) {
#ifdef DACERGNN_EMULATE_CUDA
    *to = word;
#else
    asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(__cvta_generic_to_global(to)), "r"(word.x), "r"(word.y)
                 : "memory");
#endif
}
}  // namespace detail

// Lets the call fail unless all arrays start at a multiple of 16 bytes, as loads and stores of several elements need.
inline void check_alignment(std::initializer_list<const void*> arrays) {
    for (const void* array : arrays)
        if (reinterpret_cast<std::uintptr_t>(array) % 16 != 0 && call.failure == nullptr)
            call.failure = "An array does not start at a multiple of 16 bytes; pass a copy of the tensor.";
}

// Loads N elements by words of 16 (or 8) bytes, or one by one if N does not allow that. `from` is a multiple of N
// elements behind the start of an array.
template <int N, class T>
__device__ inline Vector<T, N> load_vector(const T* from) {
    using Word = typename detail::Wide<N * sizeof(T), sizeof(T)>::type;
    alignas(16) Vector<T, N> result;
    if constexpr (!std::is_void_v<Word>) {
        detail::copy_words<Word, N * sizeof(T)>(&result, from);
    } else {
#pragma unroll
        for (int i = 0; i < N; ++i) result[i] = from[i];
    }
    return result;
}

// Stores N elements to global memory; the counterpart of `load_vector`.
template <int N, class T>
__device__ inline void store_vector(T* to, const Vector<T, N>& value) {
    using Word = typename detail::Wide<N * sizeof(T), sizeof(T)>::type;
    if constexpr (!std::is_void_v<Word>) {
        alignas(16) const Vector<T, N> copy = value;
#pragma unroll
        for (int i = 0; i < static_cast<int>(N * sizeof(T) / sizeof(Word)); ++i)
            detail::store_word(reinterpret_cast<Word*>(to) + i, reinterpret_cast<const Word*>(&copy)[i]);
    } else {
#pragma unroll
        for (int i = 0; i < N; ++i) to[i] = value[i];
    }
}

// Copies 16 bytes from global to shared memory, both aligned to 16, or writes zeros unless `valid` (nothing is read
// then). The calling thread sees them once `copy_async_wait` has returned, other threads after a later barrier.
__device__ inline void copy_async16(void* shared, const void* global, bool valid = true) {
#ifdef DACERGNN_EMULATE_CUDA
    emulation::copy_async(shared, global, 16, valid);
#else
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                     static_cast<unsigned>(__cvta_generic_to_shared(shared))),
                 "l"(__cvta_generic_to_global(global)), "r"(valid ? 16 : 0)
                 : "memory");
#endif
}

// Copies one element of 4 or 8 bytes in the same way.
template <class T>
__device__ inline void copy_async_element(T* shared, const T* global, bool valid) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8);
#ifdef DACERGNN_EMULATE_CUDA
    emulation::copy_async(shared, global, sizeof(T), valid);
#else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %3, %2;" ::"r"(
                     static_cast<unsigned>(__cvta_generic_to_shared(shared))),
                 "l"(__cvta_generic_to_global(global)), "r"(valid ? static_cast<int>(sizeof(T)) : 0), "n"(sizeof(T))
                 : "memory");
#endif
}

// Ends a group of copies.
__device__ inline void copy_async_commit() {
#ifdef DACERGNN_EMULATE_CUDA
    emulation::copy_async_commit();
#else
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits until all groups but the last `Groups` have arrived.
template <int Groups>
__device__ inline void copy_async_wait() {
#ifdef DACERGNN_EMULATE_CUDA
    emulation::copy_async_wait(Groups);
#else
    asm volatile("cp.async.wait_group %0;" ::"n"(Groups) : "memory");
#endif
}

}  // namespace dacergnn::cuda
