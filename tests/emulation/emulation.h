// What code of kernels calls; all of it is in emulation.cpp, which is compiled without the sanitizers of kernels.
#pragma once

#include <cstddef>
#include <cstdint>

struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x = 1, y = 1, z = 1;
};
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

#define __shared__ static thread_local

namespace dacergnn::emulation {

inline constexpr int kLanes = 32;

enum class Kind { barrier, shuffle, ballot, warp };

// What a thread waits for: where, with whom (lanes of its warp), what it brings and from which lane it reads.
struct Wait {
    Kind kind;
    const char* name;
    const char* file;
    int line;
    unsigned mask = 0;
    std::uint64_t value = 0;
    int source = 0;
};

// Runs `call(kernel)` in every thread; the error, or nullptr.
const char* launch(std::int64_t blocks, int threads, std::size_t shared_bytes, const void* kernel,
                   void (*call)(const void* kernel));

// The rest is called by threads of a launch.
void* shared_memory();
void barrier(const Wait& wait);
// Waits for the lanes of the mask, and gives what the chosen lane brought (of a ballot: the bits of all).
std::uint64_t exchange(const Wait& wait);
void copy_async(void* to, const void* from, int bytes, bool valid);
void copy_async_commit();
void copy_async_wait(int groups);
// Ends the launch with an error.
void fail(const char* text);

// Whether accesses to memory are a kernel's own.
extern bool watching;

class Unwatched {
public:
    Unwatched() : before_(watching) { watching = false; }
    Unwatched(const Unwatched&) = delete;
    Unwatched& operator=(const Unwatched&) = delete;
    ~Unwatched() { watching = before_; }

private:
    bool before_;
};

}  // namespace dacergnn::emulation

