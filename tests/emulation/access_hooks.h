// What kernels, compiled with -fsanitize=thread, call before every access to memory.
#pragma once

#include "machine.h"

namespace dacergnn::emulation {

// An access by the code before `code`, which called a function with the given frame.
inline void note_access(const void* address, std::size_t bytes, bool write, const void* code, void* const* frame) {
    const Unwatched unwatched;
    machine.access(address, bytes, write, {code, static_cast<void* const*>(frame[0])});
}

}  // namespace dacergnn::emulation

#define DACERGNN_HOOK(name, bytes, write, ...)                                                       \
    extern "C" void name(__VA_ARGS__) {                                                              \
        if (dacergnn::emulation::watching)                                                           \
            dacergnn::emulation::note_access(address, bytes, write, __builtin_return_address(0),     \
                                             static_cast<void* const*>(__builtin_frame_address(0))); \
    }
#define DACERGNN_HOOKS(bytes)                                                \
    DACERGNN_HOOK(__tsan_read##bytes, bytes, false, void* address)           \
    DACERGNN_HOOK(__tsan_write##bytes, bytes, true, void* address)           \
    DACERGNN_HOOK(__tsan_unaligned_read##bytes, bytes, false, void* address) \
    DACERGNN_HOOK(__tsan_unaligned_write##bytes, bytes, true, void* address)
DACERGNN_HOOKS(1)
DACERGNN_HOOKS(2)
DACERGNN_HOOKS(4)
DACERGNN_HOOKS(8)
DACERGNN_HOOKS(16)
DACERGNN_HOOK(__tsan_read_range, bytes, false, void* address, std::size_t bytes)
DACERGNN_HOOK(__tsan_write_range, bytes, true, void* address, std::size_t bytes)
#undef DACERGNN_HOOKS
#undef DACERGNN_HOOK
extern "C" {
void __tsan_init() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit(void*) {}
// Of static variables that are initialized once.
char __tsan_atomic8_load(const volatile char* address, int) { return *address; }
}
