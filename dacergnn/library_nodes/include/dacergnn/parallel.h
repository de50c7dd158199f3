// Runs loops over rows and groups of rows, shared among OpenMP threads. No result depends on the number of threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <type_traits>

#ifdef _OPENMP
#include <omp.h>
#endif

namespace dacergnn {

// Lists of rows are pointers to indices; nullptr stands for the list 0, 1, 2, ..., which the compiler then knows.
template <class List>
inline constexpr bool is_identity = std::is_null_pointer_v<List>;

template <class List>
inline int64_t at(const List list, int64_t i) {
    if constexpr (is_identity<List>)
        return i;
    else
        return static_cast<int64_t>(list[i]);
}

// Loops with less work than this (in simple element operations) run on the calling thread: entering a parallel
// region costs a microsecond or more.
inline constexpr int64_t kSerialWork = 16384;

inline int64_t thread_count() {
#ifdef _OPENMP
    return omp_in_parallel() ? 1 : omp_get_max_threads();
#else
    return 1;
#endif
}

// Returns a buffer of the calling thread, aligned to 64 bytes, which only grows. Every Tag has a buffer of its own; a
// pointer is valid until the next call with the same Tag on the same thread.
template <class Tag, class T>
inline T* scratch(int64_t elements) {
    struct Buffer {
        void* data = nullptr;
        std::size_t bytes = 0;
        ~Buffer() { std::free(data); }
    };
    static thread_local Buffer buffer;
    const std::size_t bytes = (static_cast<std::size_t>(elements) * sizeof(T) + 63) / 64 * 64;
    if (bytes > buffer.bytes) {
        std::free(buffer.data);
        buffer.bytes = 0;
        buffer.data = std::aligned_alloc(64, bytes);
        if (buffer.data == nullptr) throw std::bad_alloc();
        buffer.bytes = bytes;
    }
    return static_cast<T*>(buffer.data);
}

// Runs a block. Benchmarks define it to measure each.
#if !defined(DACERGNN_RUN_BLOCK)
#define DACERGNN_RUN_BLOCK(block, blocks, run) run
#endif

// Calls worker(block) for the blocks that no other thread has taken, until none is left.
template <class Worker>
void take_blocks(const void* worker, int64_t* taken, int64_t blocks) {
    Worker mine = *static_cast<const Worker*>(worker);
    for (;;) {
        int64_t block;
#pragma omp atomic capture
        block = (*taken)++;
        if (block >= blocks) return;
        DACERGNN_RUN_BLOCK(block, blocks, mine(block));
    }
}

// Has all threads, or the calling one, take blocks of a worker. Compilers make it once for all workers, which it knows by
// address only. No exception may leave a thread of OpenMP; the only one that there is, for missing memory, is thrown
// again by the calling thread.
__attribute__((noinline)) inline void share_blocks(int64_t blocks, bool serial, const void* worker,
                                                   void (*take)(const void*, int64_t*, int64_t)) {
    alignas(64) int64_t taken = 0;
#ifdef _OPENMP
    if (!serial && blocks > 1 && thread_count() > 1) {
        bool has_memory = true;
#pragma omp parallel
        try {
            take(worker, &taken, blocks);
        } catch (const std::bad_alloc&) {
#pragma omp atomic write
            has_memory = false;
        }
        if (!has_memory) throw std::bad_alloc();
        return;
    }
#endif
    take(worker, &taken, blocks);
}

// Calls worker(block) for every block; threads take blocks one by one in ascending order. Each thread works on its own
// copy of `worker`, whose members are then state of the thread.
template <class Worker>
inline void run_blocks(int64_t blocks, bool serial, const Worker& worker) {
    share_blocks(blocks, serial, &worker, take_blocks<Worker>);
}

// Blocks of a loop per thread.
inline constexpr int64_t kChunks = 16;

// Limits a number of rows or blocks that a schedule asks for: at least 1, and too small for overflows.
inline int64_t sensible(int64_t asked) { return std::clamp<int64_t>(asked, 1, int64_t{1} << 40); }

// Least work of a block: it takes a microsecond or more, and to find its rows and take it a tenth of that.
inline constexpr int64_t kBlockWork = 16384;

// Returns the number of blocks for `work`: `chunks` per thread for a dynamic balance, but each with enough work.
inline int64_t block_count(int64_t items, int64_t work, int64_t chunks = kChunks) {
    const int64_t most = sensible(chunks) * thread_count();
    return std::max<int64_t>(1, std::min({items, work / kBlockWork, most}));
}

// Calls f(i) for i in 0..n.
template <class F>
inline void parallel_for(int64_t n, int64_t work_per_item, F f) {
    const int64_t work = n * std::max<int64_t>(work_per_item, 1);
    const bool serial = work < kSerialWork || thread_count() == 1;
    const int64_t blocks = serial ? 1 : block_count(n, work), size = (n + blocks - 1) / blocks;
    run_blocks(blocks, serial, [=](int64_t b) mutable {
        const int64_t end = std::min(n, (b + 1) * size);
        for (int64_t i = b * size; i < end; ++i) f(i);
    });
}

// Returns the work of the groups before `group`: 1 for each group, and `row_work` for each of its rows.
template <class I>
inline int64_t work_before(const I* ptr, int64_t group, int64_t row_work) {
    return (static_cast<int64_t>(ptr[group]) - static_cast<int64_t>(ptr[0])) * row_work + group;
}

// Returns the first group of block b when groups are cut into `blocks` contiguous ranges of about equal work.
template <class I>
__attribute__((noinline)) int64_t balanced_cut(const I* ptr, int64_t n, int64_t b, int64_t blocks, int64_t row_work = 1) {
    const int64_t total = work_before(ptr, n, row_work), goal = total / blocks * b + total % blocks * b / blocks;
    int64_t low = 0, high = n;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (work_before(ptr, middle, row_work) < goal)
            low = middle + 1;
        else
            high = middle;
    }
    return b == blocks ? n : low;
}

