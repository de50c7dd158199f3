// Computes the product of a tile of rows with the weight of a type, both in shared memory: how it is cut, and the two
// ways to multiply, by plain multiply-adds and by matrix instructions.
#pragma once

#include <algorithm>

#include "mma.cuh"
#include "rows.cuh"

namespace dacergnn::cuda {

inline constexpr int kTileThreads = 128, kTileWarps = kTileThreads / kWarp;

// Bytes of shared memory that a block may have on all devices that a library is built for (`native/nvcc.py`).
#ifndef DACERGNN_SHARED_BYTES
#define DACERGNN_SHARED_BYTES (160 * 1024)
#endif
inline constexpr int64_t kMostShared = DACERGNN_SHARED_BYTES;

// Blocks for whose sums of tiles a multiprocessor has registers.
template <class Value>
inline constexpr int kLeastTileBlocks = sizeof(Value) <= 4 ? 3 : 2;

// Holds N neighbors in shared memory, aligned to their size.
template <class T, int N>
struct alignas(smaller<int64_t>(N * sizeof(T), 16)) Pack : Vector<T, N> {};
template <int N, class T>
__device__ inline const Pack<T, N>& pack(const T* from) {
    return *reinterpret_cast<const Pack<T, N>*>(from);
}

__host__ __device__ constexpr int64_t power_of_two_from(int64_t n) {
    return n <= 1 ? 1 : 2 * power_of_two_from((n + 1) / 2);
}

// Describes how rows of H heads of D elements are multiplied with H matrices of D x C. Sizes in shared memory are
// padded with zeros to multiples of kUnit. A step computes a panel of at most 64 columns: some heads, or a piece of one
// head. It takes a chunk of the depth, so that at most 64 elements of a row are needed. The weight of the type stays in
// shared memory as a whole where it fits.
//
// A block multiplies `Rows` rows at a time, 64 at most if elements are large, 32 where shared memory has no room for
// more. Registers have room for `Least` blocks of a multiprocessor (0: as many as usual). Matrix instructions take 64
// rows.
template <class Value_, class Result_, int64_t H, int64_t D, int64_t C, bool Tf32_, int Rows = 64, int Least = 0>
struct Tiling {
    using Value = Value_;
    using Result = Result_;
    static constexpr bool kTf32 = Tf32_ && std::is_same_v<Value, float>, kMatrix = kTf32 || kSmall<Value>;
    static constexpr int kLeastBlocks = Least > 0 ? Least : kLeastTileBlocks<Value>;
    static constexpr int kMost = 64, kUnit = kSmall<Value> ? 16 : kTf32 ? 8 : 4;

    static constexpr int kPieces = divide_up(C, kMost);
    static constexpr int kColumns = round_up(divide_up(C, kPieces), kUnit);
    static constexpr int kHeads = kPieces > 1 || H == 1 ? 1 : smaller<int64_t>(H, kMost / kColumns);
    static constexpr int kHeadGroups = divide_up(H, kHeads);
    static constexpr int kPanels = kHeadGroups * kPieces;
    static constexpr int kMostDepth = kMost / kHeads / kUnit * kUnit;
    static constexpr int kChunks = divide_up(D, kMostDepth);
    static constexpr int kDepth = round_up(divide_up(D, kChunks), kUnit);

    // Bytes of a row in a stage: of X, and later of results in the same place. They are an odd number of 16-byte words,
    // so that neighboring rows lie in different banks.
    static constexpr int kRowBytes =
        std::max(round_up(kHeads * kDepth * sizeof(Value), 32), round_up(kHeads * kColumns * sizeof(Result), 32)) + 16;
    static constexpr int kStride = kRowBytes / sizeof(Value), kResultStride = kRowBytes / sizeof(Result);

    static constexpr int stride_of(int columns) { return columns + (kMatrix && columns % 16 == 0 ? 8 : 0); }
    static constexpr int64_t kWholeBytes =
        int64_t(sizeof(Value)) * kHeadGroups * kHeads * kChunks * kDepth * stride_of(kPieces * kColumns);
    static constexpr int64_t kStepBytes = int64_t(sizeof(Value)) * kHeads * kDepth * stride_of(kColumns);
    // Tells whether there is room for two stages of so many rows, their places, and weights; 4 KiB are for all else.
    static constexpr bool has_room(int rows, int64_t weights) {
        return rows * (2 * kRowBytes + 3 * 24) + weights + 4096 <= kMostShared;
    }
    static constexpr int kAsked = kMatrix ? 64 : sizeof(Value) > 4 ? smaller(Rows, 64) : Rows;
    static constexpr int64_t kHeld = kWholeBytes <= 72 * 1024 ? kWholeBytes : 2 * kStepBytes;
    static constexpr int kRows = kMatrix || has_room(kAsked, kHeld) ? kAsked : 32;
    static constexpr int kWarpRows = kRows / kTileWarps;  // a warp computes all columns of its rows
    static_assert(kRows == 32 || kRows == 64 || kRows == 128, "lanes share the rows of a warp out evenly");
    static constexpr int kStageBytes = kRows * kRowBytes;
    static constexpr bool kResident = kWholeBytes <= 72 * 1024 && has_room(kRows, kWholeBytes);
    static constexpr int kWeightHeads = kResident ? kHeadGroups * kHeads : kHeads;
    static constexpr int kWeightDepth = kResident ? kChunks * kDepth : kDepth;
    static constexpr int kWeightColumns = kResident ? kPieces * kColumns : kColumns;
    static constexpr int kWeightStride = stride_of(kWeightColumns);
    // Lanes read several heads at once, so heads lie in different banks.
    static constexpr int kHeadStride =
        kWeightDepth * kWeightStride + (kHeads > 1 && kWeightDepth * kWeightStride % 32 == 0 ? kColumns : 0);
    static constexpr int kWeightBytes = round_up(int64_t(kWeightHeads) * kHeadStride * sizeof(Value), 16);

