// Divides hubs, groups of very many rows, among blocks: which blocks share one, and where their sums are combined.
//
// The rows of all groups are cut into chunks of one length. A group longer than that is a hub. It has as many parts as
// chunks begin in it, and the block of such a chunk computes a part. So the host needs only the number of rows, not
// their places. Partial results are in scratch memory, one behind the other; a later launch adds them in order.
#pragma once

#include <algorithm>

#include "rows.cuh"
#include "sums.cuh"

namespace dacergnn::cuda {

inline int64_t least_chunk = 1024;            // rows; tests set fewer
inline constexpr int64_t kMostChunks = 2048;  // so many partial results there may be

// Holds the places of the rows of each group; without pointers, all rows are one group.
template <class Index>
struct Groups {
    const Index* pointers;
    int64_t rows;
    __device__ int64_t begin(int64_t g) const { return pointers == nullptr ? 0 : int64_t(pointers[g]); }
    __device__ int64_t end(int64_t g) const { return pointers == nullptr ? rows : int64_t(pointers[g + 1]); }
    __device__ int64_t size(int64_t g) const { return end(g) - begin(g); }
    // Returns the last of `count` groups that begins at or before a row; all lanes of a warp search for it.
    __device__ int64_t group_of(int64_t row, int64_t count) const {
        int64_t first = 0, last = count;
        while (last - first > 1) {
            const int64_t step = divide_up(last - first, kWarp), g = first + lane() * step;
            first += (__popc(__ballot_sync(kAll, g < last && begin(g) <= row)) - 1) * step;
            last = smaller(first + step, last);
        }
        return first;
    }
};

struct Chunks {
    int64_t length, count;
    explicit Chunks(int64_t rows)
        : length(std::max(least_chunk, divide_up(rows, kMostChunks))),
          count(rows > length ? divide_up(rows, length) : 0) {}
};

// Describes a part of a hub, and the chunk of the first part.
struct Part {
    int64_t group, first_chunk;
    int number, count;
    __device__ int64_t chunk() const { return first_chunk + number; }
    // Return the bounds of its share of the rows begin .. end of the hub.
    __device__ int64_t begin(int64_t begin, int64_t end) const { return begin + (end - begin) * number / count; }
    __device__ int64_t end(int64_t begin, int64_t end) const { return begin + (end - begin) * (number + 1) / count; }
};

// Returns the first chunk that begins in begin .. end, and how many do: these are the parts of a hub.
__device__ inline Part whole_hub(const Chunks& chunks, int64_t group, int64_t begin, int64_t end) {
    const int64_t first = divide_up(begin, chunks.length);
    return {group, first, 0, static_cast<int>(divide_up(end, chunks.length) - first)};
}

// Runs body(part) by the threads of the block, if its chunk begins in one of the hubs among `count` groups.
template <class Index, class Body>
__device__ inline void hub_part(const Groups<Index>& groups, int64_t count, const Chunks& chunks, int64_t chunk,
                                const Body& body) {
    const int64_t g = groups.group_of(chunk * chunks.length, count);
    if (groups.size(g) <= chunks.length) return;
    Part part = whole_hub(chunks, g, groups.begin(g), groups.end(g));
    part.number = static_cast<int>(chunk - part.first_chunk);
    body(part);
}

// Writes the sum of the terms of every part of a hub, Width elements, to the row of its chunk in `partials`. Terms are
// term.value<Acc, N>(q, column), which gives N columns from there on; N divides Columns.
template <class Acc, int64_t Width, int64_t Columns, class Index, class Term>
struct HubSums {
    static constexpr int kLeastBlocks = 4, kWarps = 8;
    static constexpr int kWide = lane_elements(Width, sizeof(Acc)), kElements = Columns % kWide == 0 ? kWide : 1;

    Groups<Index> groups;
    int64_t count;
    Chunks chunks;
    Term term;
    Acc* partials;

    __device__ void operator()(int64_t block = blockIdx.x) const {
        hub_part(groups, count, chunks, block, [&](const Part& part) {
            const int64_t begin = groups.begin(part.group), end = groups.end(part.group);
            for (int from = 0; from < Width; from += kWarp * kElements) {
                const int column = from + lane() * kElements;
                const auto of_column = [&](int64_t q) {
                    return column < Width ? term.template value<Acc, kElements>(q, column) : Vector<Acc, kElements>{};
                };
                const auto sum = sum_terms_of_block<Acc, kElements, kWarps>(
                    part.begin(begin, end), part.end(begin, end), of_column, shared_memory<Acc>());
                if (warp() == 0 && column < Width) store_vector(partials + part.chunk() * Width + column, sum);
            }
        });
    }

    auto prepared() const {
        return one_launch<kWarps * kWarp>(chunks.count, kWarps * kWarp * kElements * sizeof(Acc), *this);
    }
};

// Holds the sums of the parts of hubs, Width elements for every chunk, for kernels that sum up groups.
template <class Acc, int64_t Width>
struct HubRows {
    Chunks chunks;
    const Acc* partials;

    __device__ bool covers(int64_t begin, int64_t end) const { return end - begin > chunks.length; }
    // Returns N columns, from `column` on, of the sum of a hub, by all warps of the block, as sum_terms_of_block.
    template <int N, int Warps>
    __device__ Vector<Acc, N> sum(int64_t begin, int64_t end, int column, Acc* shared) const {
        const Part hub = whole_hub(chunks, 0, begin, end);
        const auto term = [&](int64_t chunk) {
            return column < Width ? load_vector<N>(partials + chunk * Width + column) : Vector<Acc, N>{};
        };
        return sum_terms_of_block<Acc, N, Warps>(hub.first_chunk, hub.first_chunk + hub.count, term, shared);
    }
};

}  // namespace dacergnn::cuda
