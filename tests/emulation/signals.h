// Faults of emulated threads (memory that is not theirs, undefined behaviour that was compiled to a trap) as errors.
#pragma once

#include <signal.h>

#include <array>
#include <cstddef>
#include <vector>

namespace dacergnn::emulation {

void handle_signal(int signal, siginfo_t* info, void* context);

// While it lives, faults call `handle_signal`, on a stack of its own.
class Signals {
public:
#ifdef __SANITIZE_ADDRESS__
    Signals() = default;  // the sanitizer reports them
    ~Signals() {}
#else
    Signals() : stack_(64 * 1024) {
        stack_t own{};
        own.ss_sp = stack_.data();
        own.ss_size = stack_.size();
        sigaltstack(&own, &old_stack_);
        struct sigaction action {};
        action.sa_sigaction = handle_signal;
        action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
        for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &action, &old_[i]);
    }
    ~Signals() {
        for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &old_[i], nullptr);
        sigaltstack(&old_stack_, nullptr);
    }
#endif
    Signals(const Signals&) = delete;
    Signals& operator=(const Signals&) = delete;

private:
    static constexpr std::array kSignals = {SIGSEGV, SIGBUS, SIGILL, SIGFPE};
    std::vector<char> stack_;
    stack_t old_stack_{};
    std::array<struct sigaction, kSignals.size()> old_{};
};

}  // namespace dacergnn::emulation
