// Stands in for the CUDA runtime in libraries that are linked without it. The host code of a program then runs on any
// machine and computes its launches as on a device, which are noted down in place of being run.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

namespace dacergnn {

struct RecordedLaunch {
    const char* kernel;  // its name in the code for devices
    std::int64_t ticks, blocks, threads, shared_bytes;  // of the clock before it; dynamic shared memory of a block
};
static std::vector<RecordedLaunch> launches;
static RecordedLaunch next_launch;
static std::int64_t ticks_so_far = 0;

// Returns names by functions of the host. Kernels are registered before variables of the library are constructed.
static std::map<const void*, const char*>& kernel_names() {
    static std::map<const void*, const char*> names;
    return names;
}

}  // namespace dacergnn

// Writes the launches since the last time to `into`, which has room for `most`, and returns how many there were.
extern "C" std::int64_t take_launches(dacergnn::RecordedLaunch* into, std::int64_t most, std::int64_t* ticks) {
    const auto count = static_cast<std::int64_t>(dacergnn::launches.size());
    std::copy_n(dacergnn::launches.begin(), std::min(count, most), into);
    *ticks = dacergnn::ticks_so_far;
    dacergnn::launches.clear();
    dacergnn::ticks_so_far = 0;
    return count;
}

// These are called by the host code that nvcc makes: when a library is loaded, and for each launch.
extern "C" {
void** __cudaRegisterFatBinary(void*) { return nullptr; }
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) { return 0; }
void __cudaRegisterFunction(void**, const char* host, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*,
                            int*) {
    dacergnn::kernel_names()[host] = name;
}
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t) {
#ifndef __CUDA_ARCH__  // devices have a function of this name, too
    dacergnn::next_launch = {nullptr, dacergnn::ticks_so_far, grid.x, block.x, static_cast<std::int64_t>(shared)};
#endif
    return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3*, dim3*, size_t*, void*) { return cudaSuccess; }
cudaError_t cudaLaunchKernel(const void* host, dim3, dim3, void**, size_t, cudaStream_t) {
    dacergnn::next_launch.kernel = dacergnn::kernel_names().at(host);
    dacergnn::launches.push_back(dacergnn::next_launch);
    return cudaSuccess;
}
#if CUDART_VERSION >= 13000
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host) {
    *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(host));
    return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, size_t shared,
                               cudaStream_t stream) {
    return cudaLaunchKernel(kernel, grid, block, arguments, shared, stream);
}
#endif
}

// These are what our own host code calls. They are macros because devices have some of the functions as well.
namespace dacergnn {

inline cudaError_t succeed() { return cudaSuccess; }
inline cudaError_t count_tick() {
    ++ticks_so_far;
    return cudaSuccess;
}

}  // namespace dacergnn

#define cudaFuncSetAttribute(...) dacergnn::succeed()
#define cudaGetLastError() dacergnn::succeed()
#define cudaGetErrorString(error) "no error"
#define cudaEventCreate(event) dacergnn::succeed()
#define cudaEventRecord(event, stream) dacergnn::count_tick()
#define cudaEventSynchronize(event) dacergnn::succeed()
#define cudaEventElapsedTime(...) dacergnn::succeed()
#define cudaEventDestroy(event) dacergnn::succeed()
