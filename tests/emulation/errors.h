// What is said of threads that go wrong.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

#include "machine.h"

namespace dacergnn::emulation {

// Why `thread` waits for lanes of its warp in vain.
inline void Machine::explain_warp(int thread) {
    const Wait& wait = at(thread).wait;
    const int first = thread / kLanes * kLanes;
    int other = thread;
    for (int l = 0; l < kLanes; ++l) {
        const int t = first + l;
        if ((wait.mask >> l & 1) == 0 || t == thread) continue;
        const bool here = t < count_ && at(t).state == State::waiting && same_place(at(t).wait, wait) &&
                          at(t).wait.mask == wait.mask;
        if (!here) {
            other = t;
            break;
        }
    }
    failure_ = who(thread) + " " + what(thread) + " for thread " + std::to_string(other) + ", which " + what(other) +
               "; all lanes that a mask names have to take part, with the same mask.";
}

inline std::string Machine::what(int thread) {
    if (thread >= count_) return "does not exist";
    if (at(thread).state == State::left) return "has left the kernel";
    const Wait& wait = at(thread).wait;
    std::string result = "waits in " + text(wait);
    if (wait.kind != Kind::barrier) {
        char mask[32];
        std::snprintf(mask, sizeof mask, " with mask 0x%08x", wait.mask);
        result += mask;
    }
    return result + at(thread).fiber.trace(at(thread).fiber.position());
}

// Called by a signal handler on behalf of the running thread.
inline void Machine::fault(const std::string& text, const void* address, Position position) {
    const char* why = "";
    if (shared_->guards(address)) why = ", just outside shared memory";
    if (running().fiber.overflowed(address)) why = ", as its stack is full";
    fail(text + why, position);
}

// Called before the running thread reads or writes memory.
inline void Machine::access(const void* address, std::size_t bytes, bool write, Position position) {
    if (running().fiber.owns(address) || statics_->beside(address)) return;
    const bool shared = shared_->owns(address) || statics_->owns(address);
    const Access* other = races_.note(running_, address, bytes, write, shared, position.code);
    if (other == nullptr) return;
    fail((write ? "writes what thread " : "reads what thread ") + std::to_string(other->thread) + " of block " +
             std::to_string(races_.block(*other)) + (other->write ? " wrote" : " read") +
             running().fiber.trace({races_.code(*other), nullptr}) + "; no barrier comes in between",
         position);
}

}  // namespace dacergnn::emulation