struct BlockTable;

// Returns the blocks of `balanced_cut` in the order in which threads take them. Those that a long group makes twice as
// large as the mean come first: a thread that took one last would keep the others waiting.
template <class I>
__attribute__((noinline)) const int64_t* largest_first(const I* ptr, int64_t n, int64_t blocks, int64_t row_work) {
    int64_t* const order = scratch<BlockTable, int64_t>(2 * blocks + 1);
    int64_t* const before = order + blocks;
    parallel_for(blocks + 1, 512, [=](int64_t b) {
        before[b] = work_before(ptr, balanced_cut(ptr, n, b, blocks, row_work), row_work);
    });
    const int64_t large = 2 * (before[blocks] / blocks);
    int64_t count = 0;
    for (int comes_first = 1; comes_first >= 0; --comes_first)
        for (int64_t b = 0; b < blocks; ++b)
            if ((before[b + 1] - before[b] > large) == (comes_first == 1)) order[count++] = b;
    return order;
}

// Calls f(first, last, block) for `blocks` contiguous ranges of the groups 0..n with about equal work.
template <class I, class F>
inline void run_ranges(const I* ptr, int64_t n, int64_t blocks, bool serial, F f, int64_t row_work = 1) {
    constexpr int64_t kFew = 64;  // with so few, the largest group that is no hub is short beside the work of a thread
    const int64_t* const order = blocks > kFew ? largest_first(ptr, n, blocks, row_work) : nullptr;
    run_blocks(blocks, serial, [=](int64_t i) mutable {
        const int64_t b = order != nullptr ? order[i] : i;
        f(balanced_cut(ptr, n, b, blocks, row_work), balanced_cut(ptr, n, b + 1, blocks, row_work), b);
    });
}

// Calls f(group, begin, end) for every group 0..n with its rows ptr[group] .. ptr[group + 1]. No group is divided.
template <class I, class F>
inline void parallel_groups(const I* ptr, int64_t n, int64_t work_per_row, F f) {
    if (n <= 0) return;
    const int64_t total = static_cast<int64_t>(ptr[n]) - static_cast<int64_t>(ptr[0]) + n;
    const int64_t work = total * std::max<int64_t>(work_per_row, 1);
    const bool serial = work < kSerialWork || thread_count() == 1;
    const int64_t blocks = serial ? 1 : block_count(n, work);
    run_ranges(ptr, n, blocks, serial, [=](int64_t g, int64_t end, int64_t) mutable {
        for (; g < end; ++g) f(g, static_cast<int64_t>(ptr[g]), static_cast<int64_t>(ptr[g + 1]));
    });
}

// Calls f(first, last) for ranges of groups that together cover 0..n: tiles of at most `tile` rows (one longer group is
// a tile of its own). Threads share the tiles out by their rows, in `chunks` blocks each.
template <class I, class F>
inline void parallel_tiles(const I* ptr, int64_t n, int64_t work_per_row, int64_t tile, int64_t chunks, F f) {
    if (n <= 0) return;
    const int64_t total = static_cast<int64_t>(ptr[n]) - static_cast<int64_t>(ptr[0]) + n;
    const int64_t work = total * std::max<int64_t>(work_per_row, 1);
    const bool serial = work < kSerialWork || thread_count() == 1;
    const int64_t blocks = serial ? 1 : block_count(n, work, chunks);
    run_ranges(ptr, n, blocks, serial, [=](int64_t first, int64_t end, int64_t) mutable {
        while (first < end) {
            int64_t last = first + 1;
            while (last < end && last - first < tile && ptr[last + 1] - ptr[first] <= tile) ++last;
            f(first, last);
            first = last;
        }
    });
}

