// Computes sums of outer products over a tile of rows in shared memory: how they are cut, and the two ways to compute
// them, by plain multiply-adds and by matrix instructions.
#pragma once

#include "gemm_tile.cuh"

namespace dacergnn::cuda {

// Holds the places of a row of X and of a row of Y, and the row that scales them.
struct OuterPlace {
    int64_t x, y, row;
};

// Describes how the H matrices of K x M are cut: a panel is at most 64 x 64 elements, of some heads or of a piece of
// one. If threads are left over, kGroups groups of threads share the rows of a tile; their sums are added at the end.
template <class Value_, int64_t H, int64_t K, int64_t M, bool Tf32_>
struct OuterTiling {
    using Value = Value_;
    static constexpr bool kTf32 = Tf32_ && std::is_same_v<Value, float>, kMatrix = kTf32 || kSmall<Value>;
    static constexpr int kRows = kSmall<Value> ? 64 : sizeof(Value) > 4 && kMostShared < 112 * 1024 ? 16 : 32;
    static constexpr int kMost = 64;
    static constexpr int kDepthUnit = kMatrix ? 16 : 8, kColumnUnit = kSmall<Value> ? 16 : kTf32 ? 8 : 4;

    static constexpr int kDepthPieces = divide_up(K, kMost), kColumnPieces = divide_up(M, kMost);
    static constexpr int kDepth = round_up(divide_up(K, kDepthPieces), kDepthUnit);
    static constexpr int kColumns = round_up(divide_up(M, kColumnPieces), kColumnUnit);
    static constexpr int kHeads =
        kDepthPieces * kColumnPieces > 1 ? 1 : smaller<int64_t>(H, kMost / std::max(kDepth, kColumns));
    static constexpr int kPanels = divide_up(H, kHeads) * kDepthPieces * kColumnPieces;

    // Parts of a panel: a thread has 8 x 4 elements, or a warp 16 rows of a head; kAtOnce rows are taken at once.
    static constexpr int kParts = kHeads * (kMatrix ? kDepth / 16 : kDepth / 8 * (kColumns / 4));
    static constexpr int kAtOnce = kSmall<Value> ? 16 : kTf32 ? 8 : 1;
    static constexpr int kGroups =
        std::max(1, smaller<int>(kRows / kAtOnce, (kMatrix ? kTileWarps : kTileThreads) / kParts));
    static_assert(kParts <= (kMatrix ? kTileWarps : kTileThreads));

    // Lanes read four rows and eight columns at once, so rows are an odd multiple of eight columns apart.
    static constexpr int stride_of(int columns) { return round_up(columns, 8) + (round_up(columns, 8) % 16 ? 0 : 8); }
    static constexpr int kXStride = stride_of(kHeads * kDepth), kYStride = stride_of(kHeads * kColumns);
    static constexpr int kYOffset = kRows * kXStride, kScaleOffset = kYOffset + kRows * kYStride;
    static constexpr int kStageBytes = round_up((kScaleOffset + kRows * kHeads) * sizeof(Value), 16);
    static constexpr int kPanelSize = kHeads * kDepth * kColumns;
    static constexpr int kSumBytes = kGroups * kPanelSize * sizeof(Accumulator<Value>);

    __device__ static int head(int panel) { return panel / (kDepthPieces * kColumnPieces) * kHeads; }
    __device__ static int depth(int panel) { return panel / kColumnPieces % kDepthPieces * kDepth; }
    __device__ static int column(int panel) { return panel % kColumnPieces * kColumns; }
};

// Holds the sums of a thread: 8 x 4 elements over the rows of its group.
template <class T>
class PlainOuterTile {
    using Value = typename T::Value;
    using Acc = Accumulator<Value>;
    static constexpr int kAcross = T::kColumns / 4, kDown = T::kDepth / 8;

    Vector<Acc, 4> sum_[8] = {};

    __device__ static int part() { return threadIdx.x % T::kParts; }
    __device__ static int group() { return threadIdx.x / T::kParts; }
    __device__ static int head() { return part() / (kAcross * kDown); }
    __device__ static int depth() { return part() / kAcross % kDown * 8; }
    __device__ static int column() { return part() % kAcross * 4; }

  public:
    template <bool Scaled>
    __device__ void add(const Value* stage) {
        if (group() >= T::kGroups) return;
        const Value* x = stage + head() * T::kDepth + depth();
        const Value* y = stage + T::kYOffset + head() * T::kColumns + column();
#pragma unroll 2
        for (int row = group(); row < T::kRows; row += T::kGroups) {
            const Pack<Value, 4> low = pack<4>(x + row * T::kXStride), high = pack<4>(x + row * T::kXStride + 4);
            const Pack<Value, 4> right = pack<4>(y + row * T::kYStride);
            Vector<Acc, 4> b;
            const Acc factor = Scaled ? convert<Acc>(stage[T::kScaleOffset + row * T::kHeads + head()]) : Acc(1);
#pragma unroll
            for (int j = 0; j < 4; ++j) b[j] = Scaled ? factor * convert<Acc>(right[j]) : convert<Acc>(right[j]);
#pragma unroll
            for (int i = 0; i < 8; ++i)
#pragma unroll
                for (int j = 0; j < 4; ++j) sum_[i][j] += convert<Acc>(i < 4 ? low[i % 4] : high[i % 4]) * b[j];
        }
    }

