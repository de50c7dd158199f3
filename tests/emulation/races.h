// Accesses of threads to the same memory that nothing orders: found where the compiler calls us at every access.
//
// That is what -fsanitize=thread makes it do; its library is not linked, the functions it would call are below.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace dacergnn::emulation {

// One thread's last access to a piece of memory of kGranule bytes. Memory is ordered by barriers of the block
// (`epoch`), and among lanes of a warp by __syncwarp (`clock`); shuffles and votes order none.
struct Access {
    const void* code = nullptr;
    std::int64_t block = -1;
    int thread = 0;
    bool write = false;
    std::uint32_t epoch = 0, clock = 0;
};

class Races {
public:
    static constexpr std::uintptr_t kGranule = 2;
    static constexpr int kLanes = 32;

    // Whether a kernel's own code runs.
    static inline bool watching = false;

    void start_launch() { memory_.clear(); }
    void start_block(std::int64_t block, int threads) {
        block_ = block;
        ++epoch_;
        known_.assign(static_cast<std::size_t>(threads) * kLanes, 0);
        for (int t = 0; t < threads; ++t) ++known(t, t % kLanes);
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
        const Access now{code, block_, thread, write, epoch_, known(thread, thread % kLanes)};
        const auto begin = reinterpret_cast<std::uintptr_t>(address);
        for (auto place = begin / kGranule; place <= (begin + bytes - 1) / kGranule; ++place) {
            Cell& cell = memory_[place];
            if (shared && cell.block != block_) cell = {};
            cell.block = block_;
            if (!ordered(cell.writer, thread)) return conflict(cell.writer);
            if (write) {
                for (const Access& reader : cell.readers)
                    if (!ordered(reader, thread)) return conflict(reader);
                cell.writer = now;
            } else {  // two readers: one of them is not the next to write
                Access& first = cell.readers[0];
                (ordered(first, thread) ? first : cell.readers[1]) = now;
            }
        }
        return nullptr;
    }

private:
    struct Cell {
        std::int64_t block = -1;
        Access writer, readers[2];
    };

    std::uint32_t& known(int thread, int lane) { return known_[static_cast<std::size_t>(thread * kLanes + lane)]; }
    bool ordered(const Access& before, int thread) {
        if (before.block < 0) return true;
        if (before.block != block_) return false;
        if (before.thread == thread || before.epoch < epoch_) return true;
        return before.thread / kLanes == thread / kLanes && known(thread, before.thread % kLanes) >= before.clock;
    }
    const Access* conflict(const Access& access) {
        found_ = access;
        return &found_;
    }

    std::unordered_map<std::uintptr_t, Cell> memory_;
    std::vector<std::uint32_t> known_;  // [thread, lane of its warp]: the clock up to which it knows what that lane did
    std::int64_t block_ = 0;
    std::uint32_t epoch_ = 0;
    Access found_;
};

// While it lives, accesses are the emulation's own.
class Unwatched {
public:
    Unwatched() : before_(Races::watching) { Races::watching = false; }
    Unwatched(const Unwatched&) = delete;
    Unwatched& operator=(const Unwatched&) = delete;
    ~Unwatched() { Races::watching = before_; }

private:
    bool before_;
};

}  // namespace dacergnn::emulation
