// Threads of a block, and copies that they wait for.
#pragma once

#include <cstdint>
#include <vector>

#include "emulation.h"
#include "fiber.h"

namespace dacergnn::emulation {

struct Copy {
    void* to;
    const void* from;
    int bytes;
    bool valid;
    Position position;
};

enum class State { ready, waiting, left };

struct Thread {
    Fiber fiber;
    State state = State::ready;
    Wait wait{};
    std::uint64_t result = 0;
    std::vector<std::vector<Copy>> copies;  // groups; the last is open
};

}  // namespace dacergnn::emulation
