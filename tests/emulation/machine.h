// Blocks of threads that run as fibers, one at a time, in an order drawn from a seed; what they do wrong is an error.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "races.h"
#include "shared_memory.h"
#include "signals.h"
#include "threads.h"

namespace dacergnn::emulation {

class Machine {
public:
    std::uint64_t seed = 1;
    std::size_t shared_limit = 227 * 1024;  // bytes of shared memory that a block may have

    const char* launch(std::int64_t blocks, int threads, std::size_t shared_bytes, const void* kernel,
                       void (*call)(const void*));
    void barrier(const Wait& wait) {
        running().wait = wait;
        running().state = State::waiting;
        running().fiber.pause();
    }
    std::uint64_t exchange(const Wait& wait, Position position);
    void copy_async(const Copy& copy);
    void copy_async_commit() { running().copies.emplace_back(); }
    void copy_async_wait(int groups);
    void* shared_memory() { return shared_->begin(); }

    // Ends the launch with an error of the running thread.
    void fail(const std::string& text, Position position) {
        failure_ = who(running_) + " " + text + "." + running().fiber.trace(position);
        running().fiber.pause();
    }
    void fault(const std::string& what, const void* address, Position position);
    void access(const void* address, std::size_t bytes, bool write, Position position);
    bool inside_thread() const { return running_ >= 0; }

private:
    void run_block();
    void resume(int thread);
    void release_warp(int first, unsigned mask);
    bool release_barrier();
    void explain_warp(int thread);
    static void entry();
    void perform(const Copy& copy);
    Thread& running() { return *threads_[static_cast<std::size_t>(running_)]; }
    Thread& at(int thread) { return *threads_[static_cast<std::size_t>(thread)]; }
    bool coin() { return seed != 0 && random_() % 2 == 0; }
    std::string who(int thread) const {
        return "Thread " + std::to_string(thread) + " of block " + std::to_string(blockIdx.x);
    }
    std::string what(int thread);
    static std::string text(const Wait& wait) {
        const char* folder = std::strrchr(wait.file, '/');
        const std::string file = folder ? folder + 1 : wait.file;
        return std::string(wait.name) + " (" + file + ":" + std::to_string(wait.line) + ")";
    }
    static bool same_place(const Wait& a, const Wait& b) {
        return a.kind == b.kind && a.line == b.line && (a.file == b.file || std::strcmp(a.file, b.file) == 0);
    }

    std::mutex mutex_;
    std::vector<std::unique_ptr<Thread>> threads_;
    std::vector<int> ready_;
    std::unique_ptr<SharedMemory> shared_;
    std::unique_ptr<StaticSharedMemory> statics_;
    Races races_;
    std::mt19937_64 random_;
    std::string failure_;
    std::deque<std::string> failures_;  // kept, for who launched will read them later
    const void* kernel_ = nullptr;
    void (*call_)(const void*) = nullptr;
    int count_ = 0, running_ = -1;
};
inline Machine machine;

inline void Machine::entry() {
    machine.running().fiber.entered();
    watching = true;
    machine.call_(machine.kernel_);
    watching = false;
    machine.running().state = State::left;
    machine.running().fiber.pause(true);
}

inline const char* Machine::launch(std::int64_t blocks, int threads, std::size_t shared_bytes, const void* kernel,
                                   void (*call)(const void*)) {
    const std::lock_guard lock(mutex_);
    if (shared_bytes > shared_limit) {
        failures_.push_back("A block asks for " + std::to_string(shared_bytes) + " bytes of shared memory, and may have " +
                            std::to_string(shared_limit) + ".");
        return failures_.back().c_str();
    }
    random_.seed(seed);
    failure_.clear();
    count_ = threads;
    kernel_ = kernel;
    call_ = call;
    while (threads_.size() < static_cast<std::size_t>(threads)) threads_.push_back(std::make_unique<Thread>());
    blockDim = {static_cast<unsigned>(threads), 1, 1};
    gridDim = {static_cast<unsigned>(blocks), 1, 1};
    // Block i * step + shift (modulo blocks): an order for every seed.
    std::int64_t step = 1, shift = 0;
    if (seed != 0) {
        shift = static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(blocks));
        do step = 1 + static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(blocks));
        while (std::gcd(step, blocks) != 1);
    }
    shared_ = std::make_unique<SharedMemory>(shared_bytes, seed);
    statics_ = std::make_unique<StaticSharedMemory>(seed);
    races_.start_launch(statics_->image());
    {
        const Signals signals;
        for (std::int64_t i = 0; i < blocks && failure_.empty(); ++i) {
            blockIdx = {static_cast<unsigned>((i * step + shift) % blocks), 0, 0};
            shared_->poison();
            statics_->poison();
            run_block();
            if (failure_.empty() && !shared_->intact())
                failure_ = "Block " + std::to_string(blockIdx.x) + " wrote beyond its " +
                           std::to_string(shared_bytes) + " bytes of shared memory.";
        }
    }
    statics_.reset();
    shared_.reset();
    threads_.clear();  // every library has its own; kept, their stacks use up the mappings that a process may have
    if (failure_.empty()) return nullptr;
    failures_.push_back(failure_);
    return failures_.back().c_str();
}

inline void Machine::run_block() {
    races_.start_block(blockIdx.x, count_);
    for (int t = 0; t < count_; ++t) {
        at(t).fiber.start(entry, static_cast<std::size_t>(t));
        at(t).state = State::ready;
        at(t).copies.assign(1, {});
    }
    do {  // from barrier to barrier
        ready_.clear();
        for (int t = count_ - 1; t >= 0; --t)
            if (at(t).state == State::ready) ready_.push_back(t);
        if (seed != 0) std::shuffle(ready_.begin(), ready_.end(), random_);
        const bool one_warp_ahead = seed == 0 || coin();
        while (!ready_.empty() && failure_.empty()) {
            if (!one_warp_ahead) std::swap(ready_[random_() % ready_.size()], ready_.back());
            const int next = ready_.back();
            ready_.pop_back();
            resume(next);
        }
    } while (failure_.empty() && release_barrier());
}

inline void Machine::resume(int thread) {
    running_ = thread;
    threadIdx = {static_cast<unsigned>(thread), 0, 0};
    at(thread).fiber.resume();
    watching = false;
    running_ = -1;
}

// Once no thread can go on: whether some wait at one barrier, and may now. All that waits otherwise is an error.
inline bool Machine::release_barrier() {
    int waiting = -1, left = -1;
    for (int t = 0; t < count_; ++t) {
        if (at(t).state == State::left) {
            left = t;
        } else if (at(t).wait.kind != Kind::barrier) {
            explain_warp(t);
            return false;
        } else if (waiting < 0) {
            waiting = t;
        } else if (!same_place(at(t).wait, at(waiting).wait)) {
            failure_ = who(waiting) + " " + what(waiting) + ", but thread " + std::to_string(t) + " " + what(t) +
                       "; all threads of a block have to come to the same barrier.";
            return false;
        }
    }
    if (waiting < 0) return false;
    if (left >= 0) {
        failure_ = who(waiting) + " " + what(waiting) + ", but thread " + std::to_string(left) + " " + what(left) +
                   "; all threads of a block have to come to the barrier.";
        return false;
    }
    for (int t = 0; t < count_; ++t) at(t).state = State::ready;
    races_.barrier();
    return true;
}

}  // namespace dacergnn::emulation
