// What threads of a warp do together, and copies that arrive late.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>

#include "machine.h"

namespace dacergnn::emulation {

// Waits for the lanes of the mask, and gives what the chosen lane brought (of a ballot: the bits of all).
inline std::uint64_t Machine::exchange(const Wait& wait, Position position) {
    const int me = running_, first = me / kLanes * kLanes;
    running().wait = wait;
    running().state = State::waiting;
    if ((wait.mask >> (me - first) & 1) == 0)
        fail("calls " + text(wait) + " with a mask that does not name its own lane", position);
    if (wait.kind == Kind::shuffle && (wait.mask >> wait.source & 1) == 0)
        fail("calls " + text(wait) + " to read from lane " + std::to_string(wait.source) +
                 ", which its mask does not name",
             position);
    bool complete = true;
    for (int l = 0; l < kLanes && complete; ++l)
        if ((wait.mask >> l & 1) != 0)
            complete = first + l < count_ && at(first + l).state == State::waiting &&
                       same_place(at(first + l).wait, wait) && at(first + l).wait.mask == wait.mask;
    if (complete) release_warp(first, wait.mask);
    running().fiber.pause();
    return running().result;
}

inline void Machine::release_warp(int first, unsigned mask) {
    if (at(first + std::countr_zero(mask)).wait.kind == Kind::warp) races_.sync_warp(first, mask);
    const bool descending = coin();
    for (int i = 0; i < kLanes; ++i) {
        const int l = descending ? i : kLanes - 1 - i;
        if ((mask >> l & 1) == 0) continue;
        Thread& thread = at(first + l);
        thread.result = 0;
        if (thread.wait.kind == Kind::ballot) {
            for (int k = 0; k < kLanes; ++k)
                if ((mask >> k & 1) != 0 && at(first + k).wait.value != 0) thread.result |= std::uint64_t(1) << k;
        } else {
            thread.result = at(first + thread.wait.source).wait.value;
        }
        thread.state = State::ready;
        ready_.push_back(first + l);
    }
}

inline void Machine::perform(const Copy& copy) {
    const auto bytes = static_cast<std::size_t>(copy.bytes);
    access(copy.to, bytes, true, copy.position);
    if (copy.valid) access(copy.from, bytes, false, copy.position);
    if (copy.valid)
        std::memcpy(copy.to, copy.from, bytes);
    else
        std::memset(copy.to, 0, bytes);
}

// A copy arrives at once or when it is waited for, as the seed will have it.
inline void Machine::copy_async(const Copy& copy) {
    const auto misaligned = [&](const void* p) {
        return reinterpret_cast<std::uintptr_t>(p) % static_cast<unsigned>(copy.bytes) != 0;
    };
    if (misaligned(copy.to) || (copy.valid && misaligned(copy.from)))
        fail("copies asynchronously from or to an address that is no multiple of " + std::to_string(copy.bytes),
             copy.position);
    if (coin())
        perform(copy);
    else
        running().copies.back().push_back(copy);
}

inline void Machine::copy_async_wait(int groups) {
    auto& copies = running().copies;
    while (static_cast<int>(copies.size()) - 1 > groups) {
        for (const Copy& copy : copies.front()) perform(copy);
        copies.erase(copies.begin());
    }
}

}  // namespace dacergnn::emulation
