// The shared memory of a block: exactly as large as asked for, and full of rubbish when a block starts.
#pragma once

#include <link.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "fiber.h"

#define __shared__ static thread_local

namespace dacergnn::emulation {

// NaN or -1, the largest or the smallest numbers: what a sum, a maximum, a minimum or an index cannot hide.
inline int rubbish(std::uint64_t seed) {
    constexpr int kinds[] = {0xff, 0x7f, 0xfe};
    return kinds[seed % 3];
}

// Dynamic shared memory. It ends where memory ends that may be touched.
class SharedMemory {
public:
    SharedMemory(std::size_t bytes, std::uint64_t seed)
        : memory_(bytes), begin_(memory_.end() - (bytes + 15) / 16 * 16), end_(begin_ + bytes), rubbish_(rubbish(seed)) {}

    void* begin() const { return begin_; }
    void poison() const {
        std::memset(memory_.begin(), rubbish_, static_cast<std::size_t>(memory_.end() - memory_.begin()));
    }
    // Whether what lies around it in the same pages is as it was.
    bool intact() const {
        for (const char* p = memory_.begin(); p != begin_; ++p)
            if (*p != static_cast<char>(rubbish_)) return false;
        for (const char* p = end_; p != memory_.end(); ++p)
            if (*p != static_cast<char>(rubbish_)) return false;
        return true;
    }
    bool guards(const void* address) const { return memory_.guards(address); }

private:
    GuardedMemory memory_;
    char *begin_, *end_;
    int rubbish_;
};

// Arrays declared __shared__ are the thread-local variables of this library, which lie in one piece. Other
// thread-local variables among them get their values back in the end.
class StaticSharedMemory {
public:
    explicit StaticSharedMemory(std::uint64_t seed) : rubbish_(rubbish(seed)) {
        dl_iterate_phdr(find, this);
        saved_.assign(begin_, begin_ + bytes_);
    }
    StaticSharedMemory(const StaticSharedMemory&) = delete;
    StaticSharedMemory& operator=(const StaticSharedMemory&) = delete;
    ~StaticSharedMemory() {
        if (bytes_ != 0) std::memcpy(begin_, saved_.data(), bytes_);
    }
    void poison() const {
        if (bytes_ != 0) std::memset(begin_, rubbish_, bytes_);
    }

private:
    static inline thread_local volatile char marker_ = 0;

    static int find(dl_phdr_info* info, std::size_t, void* self) {
        auto* statics = static_cast<StaticSharedMemory*>(self);
        auto* begin = static_cast<char*>(info->dlpi_tls_data);
        const auto* marker = const_cast<const char*>(&marker_);
        for (int i = 0; begin != nullptr && i < info->dlpi_phnum; ++i) {
            const ElfW(Phdr) & part = info->dlpi_phdr[i];
            if (part.p_type != PT_TLS || marker < begin || marker >= begin + part.p_memsz) continue;
            statics->begin_ = begin;
            statics->bytes_ = part.p_memsz;
            return 1;
        }
        return 0;
    }

    char* begin_ = nullptr;
    std::size_t bytes_ = 0;
    std::vector<char> saved_;
    int rubbish_;
};

}  // namespace dacergnn::emulation
