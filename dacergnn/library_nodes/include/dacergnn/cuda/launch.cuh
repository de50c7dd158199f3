// Launches kernels, which are functors, and tells a thread its place in one.
//
// With DACERGNN_EMULATE_CUDA a C++ compiler builds the same code to run on the processor.
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
inline constexpr std::size_t kMostArguments = 4096;  // bytes that the arguments of a kernel take

// Holds the values that the caller of a program sets before the call. `failure` is the first error since it was last
// null; code that reads it sets it back, and until then nothing is launched. It does not cover later errors on the
// device.
struct Call {
    cudaStream_t stream = nullptr;
    char* workspace = nullptr;
    int multiprocessors = 1;
    const char* failure = nullptr;
    int64_t taken = 0;  // bytes of the workspace
};
inline thread_local Call call;

// Returns scratch memory for `elements` values, which is valid until the next `start` has launched its kernels.
template <class T>
inline T* take(int64_t elements) {
    T* const place = reinterpret_cast<T*>(call.workspace + call.taken);
    call.taken += (elements * static_cast<int64_t>(sizeof(T)) + 255) / 256 * 256;
    return place;
}

// Returns the blocks that a multiprocessor should have room for, if a kernel says so: its threads have the registers
// that this leaves. If it returns 0, the compiler makes room for more blocks if few registers are spilled for it.
template <class Kernel>
constexpr int least_blocks() {
    if constexpr (requires { Kernel::kLeastBlocks; })
        return Kernel::kLeastBlocks;
    else
        return 0;
}

#ifndef DACERGNN_EMULATE_CUDA
template <int Threads, class Kernel>
__global__ void __launch_bounds__(Threads, least_blocks<Kernel>()) run(const __grid_constant__ Kernel kernel) {
    kernel();
}
#endif

// Runs `kernel()` in every thread of `blocks` blocks, on the stream of the call. Errors go to `call.failure`. Kernels
// that `start` launches take the number of their block, which is that of the launch when it is left out.
template <int Threads, class Kernel>
void launch(int64_t blocks, std::size_t shared_bytes, const Kernel& kernel) {
    static_assert(Threads > 0 && Threads <= 1024, "a block has 1 to 1024 threads");
    static_assert(sizeof(Kernel) <= kMostArguments, "arguments of a kernel take up to 4096 bytes");
    if (blocks == 0 || call.failure != nullptr) return;
    if (blocks < 0 || blocks > 0x7fffffff) {
        call.failure = "A kernel needs more than 2^31 - 1 blocks; the graph is too large for one launch.";
        return;
    }
#ifdef DACERGNN_EMULATE_CUDA
    call.failure = emulation::launch(blocks, Threads, shared_bytes, kernel);
#else
    if (shared_bytes > 48 * 1024) {  // at every launch: the limit belongs to the kernel on one device
        const auto limit = cudaFuncAttributeMaxDynamicSharedMemorySize;
        if (cudaFuncSetAttribute(run<Threads, Kernel>, limit, static_cast<int>(shared_bytes)) != cudaSuccess) {
            cudaGetLastError();  // or the next launch would report it
            call.failure =
                "A block of a kernel needs more shared memory than the device has; name the compute capability of the "
                "device in Config(cuda_arch=...), so that kernels are built for it.";
            return;
        }
    }
    run<Threads><<<static_cast<unsigned>(blocks), Threads, shared_bytes, call.stream>>>(kernel);
    const cudaError_t error = cudaGetLastError();
    if (error != cudaSuccess) call.failure = cudaGetErrorString(error);
#endif
}

// Returns the dynamic shared memory of the block, aligned to 16 bytes.
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

}  // namespace dacergnn::cuda
