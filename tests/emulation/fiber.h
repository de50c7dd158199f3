// Functions with a stack of their own that stop in the middle and go on later.
#pragma once

#include <dlfcn.h>
#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <new>
#include <string>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

// Stores the callee-saved registers and the stack pointer at *save, and goes on from what was stored at `resume`.
extern "C" void dacergnn_switch_stack(void** save, void* resume);
#ifndef __x86_64__
#error "the emulation switches stacks by a few instructions that are written for x86-64"
#endif
asm(R"(
.text
.p2align 4
.type dacergnn_switch_stack, @function
dacergnn_switch_stack:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size dacergnn_switch_stack, . - dacergnn_switch_stack
)");

namespace dacergnn::emulation {

inline constexpr std::size_t kPage = 4096, kGuard = 16 * kPage;

// Whole pages between others that cannot be touched.
class GuardedMemory {
public:
    explicit GuardedMemory(std::size_t bytes) : bytes_((bytes + kPage - 1) / kPage * kPage) {
        void* all = mmap(nullptr, bytes_ + 2 * kGuard, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (all == MAP_FAILED) throw std::bad_alloc();
        begin_ = static_cast<char*>(all) + kGuard;
        if (bytes_ != 0 && mprotect(begin_, bytes_, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
    }
    GuardedMemory(const GuardedMemory&) = delete;
    GuardedMemory& operator=(const GuardedMemory&) = delete;
    ~GuardedMemory() { munmap(begin_ - kGuard, bytes_ + 2 * kGuard); }
    char* begin() const { return begin_; }
    char* end() const { return begin_ + bytes_; }
    bool guards(const void* address) const {
        const auto a = static_cast<const char*>(address);
        return (a >= begin_ - kGuard && a < begin_) || (a >= end() && a < end() + kGuard);
    }

private:
    std::size_t bytes_;
    char* begin_;
};

// Where a function is, and the frame of its caller (code is compiled with frame pointers).
struct Position {
    const void* code;
    void* const* frame;
};

class Fiber {
public:
    Fiber() : stack_(kStack) {}

    // The next `resume` calls `entry`, which ends in a last `pause` and never returns.
    void start(void (*entry)(), std::size_t index) {
        // Frames of different fibers at different offsets in their pages, or all compete for the same cache lines.
        void** top = reinterpret_cast<void**>(stack_.end() - index % 16 * 256);
        *--top = nullptr;  // where a caller's return address would be
        *--top = reinterpret_cast<void*>(entry);
        for (int callee_saved = 0; callee_saved < 6; ++callee_saved) *--top = nullptr;
        sleeping_ = top;
#ifdef __SANITIZE_ADDRESS__
        fake_ = nullptr;
        __asan_unpoison_memory_region(stack_.begin(), kStack);  // what an abandoned call left there
#endif
    }

    // Runs the fiber until it pauses.
    void resume() {
#ifdef __SANITIZE_ADDRESS__
        void* fake = nullptr;
        __sanitizer_start_switch_fiber(&fake, stack_.begin(), kStack);
#endif
        dacergnn_switch_stack(&scheduler_, sleeping_);
#ifdef __SANITIZE_ADDRESS__
        __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
    }

    // Called by the fiber itself: back to who called `resume`.
    void pause([[maybe_unused]] bool last = false) {
#ifdef __SANITIZE_ADDRESS__
        __sanitizer_start_switch_fiber(last ? nullptr : &fake_, caller_stack_, caller_bytes_);
#endif
        dacergnn_switch_stack(&sleeping_, scheduler_);
        entered();
    }

    // First thing in `entry`.
    void entered() {
#ifdef __SANITIZE_ADDRESS__
        __sanitizer_finish_switch_fiber(fake_, &caller_stack_, &caller_bytes_);
#endif
    }

    Position position() const {
        auto* saved = static_cast<void* const*>(sleeping_);  // 5 registers, the frame pointer, the return address
        return {saved[6], static_cast<void* const*>(saved[5])};
    }

    // Addresses in this library of the calls that led to a position of this fiber: " [0x12 0x345]", innermost first.
    std::string trace(Position position) const {
        Dl_info library;
        std::string text;
        const void* code = position.code;
        for (void* const* frame = position.frame;; frame = static_cast<void* const*>(frame[0])) {
            if (dladdr(code, &library) == 0) break;
            char offset[32];
            // A return address belongs to the next line as often as not.
            const auto distance = static_cast<const char*>(code) - static_cast<const char*>(library.dli_fbase) - 1;
            const char* before = text.empty() ? " [" : " ";
            std::snprintf(offset, sizeof offset, "%s%#zx", before, static_cast<std::size_t>(distance));
            text += offset;
            const auto* low = reinterpret_cast<const char*>(frame);
            if (low < stack_.begin() || low + 16 > stack_.end()) break;
            code = frame[1];
        }
        return text.empty() ? text : text + "]";
    }

    bool owns(const void* address) const { return stack_.begin() <= address && address < stack_.end(); }
    bool overflowed(const void* address) const { return stack_.guards(address); }

private:
    static constexpr std::size_t kStack = 256 * 1024;
    static inline void* scheduler_ = nullptr;
    GuardedMemory stack_;
    void* sleeping_ = nullptr;
#ifdef __SANITIZE_ADDRESS__
    void* fake_ = nullptr;
    static inline const void* caller_stack_ = nullptr;
    static inline std::size_t caller_bytes_ = 0;
#endif
};

}  // namespace dacergnn::emulation