// Groups of more rows than this are hubs, which all threads share: more than a 64th of all rows. So there are fewer
// than 64 hubs, other groups do not keep threads waiting, and hubs are worth the parallel regions.
inline constexpr int64_t kHubRows = 4096, kHubs = 64;

inline int64_t longest_undivided(int64_t total) { return std::max(total / kHubs, kHubRows); }

struct HubTable;

// Does the same, and calls hub(g, g + 1) for each group g of more than `hub_rows` rows (0: `longest_undivided`), on
// the calling thread once all others are done. Nothing else decides which groups are hubs, so sums depend on no more.
template <class I, class F, class Hub>
inline void parallel_tiles(const I* ptr, int64_t n, int64_t work_per_row, int64_t tile, int64_t chunks,
                           int64_t hub_rows, F f, Hub hub) {
    if (n <= 0) return;
    const int64_t total = static_cast<int64_t>(ptr[n]) - static_cast<int64_t>(ptr[0]);
    const int64_t limit = hub_rows > 0 ? sensible(hub_rows) : longest_undivided(total);
    int64_t* const hubs = scratch<HubTable, int64_t>(std::min(n, total / (limit + 1)) + 1);
    int64_t count = 0;
    parallel_tiles(ptr, n, work_per_row, std::min(tile, limit), chunks, [=, &count](int64_t first, int64_t last) mutable {
        if (static_cast<int64_t>(ptr[last]) - static_cast<int64_t>(ptr[first]) <= limit) {
            f(first, last);
            return;
        }
        int64_t k;
#pragma omp atomic capture  // <atomic> would be a third of the time that all headers take to compile
        k = count++;
        hubs[k] = first;  // a tile of its own
    });
    for (int64_t k = 0; k < count; ++k) hub(hubs[k], hubs[k] + 1);
}

struct RowPartials;
inline constexpr int64_t kSplitRows = 1024;

// Divides the rows begin..end of a hub into chunks, which all threads share: part(from, to, into) handles the rows of a
// chunk and writes its `width` partial results; merge(partial) takes those of every chunk, in ascending order. There
// are 64 chunks where these are neither short, so that merging costs little, nor longer than kSplitRows.
template <class T, class Part, class Merge>
inline void split_rows(int64_t begin, int64_t end, int64_t width, Part part, Merge merge) {
    const int64_t size = std::clamp<int64_t>((end - begin + 63) / 64, kSplitRows / 8, kSplitRows);
    const int64_t chunks = (end - begin + size - 1) / size;
    T* const partials = scratch<RowPartials, T>(chunks * width);
    run_blocks(chunks, false, [=](int64_t c) mutable {
        const int64_t from = begin + c * size;
        part(from, std::min(end, from + size), partials + c * width);
    });
    for (int64_t c = 0; c < chunks; ++c) merge(partials + c * width);
}

// Calls f(begin, end) for ranges that together cover 0..n, `chunks` for each thread.
template <class F>
inline void parallel_ranges(int64_t n, int64_t work_per_item, int64_t chunks, F f) {
    const int64_t work = n * std::max<int64_t>(work_per_item, 1);
    if (n <= 0) return;
    const bool serial = work < kSerialWork || thread_count() == 1;
    const int64_t blocks = serial ? 1 : block_count(n, work, chunks), size = (n + blocks - 1) / blocks;
    run_blocks(blocks, serial, [=](int64_t b) mutable {
        if (b * size < n) f(b * size, std::min(n, (b + 1) * size));
    });
}

struct ChunkTable;
struct ChunkPartials;
struct WholeSum;

// Adds up the partial sums of the rows that blocks have divided; made once for each type of elements.
template <class T, class Out>
__attribute__((noinline)) void add_partials(const int64_t* slot, int64_t n, int64_t size, T* partials, Out* out) {
    constexpr int64_t kStrip = 512;  // the additions are shared among threads by strips of a group's elements
    const int64_t strips = (size + kStrip - 1) / kStrip;
    parallel_for(n * strips, slot[n] * std::min(size, kStrip) / n, [=](int64_t item) {
        const int64_t g = item / strips, first = item % strips * kStrip, last = std::min(size, first + kStrip);
        if (slot[g] == slot[g + 1]) return;
        T* const total = partials + slot[g] * size;
        for (int64_t c = slot[g] + 1; c < slot[g + 1]; ++c)
            for (int64_t i = first; i < last; ++i) total[i] += partials[c * size + i];
        std::copy(total + first, total + last, out + g * size + first);
    });
}

