// Computes gradients of the weights of segment_gemm: dW[t] = sum of X[gx(i)]^T Y[gy(i)] over the rows i of type t.
#pragma once

#include "outer_tile.cuh"
#include "sums.cuh"

namespace dacergnn::cuda {

// Finds the rows i = rows[p] of two operands that are gathered from X and Y.
template <class Value, int64_t XWidth, int64_t YWidth, class XGather, class YGather, class List>
struct GatheredPairs {
    static constexpr int64_t kXStride = 1, kYStride = 1;
    const Value *X, *Y;
    XGather xgather;
    YGather ygather;
    List rows;

    __device__ OuterPlace find(int64_t p) const {
        const int64_t i = at(rows, p);
        return {at(xgather, i) * XWidth, at(ygather, i) * YWidth, i};
    }
};

// Computes the sums of a block of `length` rows for every type in it. They go to dW if the block has all rows of the
// type, else to row block + type of partials, which no other block and type share.
template <class T, int64_t H, int64_t K, int64_t M, int HS, class Source, class Types>
struct OuterBlocks {
    using Value = typename T::Value;
    using Acc = Accumulator<Value>;
    using Tile = std::conditional_t<T::kMatrix, MatrixOuterTile<T>, PlainOuterTile<T>>;
    static constexpr int kLeastBlocks = kLeastTileBlocks<typename T::Value>, kSlots = 3;
    static constexpr std::size_t kBytes = 2 * T::kStageBytes + T::kSumBytes + kSlots * T::kRows * sizeof(OuterPlace);
    static_assert(kBytes <= kMostShared, "what a block needs of shared memory");

    Source source;
    Types types;
    const Value* scale;
    Value* dW;
    Acc* partials;
    int64_t total, length;

    __device__ void operator()(int64_t block_and_panel = blockIdx.x) const {
        char* const memory = shared_memory<char>();
        Acc* const sums = reinterpret_cast<Acc*>(memory + 2 * T::kStageBytes);
        OuterPlace* const places = reinterpret_cast<OuterPlace*>(memory + 2 * T::kStageBytes + T::kSumBytes);
        const auto stage = [=](int s) { return reinterpret_cast<Value*>(memory + s % 2 * T::kStageBytes); };
        const auto slot = [=](int s) { return places + s % kSlots * T::kRows; };

        const int64_t block = block_and_panel / T::kPanels, begin = block * length;
        const int panel = static_cast<int>(block_and_panel % T::kPanels), row = threadIdx.x;
        const Walk<T::kRows, 1, 1, Types> walk(types, begin, length, total);
        Step step = walk.start(), next = walk.after(step);
        if (row < step.count) slot(0)[row] = source.find(begin + step.first + row);
        if (row < next.count) slot(1)[row] = source.find(begin + next.first + row);
        __syncthreads();
        load(step, panel, slot(0), stage(0));
        Tile tile;
        for (int s = 0; step.count > 0; ++s) {
            copy_async_wait<0>();
            __syncthreads();  // the step is there, and all threads are done with the one before
            if (next.count > 0) load(next, panel, slot(s + 1), stage(s + 1));
            const Step later = walk.after(next);
            OuterPlace place = {};
            if (row < later.count) place = source.find(begin + later.first + row);  // on its way during the product
            tile.template add<(HS > 0)>(stage(s));
            if (next.count == 0 || next.type != step.type) {
                tile.store(sums);
                tile = Tile();
                __syncthreads();
                const int64_t t = step.type, from = types.start(t), to = types.start(t + 1);
                const bool whole = from >= begin && to <= begin + length;
                if (whole)
                    write(sums, panel, dW + t * (H * K * M));
                else
                    write(sums, panel, partials + (block + t) * (H * K * M));
            }
            if (row < later.count) slot(s + 2)[row] = place;
            step = next;
            next = later;
        }
    }

  private:
    __device__ void load(const Step& step, int panel, const OuterPlace* from, Value* stage) const {
        const int head = T::head(panel);
        load_rows<kTileThreads, T::kRows, H, K, Source::kXStride, T::kHeads, T::kDepth>(
            source.X, [=](int r) { return from[r].x; }, step.count, head, T::depth(panel), stage, T::kXStride);
        load_rows<kTileThreads, T::kRows, H, M, Source::kYStride, T::kHeads, T::kColumns>(
            source.Y, [=](int r) { return from[r].y; }, step.count, head, T::column(panel), stage + T::kYOffset,
            T::kYStride);
        copy_async_commit();
        if constexpr (HS > 0) {
            for (int n = threadIdx.x; n < T::kRows * T::kHeads; n += kTileThreads) {
                const int r = n / T::kHeads, h = head + n % T::kHeads;
                const bool valid = r < step.count && h < H;
                stage[T::kScaleOffset + n] = valid ? scale[from[r].row * HS + (HS > 1 ? h : 0)] : Value(0);
            }
        }
    }

