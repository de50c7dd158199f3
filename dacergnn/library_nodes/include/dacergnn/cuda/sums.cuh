// Sums of many terms in an order that depends on nothing but their number.
#pragma once

#include "rows.cuh"

namespace dacergnn::cuda {

// Sums of more terms are shared by the warps of the block.
inline constexpr int64_t kLongSum = 256;

// Elements of a row of `width` that a lane takes at once: as wide as leaves something for every lane.
__host__ __device__ constexpr int lane_elements(int64_t width, int bytes) {
    int n = 1;
    while (2 * n * bytes <= 16 && width % (2 * n) == 0 && width / (2 * n) >= kWarp) n *= 2;
    return n;
}

// The sum of term(q), begin <= q < end, by one thread.
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

// The same by all warps of the block, lane by lane; every warp gets the sum. partials: Warps * 32 * N elements of shared
// memory.
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

// What is done with a finished row by its warp, finish(row, pointer to it, elements of shared memory): nothing.
struct Keep {
    template <class T>
    __device__ void operator()(int64_t, T*, T*) const {}
};

// Y[j] = the sum of X[list[q]] over ptr[j] <= q < ptr[j + 1] for `targets` rows, zeros for rows from there to y_rows; from first_row on.
template <class Value, class Acc, int64_t Width, int Local, class I, class List, class Finish>
struct RowSums {
    static constexpr int kLeastBlocks = 4, kWarps = 8, kElements = lane_elements(Width, sizeof(Acc));
    static constexpr std::size_t kBytes = kWarps * kWarp * kElements * sizeof(Acc) + kWarps * Local * sizeof(Value);

    const Acc* X;
    const I* ptr;
    List list;
    int64_t first_row, targets, y_rows;
    Value* Y;
    Finish finish;

    __device__ void operator()() const {
        Acc* partials = shared_memory<Acc>();
        Value* local = reinterpret_cast<Value*>(partials + kWarps * kWarp * kElements) + warp() * Local;
        const int64_t first = first_row + int64_t(blockIdx.x) * kWarps;
        for (int w = 0; w < kWarps; ++w) {
            const int64_t row = first + w;
            const int64_t begin = row < targets ? int64_t(ptr[row]) : 0, end = row < targets ? int64_t(ptr[row + 1]) : 0;
            const bool shared = end - begin > kLongSum;
            if (!shared && w != warp()) continue;
            for (int column = 0; column < Width; column += kWarp * kElements) {
                const int own = column + lane() * kElements;
                const auto term = [&](int64_t q) {
                    return own < Width ? load_vector<kElements>(X + at(list, q) * Width + own)
                                       : Vector<Acc, kElements>{};
                };
                const auto sum = shared ? sum_terms_of_block<Acc, kElements, kWarps>(begin, end, term, partials)
                                        : sum_terms<Acc, kElements>(begin, end, term);
                if (w != warp() || own >= Width || row >= y_rows) continue;
                Vector<Value, kElements> result;
                for (int n = 0; n < kElements; ++n) result[n] = convert<Value>(sum[n]);
                store_vector(Y + row * Width + own, result);
            }
        }
        const int64_t row = first + warp();
        __syncwarp();
        if (row < y_rows) finish(row, Y + row * Width, local);
    }

    void run() const {
        if (y_rows > first_row) launch<kWarps * kWarp>(divide_up(y_rows - first_row, kWarps), kBytes, *this);
    }
};

}  // namespace dacergnn::cuda
