// Accesses of threads to the same memory that nothing orders.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "emulation.h"

namespace dacergnn::emulation {

// One access of a thread to a piece of memory. Barriers of the block order memory (there is an epoch from one to the
// next; 0 is none), and __syncwarp among lanes of a warp (each of a lane's begins a new time on its clock). Shuffles
// and votes order nothing.
struct Access {
    std::uint32_t code = 0, epoch = 0, clock = 0;
    std::uint16_t thread = 0, write = 0;
};

class Races {
public:
    // `image`: what addresses of code are relative to.
    void start_launch(const char* image) {
        image_ = image;
        launch_ = ++epoch_;
        blocks_.clear();
        if (pages_.size() > 1000) pages_.clear();
        recent_ = {};
    }
    void start_block(std::int64_t block, int threads) {
        block_ = ++epoch_;
        blocks_.emplace_back(block_, block);
        known_.assign(static_cast<std::size_t>(threads) * kLanes, 0);
        for (int t = 0; t < threads; ++t) known(t, t % kLanes) = 1;
    }
    void barrier() { ++epoch_; }
    void sync_warp(int first, unsigned mask) {
        for (int l = 0; l < kLanes; ++l) {
            std::uint32_t latest = 0;
            for (int k = 0; k < kLanes; ++k)
                if ((mask >> k & 1) != 0) latest = std::max(latest, known(first + k, l));
            for (int k = 0; k < kLanes; ++k)
                if ((mask >> k & 1) != 0) known(first + k, l) = latest + (k == l);
        }
    }

    // Notes an access, and gives an earlier one that conflicts with it, if there is one. Shared memory begins anew
    // with every block.
    const Access* note(int thread, const void* address, std::size_t bytes, bool write, bool shared, const void* code) {
        const Access now{static_cast<std::uint32_t>(static_cast<const char*>(code) - image_), epoch_,
                         known(thread, thread % kLanes), static_cast<std::uint16_t>(thread), write};
        const auto begin = reinterpret_cast<std::uintptr_t>(address);
        for (auto place = begin / kGranule; place <= (begin + bytes - 1) / kGranule; ++place) {
            Cell& cell = page(place / kCells).cells[place % kCells];
            if (!ordered(cell.writer, thread, shared)) return &cell.writer;
            if (write) {
                for (const Access& reader : cell.readers)
                    if (!ordered(reader, thread, shared)) return &reader;
                cell.writer = now;
            } else {  // two readers: one of them is not the next to write
                Access& first = cell.readers[0];
                (ordered(first, thread, shared) ? first : cell.readers[1]) = now;
            }
        }
        return nullptr;
    }
    const void* code(const Access& access) const { return image_ + access.code; }
    std::int64_t block(const Access& access) const {
        auto after = std::upper_bound(blocks_.begin(), blocks_.end(), std::pair(access.epoch, INT64_MAX));
        return (after - 1)->second;
    }

private:
    static constexpr std::uintptr_t kGranule = 2, kCells = 2048, kRecent = 64;
    struct Cell {
        Access writer, readers[2];
    };
    struct Page {
        Cell cells[kCells];
    };
    struct Free {
        void operator()(Page* page) const { std::free(page); }
    };
    using PagePointer = std::unique_ptr<Page, Free>;

    Page& page(std::uintptr_t number) {
        auto& recent = recent_[number % kRecent];
        if (recent.second == nullptr || recent.first != number) {
            PagePointer& page = pages_[number];
            if (page == nullptr) page = PagePointer(static_cast<Page*>(std::calloc(1, sizeof(Page))));  // zeros: none
            recent = {number, page.get()};
        }
        return *recent.second;
    }
    std::uint32_t& known(int thread, int lane) { return known_[static_cast<std::size_t>(thread * kLanes + lane)]; }
    bool ordered(const Access& before, int thread, bool shared) {
        if (before.epoch < block_) return shared || before.epoch < launch_;
        if (before.epoch < epoch_ || before.thread == thread) return true;
        return before.thread / kLanes == thread / kLanes && known(thread, before.thread % kLanes) >= before.clock;
    }

    std::unordered_map<std::uintptr_t, PagePointer> pages_;
    std::array<std::pair<std::uintptr_t, Page*>, kRecent> recent_{};
    std::vector<std::uint32_t> known_;  // [thread, lane of its warp]: the time up to which it knows what that lane did
    std::vector<std::pair<std::uint32_t, std::int64_t>> blocks_;  // first epoch, number
    const char* image_ = nullptr;
    std::uint32_t epoch_ = 0, launch_ = 0, block_ = 0;
};

}  // namespace dacergnn::emulation
