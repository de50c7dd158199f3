// Runs loops over groups of rows in other sparse formats than compressed rows, shared among OpenMP threads. No result
// depends on the number of threads.
#pragma once

#include "parallel.h"

namespace dacergnn {

// Holds pointers to the rows of groups `first`, `first` + 1, ... of a tile.
struct Starts {
    const int64_t* from_first;
    int64_t first;
    int64_t operator[](int64_t group) const { return from_first[group - first]; }
};

// Returns pointers to the rows of groups first..last among the rows begin..end of the ascending list `groups`. They are
// in scratch memory of the calling thread.
template <class Tag, class I>
inline Starts count_starts(const I* groups, int64_t begin, int64_t end, int64_t first, int64_t last) {
    int64_t* const starts = scratch<Tag, int64_t>(last - first + 1);
    int64_t next = 0;
    for (int64_t p = begin; p < end; ++p)
        for (const int64_t group = groups[p] - first; next <= group; ++next) starts[next] = p;
    std::fill(starts + next, starts + (last - first + 1), end);
    return {starts, first};
}

struct TileStarts;
struct HubBounds;

// Runs over COO: threads share out equal ranges, of at most `tile` rows, of the list `groups` [rows]. It calls
// f(first, last, starts) for the groups 0..n that lie within one range. Groups that a border cuts follow, each by
// itself. Of these, hubs have more than `hub_rows` rows (0: a 64th of all, or some thousands); the calling thread calls
// hub(g, g + 1, starts) for them. No range is longer than this limit, so a border cuts every hub.
template <class I, class F, class Hub>
inline void parallel_rows(const I* groups, int64_t rows, int64_t n, int64_t work_per_row, int64_t tile,
                          int64_t hub_rows, F f, Hub hub) {
    if (n <= 0) return;
    const int64_t limit = hub_rows > 0 ? sensible(hub_rows) : std::clamp(rows / kHubs, kSplitRows, kHubRows);
    // Chunks are the same for any number of threads.
    const int64_t chunk = std::min({sensible(tile), limit, std::max(kSplitRows / 4, rows / kHubs)});
    const int64_t chunks = std::max<int64_t>(1, (rows + chunk - 1) / chunk);
    const bool serial = (rows + n) * std::max<int64_t>(work_per_row, 1) < kSerialWork;
    const auto is_cut = [=](int64_t c) {
        return c > 0 && c < chunks && groups[c * chunk] == groups[c * chunk - 1];
    };
    run_blocks(chunks, serial, [=](int64_t c) mutable {
        int64_t begin = c * chunk, end = std::min(rows, begin + chunk);
        // Groups without rows belong to the range of the next row, at the end of the list to the last range.
        const int64_t first = c == 0 ? 0 : groups[begin - 1] + int64_t{1};
        const int64_t last = c == chunks - 1 ? n : groups[end - 1] + int64_t{!is_cut(c + 1)};
        while (begin < end && groups[begin] < first) ++begin;
        while (begin < end && groups[end - 1] >= last) --end;
        if (first < last) f(first, last, count_starts<TileStarts>(groups, begin, end, first, last));
    });
    // Finds the rows of the group that the border before chunk c cuts, if no earlier border cuts it.
    const auto whole = [=](int64_t c, int64_t (&bounds)[2]) {
        if (!is_cut(c)) return false;
        const I group = groups[c * chunk];
        if (is_cut(c - 1) && groups[(c - 1) * chunk] == group) return false;
        bounds[0] = std::lower_bound(groups + (c - 1) * chunk, groups + c * chunk, group) - groups;
        bounds[1] = std::upper_bound(groups + c * chunk, groups + rows, group) - groups;
        return true;
    };
    int64_t* const hubs = scratch<HubBounds, int64_t>(2 * (rows / (limit + 1)) + 2);
    int64_t count = 0;
    run_blocks(chunks, serial, [=, &count](int64_t c) mutable {
        int64_t bounds[2];
        if (!whole(c, bounds)) return;
        const int64_t group = groups[c * chunk];
        if (bounds[1] - bounds[0] <= limit) {
            f(group, group + 1, Starts{bounds, group});
            return;
        }
        int64_t k;
#pragma omp atomic capture
        k = count++;
        std::copy_n(bounds, 2, hubs + 2 * k);
    });
    for (int64_t k = 0; k < count; ++k) {
        const int64_t group = groups[hubs[2 * k]];
        hub(group, group + 1, Starts{hubs + 2 * k, group});
    }
}

// Runs over ELLPACK: calls f(first, last) for equal ranges of the groups 0..n, of about `tile` slots of a matrix n by
// `width`.
template <class F>
inline void parallel_slots(
    int64_t n, int64_t width, int64_t rows, int64_t work_per_row, int64_t tile, int64_t chunks, F f) {
    const int64_t step = std::max<int64_t>(1, sensible(tile) / std::max<int64_t>(width, 1));
    const int64_t work = (rows + n) / std::max<int64_t>(n, 1) * work_per_row;
    parallel_ranges(n, work, chunks, [=](int64_t begin, int64_t end) mutable {
        for (int64_t first = begin; first < end; first += step) f(first, std::min(end, first + step));
    });
}

// Runs over the hybrid format: calls f(first, last, rest) for tiles of the groups 0..n by the pointers `ptr` to their
// first rows. All other rows are behind these in the list `groups` [rows], and `rest` holds pointers to them.
template <class I, class F>
inline void parallel_hybrid(
    const I* ptr, const I* groups, int64_t rows, int64_t n, int64_t work_per_row, int64_t tile, int64_t chunks, F f) {
    parallel_tiles(ptr, n, work_per_row, tile, chunks, [=](int64_t first, int64_t last) mutable {
        const I* const regular = groups + ptr[n];
        const int64_t begin = std::lower_bound(regular, groups + rows, static_cast<I>(first)) - groups;
        const int64_t end = std::lower_bound(groups + begin, groups + rows, static_cast<I>(last)) - groups;
        f(first, last, count_starts<TileStarts>(groups, begin, end, first, last));
    });
}

// Runs over CSC: calls f(first, last) for as many ranges of the groups 0..n as there are threads, since each reads all
// the rows.
template <class F>
inline void parallel_targets(int64_t n, int64_t rows, int64_t work_per_row, F f) {
    if (n <= 0) return;
    const bool serial = (rows + n) * std::max<int64_t>(work_per_row, 1) < kSerialWork;
    const int64_t blocks = serial ? 1 : std::min(n, thread_count());
    run_blocks(blocks, serial, [=](int64_t b) mutable { f(n * b / blocks, n * (b + 1) / blocks); });
}

}  // namespace dacergnn