// Describes the chunks into which groups of rows are cut.
struct Chunks {
    int64_t rows;         // of a chunk
    const int64_t* start;  // first chunk of every group; an empty group has one
    const int64_t* slot;   // first partial sum of every group that is divided
};

// Cuts groups into about `parts` chunks in all. The chunks are in scratch memory of the calling thread.
template <class I>
__attribute__((noinline)) Chunks cut_into_chunks(const I* ptr, int64_t n, int64_t parts) {
    const int64_t total = static_cast<int64_t>(ptr[n]) - static_cast<int64_t>(ptr[0]);
    const int64_t rows = std::max<int64_t>(128, (total + parts - 1) / parts);
    int64_t* const start = scratch<ChunkTable, int64_t>(2 * (n + 1));
    int64_t* const slot = start + n + 1;
    start[0] = slot[0] = 0;
    for (int64_t g = 0; g < n; ++g) {
        const int64_t length = static_cast<int64_t>(ptr[g + 1]) - static_cast<int64_t>(ptr[g]);
        const int64_t chunks = std::max<int64_t>(1, (length + rows - 1) / rows);
        start[g + 1] = start[g] + chunks;
        slot[g + 1] = slot[g] + (chunks > 1 ? chunks : 0);
    }
    return {rows, start, slot};
}

// Returns the group of a chunk.
__attribute__((noinline)) inline int64_t group_of(int64_t chunk, const int64_t* start, int64_t n) {
    return std::upper_bound(start, start + n + 1, chunk) - start - 1;
}

// Sets out[g * size ..] to the sum over the rows of group g, for few groups that may be long. sum(begin, end, g, into)
// writes the sum of rows begin..end of group g, of type T, to into[size]. Groups longer than a chunk are summed chunk
// by chunk, and the partial sums are added in ascending order. The length of chunks depends on the number of rows alone.
template <class T, class I, class Out, class Sum>
inline void chunked_sum(const I* ptr, int64_t n, int64_t size, int64_t work_per_row, Out* out, Sum sum) {
    if (n <= 0) return;
    // About 64 partial sums at most, fewer when they are large (4 Mi elements in all).
    const auto [chunk, start, slot] = cut_into_chunks(ptr, n, std::clamp<int64_t>((int64_t{1} << 22) / size, 8, 64));
    T* const partials = slot[n] > 0 ? scratch<ChunkPartials, T>(slot[n] * size) : nullptr;
    const int64_t total = static_cast<int64_t>(ptr[n]) - static_cast<int64_t>(ptr[0]);
    const bool serial = total * work_per_row + n * size < kSerialWork;
    run_blocks(start[n], serial, [=, chunk = chunk, start = start, slot = slot](int64_t c) mutable {
        const int64_t g = group_of(c, start, n);
        const int64_t end = ptr[g + 1], from = ptr[g] + (c - start[g]) * chunk;
        const bool divided = slot[g + 1] > slot[g];
        T* into;
        if (divided)
            into = partials + (slot[g] + c - start[g]) * size;
        else if constexpr (std::is_same_v<T, Out>)
            into = out + g * size;
        else
            into = scratch<WholeSum, T>(size);
        sum(from, std::min(end, from + chunk), g, into);
        if constexpr (!std::is_same_v<T, Out>)
            if (!divided) std::copy_n(into, size, out + g * size);
    });
    if (slot[n] > 0) add_partials(slot, n, size, partials, out);
}

// Sets out[g * F_ ..] to the sum over the rows p of group g; body(p, acc) adds the terms of a row into acc[F_].
template <class T, class I, int64_t F_, class Out, class Body>
inline void reduce_segments(const I* ptr, int64_t n, int64_t work_per_row, Out* out, Body body) {
    chunked_sum<T>(ptr, n, F_, work_per_row, out, [=](int64_t begin, int64_t end, int64_t, T* into) mutable {
        // Small sums stay in registers or on the stack, where nothing else can alias them. They are made from sums of
        // 256 rows, which keeps more digits than adding row after row.
        if constexpr (F_ * sizeof(T) <= 4096) {
            std::fill(into, into + F_, T(0));
            for (int64_t p = begin; p < end;) {
                alignas(64) T acc[F_] = {};
                for (const int64_t stop = std::min<int64_t>(end, p + 256); p < stop; ++p) body(p, acc);
                for (int64_t f = 0; f < F_; ++f) into[f] += acc[f];
            }
        } else {
            std::fill(into, into + F_, T(0));
            for (int64_t p = begin; p < end; ++p) body(p, into);
        }
    });
}

}  // namespace dacergnn