    __device__ static int head(const Step& step) { return step.panel / kPieces * kHeads; }
    __device__ static int column(const Step& step) { return step.panel % kPieces * kColumns; }
    __device__ static int depth(const Step& step) { return step.chunk * kDepth; }
    // Returns the part of the weight in shared memory that a step multiplies with.
    __device__ static const Value* part(const Value* w, const Step& step) {
        return kResident ? w + head(step) * kHeadStride + depth(step) * kWeightStride + column(step) : w;
    }

    // Tells whether there is room for the weight of the next type, too, and whether it can be copied asynchronously: as
    // it is, by words or, transposed, by elements.
    static constexpr int64_t kSmallWeight = 20 * 1024;
    template <bool Transposed>
    static constexpr bool kWeightAhead =
        kResident && kWholeBytes <= kSmallWeight && has_room(kRows, 2 * kWholeBytes) && !kTf32 &&
        (Transposed ? sizeof(Value) >= 4 : C * sizeof(Value) % 16 == 0 && kWeightColumns * sizeof(Value) % 16 == 0);

    // Copies the whole weight of a type asynchronously.
    template <bool Transposed>
    __device__ static void copy_weight(const Value* from, Value* into) {
        constexpr int V = Transposed ? 1 : 16 / sizeof(Value);
        constexpr int kAcross = kWeightColumns / V, kAll = kWeightHeads * kWeightDepth * kAcross;
#pragma unroll 4
        for (int n = threadIdx.x; n < kAll; n += kTileThreads) {
            const int h = n / (kWeightDepth * kAcross), rest = n % (kWeightDepth * kAcross);
            // Neighboring threads read neighbors in memory. Transposed, they have blocks of kC columns and four rows, so
            // that they read 16 bytes of a row, and few of them store to the same bank.
            constexpr int kC = kWeightColumns % 8 == 0 ? 8 : 4, kBlock = 4 * kC;
            const int in_block = rest % kBlock, block = rest / kBlock;
            const int d = Transposed ? block / (kWeightColumns / kC) * 4 + in_block / kC : rest / kAcross;
            const int c = Transposed ? block % (kWeightColumns / kC) * kC + in_block % kC : rest % kAcross * V;
            const bool inside = h < H && d < D && c < C;
            const Value* const source = inside ? from + h * D * C + (Transposed ? c * D + d : d * C + c) : from;
            Value* const to = into + h * kHeadStride + d * kWeightStride + c;
            if constexpr (Transposed)
                copy_async_element(to, source, inside);
            else
                copy_async16(to, source, inside);
        }
    }

    // Loads the weight of a type (H, D, C), or (H, C, D) with Transposed, from a head, depth and column on.
    template <bool Transposed>
    __device__ static void load_weight(const Value* from, int head, int depth, int column, Value* into) {
        constexpr int kFours = kWeightHeads * kWeightDepth * kWeightColumns / 4;
        constexpr int kLast = Transposed ? D : C, kRows = Transposed ? kWeightColumns : kWeightDepth;
#pragma unroll 2
        for (int n = threadIdx.x; n < kFours; n += kTileThreads) {
            // Four elements that are neighbors in memory. Transposed, neighboring threads take neighboring columns, so
            // that they store to different banks.
            constexpr int kAcross = (Transposed ? kWeightDepth : kWeightColumns) / 4;
            const int h = n / (kRows * kAcross), rest = n % (kRows * kAcross);
            const int row = Transposed ? rest % kRows : rest / kAcross;
            const int first = (Transposed ? rest / kRows : rest % kAcross) * 4;
            const int d = Transposed ? first : row, c = Transposed ? row : first;
            const bool inside = head + h < H && depth + d < D && column + c < C;
            const int last = Transposed ? depth + d : column + c;
            const Value* source = from + ((head + h) * D * C) +
                                  (Transposed ? (column + c) * D + depth + d : (depth + d) * C + column + c);
            Vector<Value, 4> four = {};
            if (inside && kLast % 4 == 0) {
                four = load_vector<4>(source);
            } else if (inside) {
                for (int i = 0; i < 4; ++i) four[i] = last + i < kLast ? source[i] : Value(0);
            }
            Value* to = into + h * kHeadStride + d * kWeightStride + c;
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                if constexpr (kTf32) four[i] = round_to_tf32(four[i]);
                to[i * (Transposed ? kWeightStride : 1)] = four[i];
            }
        }
    }
};