    template <class To>
    __device__ static void write(const Acc* sums, int panel, To* into) {
        for (int n = threadIdx.x; n < T::kHeads * T::kDepth * T::kColumns; n += kTileThreads) {
            const int h = T::head(panel) + n / (T::kDepth * T::kColumns);
            const int k = T::depth(panel) + n / T::kColumns % T::kDepth, m = T::column(panel) + n % T::kColumns;
            if (h >= H || k >= K || m >= M) continue;
            Acc sum = 0;
#pragma unroll 4
            for (int g = 0; g < T::kGroups; ++g) sum += sums[g * (T::kHeads * T::kDepth * T::kColumns) + n];
            into[(int64_t(h) * K + k) * M + m] = convert<To>(sum);
        }
    }
};

// Sets dW[t] to the sum of the partial sums of its blocks in ascending order, or to zeros if it has no rows.
template <class Value, class Acc, int64_t Size, class Types>
struct OuterSums {
    static constexpr int kLeastBlocks = 4, kWarps = 8;
    const Acc* partials;
    Types types;
    Value* dW;
    int64_t length, strip, strips;

    __device__ void operator()(int64_t block = blockIdx.x) const {
        const int64_t t = block / strips, first = block % strips * strip;
        const int64_t begin = types.start(t), end = types.start(t + 1);
        const int64_t from = begin / length, to = end > begin ? (end - 1) / length + 1 : from;
        if (to - from == 1) return;
        Acc* const shared = shared_memory<Acc>();
        for (int64_t n = first + lane(); n < first + strip; n += kWarp) {
            const auto term = [&](int64_t block) {
                return Vector<Acc, 1>{n < Size ? partials[(block + t) * Size + n] : Acc(0)};
            };
            const Acc sum = sum_terms_of_block<Acc, 1, kWarps>(from, to, term, shared)[0];
            if (warp() == 0 && n < Size) dW[t * Size + n] = convert<Value>(sum);
        }
    }
};

// The most blocks of rows; they leave as many rows of partial sums, beside one row for every type.
template <int64_t Size>
inline constexpr int64_t kOuterBlocks = std::clamp<int64_t>((int64_t{1} << 22) / Size, 8, 512);

// Computes dW[t] (H, K, M) = sum of scale[i] * X[xgather[i]]^T Y[ygather[i]] over the rows i of type t, zeros for a
// type without rows. Rows, gathers (nullptr: identity), types and scale are as in segment_gemm; X rows are (H, K), Y
// rows are (H, M). It takes kOuterBlocks<H * K * M> + types rows of H * K * M sums of the workspace.
template <class Value, int64_t H, int64_t K, int64_t M, int HS, bool Tf32 = kTf32, class XGather, class YGather,
          class Types, class List>
auto segment_outer(const Value* X, XGather xgather, const Value* Y, YGather ygather, const Types& types, int64_t total,
                   List rows, const Value* scale, Value* dW) {
    check_alignment({X, Y, dW});
    using T = OuterTiling<Value, H, K, M, Tf32>;
    using Acc = Accumulator<Value>;
    using Source = GatheredPairs<Value, H * K, H * M, XGather, YGather, List>;
    constexpr int64_t kSize = H * K * M;
    const int64_t length = std::max<int64_t>(2 * T::kRows, round_up(divide_up(total, kOuterBlocks<kSize>), T::kRows));
    Acc* const partials = take<Acc>((kOuterBlocks<kSize> + types.types) * kSize);
    const OuterBlocks<T, H, K, M, HS, Source, Types> blocks = {
        {X, Y, xgather, ygather, rows}, types, scale, dW, partials, total, length};
    using Sums = OuterSums<Value, Acc, kSize, Types>;
    const int64_t strip = types.types < 64 ? kWarp : 32 * kWarp, strips = divide_up(kSize, strip);
    return in_order(
        one_launch<kTileThreads>(types.types > 0 ? divide_up(total, length) * T::kPanels : 0, blocks.kBytes, blocks),
        one_launch<Sums::kWarps * kWarp>(types.types * strips, Sums::kWarps * kWarp * sizeof(Acc),
                                         Sums{partials, types, dW, length, strip, strips}));
}

}  // namespace dacergnn::cuda
