// Threads of a block, and what they wait for.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "fiber.h"

struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x = 1, y = 1, z = 1;
};
inline uint3 threadIdx, blockIdx;
inline dim3 blockDim, gridDim;

namespace dacergnn::emulation {

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

    std::string text() const {
        const char* folder = std::strrchr(file, '/');
        return std::string(name) + " (" + (folder ? folder + 1 : file) + ":" + std::to_string(line) + ")";
    }
    bool same_place(const Wait& other) const {
        return kind == other.kind && line == other.line && std::strcmp(file, other.file) == 0;
    }
};

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