// Holds the sums of a thread: several rows of its warp, and four columns of each.
template <class T>
class PlainTile {
    using Value = typename T::Value;
    using Acc = Accumulator<Value>;
    static constexpr int kGroups = T::kHeads * T::kColumns / 4, kLanes = power_of_two_from(kGroups);
    static constexpr int kStep = kWarp / kLanes, kRows = kStep < T::kWarpRows ? T::kWarpRows / kStep : 1;

    Vector<Acc, 4> sum_[kRows] = {};

    __device__ static bool active() { return lane() % kLanes < kGroups && lane() / kLanes < T::kWarpRows; }

  public:
    // Adds the products of the rows of the warp at `x` with the part of the weight at `w`.
    __device__ void multiply(const Value* x, const Value* w) {
        if (!active()) return;
        const int column = lane() % kLanes * 4, head = column / T::kColumns;
        x += lane() / kLanes * T::kStride + head * T::kDepth;
        w += head * T::kHeadStride + column % T::kColumns;
#pragma unroll 1
        for (int d = 0; d < T::kDepth; d += 4) {
            Pack<Value, 4> a[kRows];
#pragma unroll
            for (int i = 0; i < kRows; ++i) a[i] = pack<4>(x + i * kStep * T::kStride + d);
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                const Pack<Value, 4> b = pack<4>(w + (d + k) * T::kWeightStride);
#pragma unroll
                for (int i = 0; i < kRows; ++i)
#pragma unroll
                    for (int j = 0; j < 4; ++j) sum_[i][j] += convert<Acc>(a[i][k]) * convert<Acc>(b[j]);
            }
        }
    }

    // Calls f(row of the warp, column of the panel, neighboring sums from there on) for all sums of the thread.
    template <class F>
    __device__ void for_each(F f) const {
        if (!active()) return;
#pragma unroll
        for (int i = 0; i < kRows; ++i) f(lane() / kLanes + i * kStep, lane() % kLanes * 4, sum_[i]);
    }
};

// Holds the sums of a thread in the layout of matrix instructions, for eight columns after eight columns.
template <class T>
class MatrixTile {
    using Value = typename T::Value;
    static constexpr int kBlocks = T::kColumns / 8;

    float sum_[T::kHeads][kBlocks][4] = {};

  public:
    __device__ void multiply(const Value* x, const Value* w) {
        if constexpr (T::kTf32)
            multiply_tf32(x, w);
        else
            multiply_small(x, w);
    }

    template <class F>
    __device__ void for_each(F f) const {
        const int g = lane() / 4, t = lane() % 4;
#pragma unroll
        for (int h = 0; h < T::kHeads; ++h)
#pragma unroll
            for (int n = 0; n < kBlocks; ++n)
#pragma unroll
                for (int i = 0; i < 4; i += 2) {
                    const Vector<float, 2> pair = {sum_[h][n][i], sum_[h][n][i + 1]};
                    f(g + i / 2 * 8, h * T::kColumns + n * 8 + 2 * t, pair);
                }
    }

  private:
    __device__ void multiply_tf32(const float* x, const float* w) {
        const int g = lane() / 4, t = lane() % 4;
        x += g * T::kStride + t;
        w += t * T::kWeightStride + g;
#pragma unroll
        for (int h = 0; h < T::kHeads; ++h) {
#pragma unroll 1
            for (int d = 0; d < T::kDepth; d += 8) {
                float a[4];
#pragma unroll
                for (int i = 0; i < 4; ++i)
                    a[i] = round_to_tf32(x[i % 2 * 8 * T::kStride + h * T::kDepth + d + i / 2 * 4]);
#pragma unroll
                for (int n = 0; n < kBlocks; ++n) {
                    const float* from = w + h * T::kHeadStride + d * T::kWeightStride + n * 8;
                    const float b[2] = {from[0], from[4 * T::kWeightStride]};
                    multiply_add_16x8x8(sum_[h][n], a, b);
                }
            }
        }
    }

    __device__ void multiply_small(const Value* x, const Value* w) {
        x += lane() % 16 * T::kStride + lane() / 16 * 8;
        w += lane() % 16 * T::kWeightStride + lane() / 16 * 8;
#pragma unroll
        for (int h = 0; h < T::kHeads; ++h) {
#pragma unroll 1
            for (int d = 0; d < T::kDepth; d += 16) {
                unsigned a[4];
                load_matrices<false>(a, x + h * T::kDepth + d);
#pragma unroll
                for (int n = 0; n < kBlocks; n += 2) {
                    unsigned b[4];
                    load_matrices<true>(b, w + h * T::kHeadStride + d * T::kWeightStride + n * 8);
                    multiply_add_16x8x16<Value>(sum_[h][n], a, b[0], b[1]);
                    multiply_add_16x8x16<Value>(sum_[h][n + 1], a, b[2], b[3]);
                }
            }
        }
    }
};

}  // namespace dacergnn::cuda
