// Measures groups of operators by events in their stream, in builds that record one before and behind each of them
// (`runtime/clocks.py`).
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "launch.cuh"

namespace dacergnn {

struct Tick {
    std::size_t k, before;  // the number of the group that ends here, or 0; the place of the tick before it in the run
    cudaEvent_t event;
};

// Everything here is static: libraries in one process would share the variables of inline functions.
static std::mutex tick_lock;
static std::vector<Tick> ticks;  // of all runs since they were read

// Is called by each run before its first group, with 0, and behind its k-th group, with k.
static void tick(std::size_t k) {
    static thread_local std::size_t before = 0;
    cudaEvent_t event = nullptr;
    cudaError_t error = cudaEventCreate(&event);
    if (error == cudaSuccess) error = cudaEventRecord(event, cuda::call.stream);
    if (error != cudaSuccess && cuda::call.failure == nullptr) cuda::call.failure = cudaGetErrorString(error);
    const std::lock_guard<std::mutex> guard(tick_lock);
    ticks.push_back({k, before, event});
    before = ticks.size() - 1;
}

}  // namespace dacergnn

// Waits for all runs, writes the seconds of `count` groups in them, and forgets these; returns an error message, or
// null.
extern "C" const char* read_ticks(double* seconds, std::int64_t count) {
    const std::lock_guard<std::mutex> guard(dacergnn::tick_lock);
    const auto& ticks = dacergnn::ticks;
    cudaError_t error = cudaSuccess;
    for (std::int64_t k = 0; k < count; ++k) seconds[k] = 0;
    for (const auto& [k, before, event] : ticks) {
        float milliseconds = 0;
        if (error == cudaSuccess) error = cudaEventSynchronize(event);
        if (k == 0 || error != cudaSuccess) continue;
        error = cudaEventElapsedTime(&milliseconds, ticks[before].event, event);
        seconds[k - 1] += 1e-3 * milliseconds;
    }
    for (const auto& tick : ticks) cudaEventDestroy(tick.event);
    dacergnn::ticks.clear();
    return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}