    // Stores the sums in shared memory, which has kGroups panels of sums.
    __device__ void store(Acc* sums) const {
        if (group() >= T::kGroups) return;
        Acc* to = sums + group() * T::kPanelSize + (head() * T::kDepth + depth()) * T::kColumns + column();
#pragma unroll
        for (int i = 0; i < 8; ++i) *reinterpret_cast<Pack<Acc, 4>*>(to + i * T::kColumns) = {sum_[i]};
    }
};

// Holds the sums of a warp: 16 rows of a head, in the layout of matrix instructions, over the rows of its group.
template <class T>
class MatrixOuterTile {
    using Value = typename T::Value;
    static constexpr int kBlocks = T::kColumns / 8, kDown = T::kDepth / 16;

    float sum_[kBlocks][4] = {};

    __device__ static int head() { return warp() % T::kParts / kDown; }
    __device__ static int depth() { return warp() % T::kParts % kDown * 16; }
    __device__ static int group() { return warp() / T::kParts; }

  public:
    template <bool Scaled>
    __device__ void add(const Value* stage) {
        if (group() >= T::kGroups) return;
        if constexpr (T::kTf32)
            add_tf32<Scaled>(stage);
        else
            add_small<Scaled>(stage);
    }

    __device__ void store(float* sums) const {
        if (group() >= T::kGroups) return;
        const int g = lane() / 4, t = lane() % 4;
        float* to = sums + group() * T::kPanelSize + (head() * T::kDepth + depth() + g) * T::kColumns + 2 * t;
#pragma unroll
        for (int n = 0; n < kBlocks; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i) to[i / 2 * 8 * T::kColumns + n * 8 + i % 2] = sum_[n][i];
    }

  private:
    template <bool Scaled>
    __device__ void add_tf32(const float* stage) {
        const int g = lane() / 4, t = lane() % 4;
        const float* x = stage + head() * T::kDepth + depth() + g;
        const float* y = stage + T::kYOffset + head() * T::kColumns + g;
#pragma unroll 1
        for (int first = group() * 8; first < T::kRows; first += T::kGroups * 8) {
            float a[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int row = first + t + i / 2 * 4;
                a[i] = x[row * T::kXStride + i % 2 * 8];
                if constexpr (Scaled) a[i] *= stage[T::kScaleOffset + row * T::kHeads + head()];
                a[i] = round_to_tf32(a[i]);
            }
#pragma unroll
            for (int n = 0; n < kBlocks; ++n) {
                const float* from = y + (first + t) * T::kYStride + n * 8;
                const float b[2] = {round_to_tf32(from[0]), round_to_tf32(from[4 * T::kYStride])};
                multiply_add_16x8x8(sum_[n], a, b);
            }
        }
    }

    template <bool Scaled>
    __device__ void add_small(const Value* stage) {
        const Value* x = stage + (lane() / 16 * 8 + lane() % 8) * T::kXStride + head() * T::kDepth + depth() +
                         lane() / 8 % 2 * 8;
        const Value* y = stage + T::kYOffset + lane() % 16 * T::kYStride + head() * T::kColumns + lane() / 16 * 8;
#pragma unroll 1
        for (int first = group() * 16; first < T::kRows; first += T::kGroups * 16) {
            unsigned a[4];
            load_matrices<true>(a, x + first * T::kXStride);
            if constexpr (Scaled) {
#pragma unroll
                for (int i = 0; i < 4; ++i) a[i] = scaled(a[i], stage, first + lane() % 4 * 2 + i / 2 * 8);
            }
#pragma unroll
            for (int n = 0; n < kBlocks; n += 2) {
                unsigned b[4];
                load_matrices<true>(b, y + first * T::kYStride + n * 8);
                multiply_add_16x8x16<Value>(sum_[n], a, b[0], b[1]);
                multiply_add_16x8x16<Value>(sum_[n + 1], a, b[2], b[3]);
            }
        }
    }

    // Returns scaled elements of a row and of the next row.
    __device__ static unsigned scaled(unsigned word, const Value* stage, int row) {
        Pair<Value> pair = Pair<Value>::of(word);
#pragma unroll
        for (int n = 0; n < 2; ++n) {
            const Value factor = stage[T::kScaleOffset + (row + n) * T::kHeads + head()];
            pair.element[n] = convert<Value>(convert<float>(pair.element[n]) * convert<float>(factor));
        }
        return pair.word();
    }
};

}  // namespace dacergnn::cuda
