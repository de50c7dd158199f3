// Adds up many terms in an order that depends on nothing but their number.
#pragma once

#include "batches.cuh"
#include "launches.cuh"
#include "rows.cuh"

namespace dacergnn::cuda {

// The warps of a block share sums of more terms than this.
inline constexpr int64_t kLongSum = 256;

// Returns the elements of a row of `width` that a lane takes at once: as many as leave something for every lane.
__host__ __device__ constexpr int lane_elements(int64_t width, int bytes) {
    int n = 1;
    while (2 * n * bytes <= 16 && width % (2 * n) == 0 && width / (2 * n) >= kWarp) n *= 2;
    return n;
}

// Returns the sum of term(q), begin <= q < end, by one thread.
template <class Acc, int N, class Term>
__device__ inline Vector<Acc, N> sum_terms(int64_t begin, int64_t end, const Term& term) {
    constexpr int kAhead = 4;  // terms that are read before the first is added
    Vector<Acc, N> sum = {};
    for (; begin + kAhead <= end; begin += kAhead) {
        Vector<Acc, N> terms[kAhead];
#pragma unroll
        for (int u = 0; u < kAhead; ++u) terms[u] = term(begin + u);
#pragma unroll
        for (int u = 0; u < kAhead; ++u)
#pragma unroll
            for (int n = 0; n < N; ++n) sum[n] += terms[u][n];
    }
    for (; begin < end; ++begin) {
        const Vector<Acc, N> one = term(begin);
#pragma unroll
        for (int n = 0; n < N; ++n) sum[n] += one[n];
    }
    return sum;
}

// Returns the same sum by all warps of the block, lane by lane; every warp gets it. partials are Warps * 32 * N
// elements of shared memory.
template <class Acc, int N, int Warps, class Term>
__device__ inline Vector<Acc, N> sum_terms_of_block(int64_t begin, int64_t end, const Term& term, Acc* partials) {
    const int64_t part = divide_up(end - begin, Warps), from = begin + warp() * part;
    const Vector<Acc, N> own = sum_terms<Acc, N>(from, smaller(end, from + part), term);
#pragma unroll
    for (int n = 0; n < N; ++n) partials[(warp() * N + n) * kWarp + lane()] = own[n];
    __syncthreads();
    Vector<Acc, N> sum = {};
    for (int w = 0; w < Warps; ++w)
#pragma unroll
        for (int n = 0; n < N; ++n) sum[n] += partials[(w * N + n) * kWarp + lane()];
    __syncthreads();
    return sum;
}

// Leaves a finished row as it is. In its place, a warp calls finish(row, pointer to it, elements of shared memory).
struct Keep {
    template <class T>
    __device__ void operator()(int64_t, T*, T*) const {}
};

// Finishes up to Rows rows at once: f(N, place, row, local) does so for N of them, where place(u) and row(u) are what
// one row is told by above. N is a type.
template <int Rows, class F>
struct FinishRows {
    static constexpr int kRows = Rows;
    F f;
    template <class T>
    __device__ void operator()(int64_t i, T* row, T* local) const {
        f(std::integral_constant<int, 1>(), [=](int) { return i; }, [=](int) { return row; }, local);
    }
};
template <int Rows, class F>
auto finish_rows(const F& f) {
    return FinishRows<Rows, F>{f};
}

// Lets a warp finish `count` rows.
template <class T, class Finish, class Place, class Row>
__device__ inline void finish_all(const Finish& finish, int count, const Place& place, const Row& row, T* local) {
    if constexpr (requires { Finish::kRows; }) {
        in_batches<Finish::kRows>(0, count, 1, [&](const auto batch, const int64_t from) {
            const int first = static_cast<int>(from);
            finish.f(batch, [&](int u) { return place(first + u); }, [&](int u) { return row(first + u); }, local);
            __syncwarp();
        });
    } else {
        for (int r = 0; r < count; ++r) {
            finish(place(r), row(r), local);
            __syncwarp();
        }
    }
}

// Sets Y[j], from first_row on, to the sum of X[list[q]] over ptr[j] <= q < ptr[j + 1] for `targets` rows, and to zeros
// from there to y_rows. Hubs is HubRows, or nullptr if there are none.
template <class Value, class Acc, int64_t Width, int Local, class I, class List, class Finish, class Hubs>
struct RowSums {
    static constexpr int kLeastBlocks = sizeof(Acc) > 4 ? 3 : 4, kWarps = 8, kElements = lane_elements(Width, sizeof(Acc));
    static constexpr std::size_t kBytes = kWarps * kWarp * kElements * sizeof(Acc) + kWarps * Local * sizeof(Value);

    const Acc* X;
    const I* ptr;
    List list;
    int64_t first_row, targets, y_rows;
    Value* Y;
    Finish finish;
    Hubs hubs;

    __device__ void operator()(int64_t block = blockIdx.x) const {
        Acc* const partials = shared_memory<Acc>();
        Value* const local = reinterpret_cast<Value*>(partials + kWarps * kWarp * kElements) + warp() * Local;
        const int64_t first = first_row + block * kWarps, row = first + warp();
        // Each lane has one bound of the rows of the block; rows beyond the targets are empty.
        const int64_t at_lane = smaller(first + smaller(lane(), kWarps), targets);
        const int64_t bound = targets > 0 ? static_cast<int64_t>(ptr[at_lane]) : 0;
        const auto bounds = [&](int w, int64_t& begin, int64_t& end) {
            begin = __shfl_sync(kAll, bound, w);
            end = __shfl_sync(kAll, bound, w + 1);
        };
        const unsigned shared = __ballot_sync(kAll, __shfl_down_sync(kAll, bound, 1) - bound > kLongSum);
        int64_t begin, end;
        bounds(warp(), begin, end);
        if ((shared >> warp() & 1) == 0 && row < y_rows) {
            columns(row, [&](int, const auto& term) { return sum_terms<Acc, kElements>(begin, end, term); });
        }
        for (int w = 0; w < kWarps; ++w) {
            if ((shared >> w & 1) == 0) continue;
            bounds(w, begin, end);
            columns(w == warp() ? row : y_rows, [&](int column, const auto& term) {
                if constexpr (!std::is_null_pointer_v<Hubs>)
                    if (hubs.covers(begin, end))
                        return hubs.template sum<kElements, kWarps>(begin, end, column, partials);
                return sum_terms_of_block<Acc, kElements, kWarps>(begin, end, term, partials);
            });
        }
        __syncwarp();
        if (row < y_rows) finish(row, Y + row * Width, local);
    }

    // Stores sum(column, term) for the columns of a row of Y, and nothing for rows behind its end.
    template <class F>
    __device__ void columns(int64_t row, const F& sum) const {
        for (int from = 0; from < Width; from += kWarp * kElements) {
            const int column = from + lane() * kElements;
            const auto total = sum(column, [&](int64_t q) {
                return column < Width ? load_vector<kElements>(X + at(list, q) * Width + column)
                                      : Vector<Acc, kElements>{};
            });
            if (column >= Width || row >= y_rows) continue;
            Vector<Value, kElements> result;
#pragma unroll
            for (int n = 0; n < kElements; ++n) result[n] = convert<Value>(total[n]);
            store_vector(Y + row * Width + column, result);
        }
    }

    auto prepared() const {
        const int64_t blocks = y_rows > first_row ? divide_up(y_rows - first_row, kWarps) : 0;
        return one_launch<kWarps * kWarp>(blocks, kBytes, *this);
    }
};

}  // namespace dacergnn::cuda
