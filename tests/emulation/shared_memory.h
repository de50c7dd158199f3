// The shared memory of a block: exactly as large as asked for, and full of rubbish when a block starts.
#pragma once

#include <link.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "fiber.h"

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
        : memory_(bytes),
          begin_(memory_.end() - (bytes + 15) / 16 * 16),
          end_(begin_ + bytes),
          rubbish_(rubbish(seed)) {}

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
    bool owns(const void* address) const { return begin_ <= address && address < end_; }

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
        marker_ = 1;  // a thread's first use makes its copy of them
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
    bool owns(const void* address) const { return begin_ <= address && address < begin_ + bytes_; }
    const char* image() const { return image_; }
    // Whether it is another variable, or a constant, of this library.
    bool beside(const void* address) const { return image_ <= address && address < image_end_; }

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
            statics->find_image(info);
            return 1;
        }
        return 0;
    }
    void find_image(const dl_phdr_info* info) {
        image_ = image_end_ = reinterpret_cast<const char*>(info->dlpi_addr);
        for (int i = 0; i < info->dlpi_phnum; ++i)
            if (info->dlpi_phdr[i].p_type == PT_LOAD)
                image_end_ = std::max(image_end_, image_ + info->dlpi_phdr[i].p_vaddr + info->dlpi_phdr[i].p_memsz);
    }

    char* begin_ = nullptr;
    std::size_t bytes_ = 0;
    const char *image_ = nullptr, *image_end_ = nullptr;
    std::vector<char> saved_;
    int rubbish_;
};

}  // namespace dacergnn::emulation
