// Runs loops over rows and groups of rows: which threads take which rows, and how their partial sums are combined.
//
// A crew is the threads that share a group. It consists of teams of L threads: every team takes a row at a time, whose
// elements its lanes share. No result depends on anything but the graph.
#pragma once

#include <algorithm>
#include <limits>

#include "dacergnn/cuda/batches.cuh"
#include "dacergnn/cuda/divisor.cuh"
#include "dacergnn/cuda/hubs.cuh"
#include "dacergnn/scalar.h"

namespace dacergnn::cuda {

inline constexpr int kCrewThreads = 256;    // of a block
inline constexpr int64_t kLongGroup = 256;  // all threads of a block share a group of more rows

template <class T>
inline constexpr T kInfinity = std::numeric_limits<T>::infinity();

struct Maximum {
    template <class T>
    __device__ T operator()(T a, T b) const {
        return maximum(a, b);
    }
};
struct Minimum {
    template <class T>
    __device__ T operator()(T a, T b) const {
        return minimum(a, b);
    }
};

// Runs: elements that fill one or several words of 16 bytes, and start at a multiple of that.

// Loads a run. Constant: nobody writes to the array while the kernel runs.
template <int N, bool Constant, class T>
__device__ inline Vector<T, N> load_run(const T* from) {
    static_assert(N * sizeof(T) % sizeof(int4) == 0);
    alignas(sizeof(int4)) Vector<T, N> result;
#pragma unroll
    for (int i = 0; i < static_cast<int>(N * sizeof(T) / sizeof(int4)); ++i) {
        const int4* const word = reinterpret_cast<const int4*>(from) + i;
        reinterpret_cast<int4*>(&result)[i] = Constant ? __ldg(word) : *word;
    }
    return result;
}

// Lanes

template <int L>
__device__ inline int lane_of() {
    return static_cast<int>(threadIdx.x) % L;
}
// Returns the lanes of the warp that belong to the team of the calling thread.
template <int L>
__device__ inline unsigned team_mask() {
    if constexpr (L == kWarp)
        return kAll;
    else
        return ((1u << L) - 1) << (lane() / L * L);
}
template <int L>
__device__ inline void sync_team() {
    if constexpr (L > 1) __syncwarp(team_mask<L>());
}
// Returns the sum over L lanes, in each of them.
template <int L, class T>
__device__ inline T team_sum(T value) {
#pragma unroll
    for (int distance = L / 2; distance > 0; distance /= 2)
        value += __shfl_xor_sync(team_mask<L>(), value, distance);
    return value;
}
// Sums over Q lanes each: parts[j] of lanes g * Q to (g + 1) * Q add up to sums[j * L / Q + g], which all L lanes get.
template <int L, int Q, class T, int J, int N>
__device__ inline void segment_sums(const T (&parts)[J], T (&sums)[N]) {
    const int first = lane() / L * L;
#pragma unroll
    for (int j = 0; j < J; ++j) {
        T part = parts[j];
#pragma unroll
        for (int distance = Q / 2; distance > 0; distance /= 2)
            part += __shfl_xor_sync(team_mask<L>(), part, distance);
#pragma unroll
        for (int g = 0; g < L / Q; ++g)
            if (j * (L / Q) + g < N) sums[j * (L / Q) + g] = __shfl_sync(team_mask<L>(), part, first + g * Q);
    }
}

// Crews

template <int Size>
struct Crew {
    static constexpr int kLanes = Size < kWarp ? Size : kWarp;
    __device__ void sync() const {
        if constexpr (Size > kWarp)
            __syncthreads();
        else
            __syncwarp(team_mask<Size>());
    }
};
using Block = Crew<kCrewThreads>;

// Returns the number of the team of L lanes within its crew; `teams` returns how many teams there are.
template <int L, int Size>
__device__ inline int rank(Crew<Size>) {
    return static_cast<int>(threadIdx.x) % Size / L;
}
template <int L, int Size>
__device__ constexpr int teams(Crew<Size>) {
    return Size / L;
}

// Combines the values of the teams of a crew, element by element; all get the result.
template <int L, class Combine, class T, int N, int Size>
__device__ inline void merge(Crew<Size>, T (&values)[N], Combine combine) {
    constexpr int kLanes = Crew<Size>::kLanes, kWarps = Size / kLanes;
#pragma unroll
    for (int n = 0; n < N; ++n) {
#pragma unroll
        for (int distance = L; distance < kLanes; distance *= 2)
            values[n] = combine(values[n], __shfl_xor_sync(team_mask<kLanes>(), values[n], distance));
        if constexpr (kWarps > 1) {
            T* const shared = shared_memory<T>();
            if (lane() < L) shared[warp() * L + lane()] = values[n];
            __syncthreads();
            values[n] = shared[lane() % L];
#pragma unroll
            for (int w = 1; w < kWarps; ++w) values[n] = combine(values[n], shared[w * L + lane() % L]);
            __syncthreads();
        }
    }
}
template <class T>
inline constexpr std::size_t kMergeBytes = kCrewThreads * sizeof(T);

// Does the same with the values that the parts of a hub have left in the rows of their chunks, of W elements.
template <int L, int V, int W, class Combine, class T, int N>
__device__ inline void merge_parts(Block crew, const Part& hub, const T* partials, T (&values)[N], Combine combine) {
    for (int64_t p = rank<L>(crew); p < hub.count; p += teams<L>(crew)) {
        const T* const row = partials + (hub.first_chunk + p) * W;
#pragma unroll
        for (int n = 0; n < N; ++n) {
            const int at = (n / V * L + lane_of<L>()) * V + n % V;
            if (W % (L * V) == 0 || at < W) values[n] = combine(values[n], row[at]);
        }
    }
    merge<L>(crew, values, combine);
}

// Stores a row of W elements, of which lanes hold V at a time of every L * V, or its strip that starts at `first`.
template <int L, int V, int W, class Out, class T, int N>
__device__ inline void store_row(Out* out, const T (&values)[N], int first = 0) {
#pragma unroll
    for (int j = 0; j < N / V; ++j) {
        const int start = first + (j * L + lane_of<L>()) * V;
        Vector<Out, V> result;
#pragma unroll
        for (int v = 0; v < V; ++v) result[v] = convert<Out>(values[j * V + v]);
        if (W % (L * N) == 0 || start < W) store_vector(out + start, result);
    }
}

// Launches

template <int L, class Body>
struct RowKernel {
    int64_t rows;
    Body body;
    __device__ void operator()(int64_t block = blockIdx.x) const {
        const int64_t row = (block * kCrewThreads + threadIdx.x) / L;
        if (row < rows) body(row);
    }
};
// Runs body(row) by L threads for every row.
template <int L, class Body>
inline auto traverse_rows(int64_t rows, const Body& body) {
    constexpr int kRows = kCrewThreads / L;
    return one_launch<kCrewThreads>((rows + kRows - 1) / kRows, 0, RowKernel<L, Body>{rows, body});
}

// Blocks that have room if a thread holds so many values of a group. Without a number, the compiler would spill
// registers to make room for one more.
template <class T, int Held>
inline constexpr int kLeastCrewBlocks = sizeof(T) <= 4 ? (Held < 8 ? 5 : Held < 12 ? 4 : Held < 16 ? 3 : Held < 28 ? 2 : 1)
                                                       : (Held <= 2 ? 5 : Held <= 10 ? 4 : 2);

template <int Size, class T, int Held, class Index, class Body, class Hub>
struct GroupKernel {
    static constexpr int kLeastBlocks = kLeastCrewBlocks<T, Held>;
    static constexpr bool kHubs = !std::is_null_pointer_v<Hub>;
    static constexpr int kCrews = kCrewThreads / Size;
    Groups<Index> groups;
    int64_t count;
    Chunks chunks;
    Body body;
    Hub hub;
    __device__ void operator()(int64_t block = blockIdx.x) const {
        if constexpr (kHubs) {  // their parts come first
            if (block < chunks.count) return hub_part(groups, count, chunks, block, hub);
            block -= chunks.count;
        }
        const int64_t first = block * kCrews, last = minimum(first + kCrews, count);
        const int64_t own = first + static_cast<int>(threadIdx.x) / Size;
        if (own < last && groups.size(own) <= kLongGroup) body(Crew<Size>(), own);
        if (groups.end(last - 1) - groups.begin(first) <= kLongGroup) return;
        for (int64_t g = first; g < last; ++g)
            if (groups.size(g) > kLongGroup && !(kHubs && groups.size(g) > chunks.length)) body(Block(), g);
    }
};
// Runs body(crew, group) for every group, by a crew of Size threads, or by a block if the group is long. With `hub`,
// blocks run hub(part) for the parts of hubs instead. A thread holds `Held` values of type T.
template <int Size, class T, int Held, class Index, class Body, class Hub = std::nullptr_t>
inline auto traverse_groups(const Groups<Index>& groups, int64_t count, const Body& body, const Hub& hub = nullptr) {
    using Kernel = GroupKernel<Size, T, Held, Index, Body, Hub>;
    const Chunks chunks(groups.rows);
    const int64_t blocks = (count + Kernel::kCrews - 1) / Kernel::kCrews;
    return one_launch<kCrewThreads>(blocks + (Kernel::kHubs ? chunks.count : 0), kMergeBytes<T>,
                                    Kernel{groups, count, chunks, body, hub});
}

template <class T, int Held, class Index, class Hub>
struct HubKernel {
    static constexpr int kLeastBlocks = kLeastCrewBlocks<T, Held>;
    Groups<Index> groups;
    int64_t count;
    Chunks chunks;
    Hub hub;
    __device__ void operator()(int64_t block = blockIdx.x) const { hub_part(groups, count, chunks, block, hub); }
};
// Runs hub(part) for the parts of all hubs.
template <class T, int Held, class Index, class Hub>
inline auto traverse_hubs(const Groups<Index>& groups, int64_t count, const Hub& hub) {
    const Chunks chunks(groups.rows);
    return one_launch<kCrewThreads>(chunks.count, kMergeBytes<T>,
                                    HubKernel<T, Held, Index, Hub>{groups, count, chunks, hub});
}

template <class Index, class T, int Held, class Body>
struct ChunkKernel {
    static constexpr int kLeastBlocks = smaller(kLeastCrewBlocks<T, Held>, 3);
    Groups<Index> groups;
    int64_t count, rows, chunk;
    int width, strips;
    T* partials;
    Body body;
    __device__ void operator()(int64_t block = blockIdx.x) const {
        const int64_t number = block / strips, begin = number * chunk, end = minimum(begin + chunk, rows);
        const int strip = static_cast<int>(block % strips);
        int64_t g = 0, behind = count;  // the first group that ends after `begin`
        while (g < behind) {
            const int64_t middle = g + (behind - g) / 2;
            if (groups.end(middle) <= begin)
                g = middle + 1;
            else
                behind = middle;
        }
        for (; g < count && groups.begin(g) < end; ++g) {
            const int64_t from = maximum(begin, groups.begin(g)), to = minimum(end, groups.end(g));
            // Chunks and groups ascend together, so that no other pair of them has this sum.
            if (from < to) body(Block(), from, to, g, strip, partials + (number + g) * width);
        }
    }
};
template <class Index, class T, class Out, class Combine>
struct ChunkSumKernel {
    static constexpr int kLeastBlocks = 4;
    Groups<Index> groups;
    int64_t chunk;
    int width, warps;  // that a sum takes
    const T* partials;
    Out* out;
    Combine combine;
    __device__ void operator()(int64_t block = blockIdx.x) const {
        const int64_t g = block / warps, begin = groups.begin(g), end = groups.end(g);
        const int f = static_cast<int>(block % warps) * kWarp + lane();
        const bool inside = f < width;
        const int64_t first = begin / chunk, last = (end - 1) / chunk;
        if (begin == end) {
            if (inside && warp() == 0) out[g * width + f] = convert<Out>(T(0));
            return;
        }
        const int used = static_cast<int>(minimum<int64_t>(kCrewThreads / kWarp, last - first + 1));
        T* const shared = shared_memory<T>();
        if (warp() < used && inside) {
            T value = partials[(first + warp() + g) * width + f];
            for (int64_t c = first + warp() + used; c <= last; c += used)
                value = combine(value, partials[(c + g) * width + f]);
            shared[threadIdx.x] = value;
        }
        __syncthreads();
        if (warp() > 0 || !inside) return;
        T value = shared[lane()];
        for (int w = 1; w < used; ++w) value = combine(value, shared[w * kWarp + lane()]);
        out[g * width + f] = convert<Out>(value);
    }
};
// Reduces rows into few groups, such as types, by all threads. It runs body(block, begin, end, group, strip, into) for
// the rows of a group in a chunk of all rows, and for one strip of their elements. There are at most `limit` chunks,
// and `partials` has room for limit + count rows. A thread holds `Held` values of type T.
template <class Combine, int Held, class T, class Index, class Out, class Body>
inline auto reduce_chunks(const Groups<Index>& groups, int64_t count, int64_t rows, int64_t limit, int width, int strips,
                          T* partials, Out* out, const Body& body) {
    const int64_t chunk = std::max<int64_t>(kLongGroup, (rows + limit - 1) / limit);
    const int warps = (width + kWarp - 1) / kWarp;
    int64_t sums = count * warps;
    if constexpr (std::is_same_v<T, Out>) {
        if (count == 1 && 0 < rows && rows <= chunk) {  // one chunk has all
            partials = out;
            sums = 0;
        }
    }
    return in_order(
        one_launch<kCrewThreads>(
            (rows + chunk - 1) / chunk * strips, kMergeBytes<T>,
            ChunkKernel<Index, T, Held, Body>{groups, count, rows, chunk, width, strips, partials, body}),
        one_launch<kCrewThreads>(
            sums, kMergeBytes<T>,
            ChunkSumKernel<Index, T, Out, Combine>{groups, chunk, width, warps, partials, out, {}}));
}

}  // namespace dacergnn::cuda
