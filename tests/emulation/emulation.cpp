#include "emulation.h"

#include <ucontext.h>

#include <cstdint>
#include <cstdio>
#include <string>

#include "access_hooks.h"
#include "cooperation.h"
#include "device_memory.cpp"
#include "errors.h"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

// For who loads the library.
extern "C" void dacergnn_emulation_seed(std::uint64_t seed) { dacergnn::emulation::machine.seed = seed; }
extern "C" void dacergnn_emulation_shared_limit(std::uint64_t bytes) {
    dacergnn::emulation::machine.shared_limit = bytes;
}
static std::int64_t launches = 0;
extern "C" std::int64_t dacergnn_emulation_launches() { return launches; }

namespace dacergnn::emulation {

bool watching = false;

// Of the function that calls it, which has a frame of its own: where it was called.
[[gnu::always_inline]] static inline Position caller() {
    auto* frame = static_cast<void* const*>(__builtin_frame_address(0));
    return {frame[1], static_cast<void* const*>(frame[0])};
}

const char* launch(std::int64_t blocks, int threads, std::size_t shared_bytes, const void* kernel,
                   void (*call)(const void*)) {
    if (shared_bytes > 163 * 1024) return "A block asks for more than 163 KiB of shared memory.";  // of sm_80
    ++launches;
    return machine.launch(blocks, threads, shared_bytes, kernel, call);
}
void* shared_memory() { return machine.shared_memory(); }
void barrier(const Wait& wait) {
    const Unwatched unwatched;
    machine.barrier(wait);
}
std::uint64_t exchange(const Wait& wait) {
    const Unwatched unwatched;
    return machine.exchange(wait, caller());
}
void copy_async(void* to, const void* from, int bytes, bool valid) {
    const Unwatched unwatched;
    machine.copy_async({to, from, bytes, valid, caller()});
}
void copy_async_commit() {
    const Unwatched unwatched;
    machine.copy_async_commit();
}
void copy_async_wait(int groups) {
    const Unwatched unwatched;
    machine.copy_async_wait(groups);
}
void fail(const char* text) {
    const Unwatched unwatched;
    machine.fail(text, caller());
}

void handle_signal(int signal, siginfo_t* info, void* context) {
    if (!machine.inside_thread()) {  // not a kernel's: as if we were not here
        ::signal(signal, SIG_DFL);
        return;
    }
    watching = false;
    const auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
    const Position position{reinterpret_cast<char*>(registers[REG_RIP]) + 1,
                            reinterpret_cast<void* const*>(registers[REG_RBP])};
    if (signal == SIGILL || signal == SIGFPE)
        machine.fault("does what is undefined (index, alignment, shift or divisor out of range)", nullptr, position);
    char text[64];
    std::snprintf(text, sizeof text, "accesses memory at %p, which is not its own", info->si_addr);
    machine.fault(text, info->si_addr, position);
}

}  // namespace dacergnn::emulation
