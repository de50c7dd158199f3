// All that kernels know of the machine: launches, shared memory, sums over a warp, wide and asynchronous copies.
//
// Kernels are functors. With DACERGNN_EMULATE_CUDA a C++ compiler builds the same code to run on the processor.
#pragma once

#include <cstddef>
#include <cstdint>

#ifdef DACERGNN_EMULATE_CUDA
#include "cuda_emulation.h"
#else
#include <cuda_runtime.h>
#endif

namespace dacergnn::cuda {

inline constexpr int kWarp = 32;
inline constexpr unsigned kAll = 0xffffffffu;

// What the caller of a program sets before it calls. `failure` is the first error since it was last null: whoever
// reads it sets it back; until then nothing is launched. It does not cover what goes wrong on the device later.
struct Call {
    cudaStream_t stream = nullptr;
    char* workspace = nullptr;
    int multiprocessors = 1;
    const char* failure = nullptr;
};
inline thread_local Call call;

#ifndef DACERGNN_EMULATE_CUDA
template <int Threads, class Kernel>
__global__ void __launch_bounds__(Threads) run(const __grid_constant__ Kernel kernel) {
    kernel();
}
#endif

// Runs `kernel()` in every thread of `blocks` blocks, on the stream of the call. Errors go to `call.failure`.
template <int Threads, class Kernel>
void launch(int64_t blocks, std::size_t shared_bytes, const Kernel& kernel) {
    static_assert(Threads > 0 && Threads <= 1024, "a block has 1 to 1024 threads");
    static_assert(sizeof(Kernel) <= 4096, "arguments of a kernel take up to 4096 bytes");
    if (blocks == 0 || call.failure != nullptr) return;
    if (blocks < 0 || blocks > 0x7fffffff) {
        call.failure = "A kernel needs more than 2^31 - 1 blocks; the graph is too large for one launch.";
        return;
    }
#ifdef DACERGNN_EMULATE_CUDA
    call.failure = emulation::launch(blocks, Threads, shared_bytes, kernel);
#else
    cudaError_t error = cudaSuccess;
    if (shared_bytes > 48 * 1024)  // at every launch: the limit belongs to the kernel on one device
        error = cudaFuncSetAttribute(run<Threads, Kernel>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     static_cast<int>(shared_bytes));
    if (error == cudaSuccess) {
        run<Threads><<<static_cast<unsigned>(blocks), Threads, shared_bytes, call.stream>>>(kernel);
        error = cudaGetLastError();
    }
    if (error != cudaSuccess) call.failure = cudaGetErrorString(error);
#endif
}

// The dynamic shared memory of the block, aligned to 16 bytes.
template <class T>
__device__ inline T* shared_memory() {
#ifdef DACERGNN_EMULATE_CUDA
    return static_cast<T*>(emulation::shared_memory());
#else
    extern __shared__ __align__(16) unsigned char dacergnn_shared_memory[];
    return reinterpret_cast<T*>(dacergnn_shared_memory);
#endif
}

// Blocks are one-dimensional.
__device__ inline int lane() { return static_cast<int>(threadIdx.x) % kWarp; }
__device__ inline int warp() { return static_cast<int>(threadIdx.x) / kWarp; }

template <class To, class From>
__device__ inline To convert(const From& value) {
    return static_cast<To>(value);
}

// In emulation, functions in which lanes of a warp meet pass on where they were called: lanes that meet have to come
// from one place.
#ifdef DACERGNN_EMULATE_CUDA
#define DACERGNN_CALLED_AT , const char *file = __builtin_FILE(), int line = __builtin_LINE()
#define DACERGNN_AT , file, line
#else
#define DACERGNN_CALLED_AT
#define DACERGNN_AT
#endif

// `combine` over the values of all lanes of a full warp, in the same order in every lane.
template <class T, class Combine>
__device__ inline T warp_reduce(T value, Combine combine DACERGNN_CALLED_AT) {
#pragma unroll
    for (int distance = kWarp / 2; distance > 0; distance /= 2)
        value = combine(value, __shfl_xor_sync(kAll, value, distance, kWarp DACERGNN_AT));
    return value;
}
struct Sum {
    template <class T>
    __device__ T operator()(T a, T b) const {
        return a + b;
    }
};
struct Max {
    template <class T>
    __device__ T operator()(T a, T b) const {
        return a < b ? b : a;
    }
};
struct Min {
    template <class T>
    __device__ T operator()(T a, T b) const {
        return b < a ? b : a;
    }
};
template <class T>
__device__ inline T warp_sum(T value DACERGNN_CALLED_AT) {
    return warp_reduce(value, Sum() DACERGNN_AT);
}
template <class T>
__device__ inline T warp_max(T value DACERGNN_CALLED_AT) {
    return warp_reduce(value, Max() DACERGNN_AT);
}
template <class T>
__device__ inline T warp_min(T value DACERGNN_CALLED_AT) {
    return warp_reduce(value, Min() DACERGNN_AT);
}

// N consecutive elements, in registers when all indices are known to the compiler.
template <class T, int N>
struct Vector {
    T element[N];
    __device__ T& operator[](int i) { return element[i]; }
    __device__ const T& operator[](int i) const { return element[i]; }
};

namespace detail {
// The widest word that N elements are made of; void where that is no more than an element.
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
template <class Word>
__device__ inline bool aligned(const void* pointer) {
    return reinterpret_cast<std::uintptr_t>(pointer) % sizeof(Word) == 0;
}
}  // namespace detail

// N elements from `from` on by loads of 16 (or 8) bytes; one by one where its alignment or N do not allow that.
template <int N, class T>
__device__ inline Vector<T, N> load_vector(const T* from) {
    using Word = typename detail::Wide<N * sizeof(T), sizeof(T)>::type;
    if constexpr (!std::is_void_v<Word>) {
        if (detail::aligned<Word>(from)) {
            alignas(16) Vector<T, N> result;
            detail::copy_words<Word, N * sizeof(T)>(&result, from);
            return result;
        }
    }
    Vector<T, N> result;
#pragma unroll
    for (int i = 0; i < N; ++i) result[i] = from[i];
    return result;
}

// The counterpart of `load_vector`.
template <int N, class T>
__device__ inline void store_vector(T* to, const Vector<T, N>& value) {
    using Word = typename detail::Wide<N * sizeof(T), sizeof(T)>::type;
    if constexpr (!std::is_void_v<Word>) {
        if (detail::aligned<Word>(to)) {
            alignas(16) const Vector<T, N> copy = value;
            detail::copy_words<Word, N * sizeof(T)>(to, &copy);
            return;
        }
    }
#pragma unroll
    for (int i = 0; i < N; ++i) to[i] = value[i];
}

// 16 bytes from global to shared memory, both aligned to 16, or zeros unless `valid` (nothing is read then).
// They are there for the thread that asked once `copy_async_wait` returned, for others after a barrier after that.
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

// Ends a group of copies.
__device__ inline void copy_async_commit() {
#ifdef DACERGNN_EMULATE_CUDA
    emulation::copy_async_commit();
#else
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits until all groups but the last `Groups` are there.
template <int Groups>
__device__ inline void copy_async_wait() {
#ifdef DACERGNN_EMULATE_CUDA
    emulation::copy_async_wait(Groups);
#else
    asm volatile("cp.async.wait_group %0;" ::"n"(Groups) : "memory");
#endif
}

}  // namespace dacergnn::cuda
