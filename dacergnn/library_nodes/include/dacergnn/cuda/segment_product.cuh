// Defines the kernel under segment_gemm: rows in the order of their types times the weight of their type.
#pragma once

#include "gemm_tile.cuh"
#include "sums.cuh"

namespace dacergnn::cuda {

// Computes Y[place.target] = scale * row @ W[type] for the rows of `source`, by tiles; the next is loaded meanwhile.
template <class T, int64_t H, int64_t D, int64_t C, bool TransposeW, int HS, int Local, class Source, class Types,
          class Finish>
struct SegmentProduct {
    using Value = typename T::Value;
    using Result = typename T::Result;
    using Acc = Accumulator<Value>;
    using Tile = std::conditional_t<T::kMatrix, MatrixTile<T>, PlainTile<T>>;
    static constexpr bool kFinishes = !std::is_same_v<Finish, Keep>;
    // Rows that are whole and without padding in a stage are finished there, others after they are stored.
    static constexpr bool kFinishesStaged = kFinishes && T::kPanels == 1 && (T::kColumns == C || H == 1);
    static constexpr int kLeastBlocks = T::kLeastBlocks;
    static constexpr bool kWeightAhead = T::template kWeightAhead<TransposeW>;
    static constexpr int kWeights = T::kResident && !kWeightAhead ? 1 : 2, kSlots = 3;
    struct ScaledPlace : Place {
        Acc factor;  // with one for the row
    };
    static constexpr std::size_t kBytes = 2 * T::kStageBytes + kWeights * T::kWeightBytes +
                                          kSlots * T::kRows * sizeof(ScaledPlace) + kTileThreads * sizeof(Acc) +
                                          kTileWarps * Local * sizeof(Result);

    Source source;
    Types types;
    const Value* W;
    const Value* scale;
    Result* Y;
    Finish finish;
    int64_t total, rows_per_block;

    __device__ void operator()(int64_t block = blockIdx.x) const {
        char* const memory = shared_memory<char>();
        char* const weights = memory + 2 * T::kStageBytes;
        ScaledPlace* const places = reinterpret_cast<ScaledPlace*>(weights + kWeights * T::kWeightBytes);
        Acc* const partials = reinterpret_cast<Acc*>(places + kSlots * T::kRows);
        Result* const local = reinterpret_cast<Result*>(partials + kTileThreads) + warp() * Local;
        const auto stage = [=](int s) { return reinterpret_cast<Value*>(memory + s % 2 * T::kStageBytes); };
        // The weight of a step; of a whole type, those of two types that follow each other.
        const auto weight = [=](int s) { return reinterpret_cast<Value*>(weights + s % kWeights * T::kWeightBytes); };
        const auto slot = [=](int s) { return places + s % kSlots * T::kRows; };

        const int64_t begin = block * rows_per_block;
        const Walk<T::kRows, T::kPanels, T::kChunks, Types> walk(types, begin, rows_per_block, total);
        Step step = walk.start(), next = walk.after(step);
        const int row = threadIdx.x;
        if (row < step.count) slot(0)[row] = find(begin + step.first + row);
        if (row < next.count) slot(1)[row] = find(begin + next.first + row);
        __syncthreads();
        if constexpr (kWeightAhead) T::template copy_weight<TransposeW>(of_type(step.type), weight(0));
        load(step, slot(0), stage(0), weight(0), partials);
        int loaded = -1, types_seen = 0;
        Tile tile;
        for (int s = 0; step.count > 0; ++s) {
            copy_async_wait<0>();
            __syncthreads();  // the step is there, and all threads are done with the one before
            if constexpr (kWeightAhead)
                if (next.count > 0 && next.type != step.type)
                    T::template copy_weight<TransposeW>(of_type(next.type), weight(types_seen + 1));
            if (next.count > 0) load(next, slot(s + 1), stage(s + 1), weight(s + 1), partials);
            if (T::kResident && !kWeightAhead && step.type != loaded) {
                T::template load_weight<TransposeW>(of_type(step.type), 0, 0, 0, weight(0));
                loaded = step.type;
                __syncthreads();
            }
            const Step later = walk.after(next);
            ScaledPlace place = {};
            if (row < later.count) place = find(begin + later.first + row);  // on its way during the product
            if (step.chunk == 0) tile = Tile();
            if (warp() * T::kWarpRows < step.count) {
                const Value* const w = weight(kWeightAhead ? types_seen : s);
                tile.multiply(stage(s) + warp() * T::kWarpRows * T::kStride, T::part(w, step));
                if (step.chunk + 1 == T::kChunks)
                    store(tile, step, slot(s), reinterpret_cast<Result*>(stage(s)), local);
            }
            if (row < later.count) slot(s + 2)[row] = place;
            types_seen += next.type != step.type;
            step = next;
            next = later;
        }
    }

    auto prepared() {
        // There are some more blocks than run at once, so that all multiprocessors are busy to the end.
        constexpr int64_t kBlocks = 2 * std::clamp<int64_t>(blocks_of(kBytes), 1, 8);
        static_assert(kBytes <= kMostShared, "what a block needs of shared memory");
        const int64_t rows = divide_up(std::max<int64_t>(total, 1), kBlocks * call.multiprocessors);
        rows_per_block = round_up(rows, T::kRows);
        return one_launch<kTileThreads>(divide_up(total, rows_per_block), kBytes, *this);
    }

  private:
    __device__ const Value* of_type(int type) const { return W + types.weight(type) * (H * D * C); }

    __device__ ScaledPlace find(int64_t p) const {
        const Place place = source.find(p);
        return {place, HS == 1 ? convert<Acc>(scale[place.target]) : Acc(1)};
    }

    __device__ void load(const Step& step, const ScaledPlace* from, Value* stage, Value* weight, Acc* partials) const {
        if constexpr (requires { Source::kColumnStride; })
            load_rows<kTileThreads, T::kRows, H, D, Source::kColumnStride, T::kHeads, T::kDepth>(
                source.X, [=](int r) { return from[r].source; }, step.count, T::head(step), T::depth(step), stage,
                T::kStride);
        else
            source.template load<T>(from, step, stage, partials);
        copy_async_commit();
        if constexpr (!T::kResident)
            T::template load_weight<TransposeW>(of_type(step.type), T::head(step), T::depth(step), T::column(step),
                                                weight);
    }

    // Stores results through the stage from which the rows of the warp were read, so that whole rows are written.
    __device__ void store(const Tile& tile, const Step& step, const ScaledPlace* from, Result* stage,
                          Result* local) const {
        const int first = warp() * T::kWarpRows, head = T::head(step), column = T::column(step);
        Result* const rows = stage + first * T::kResultStride;
        __syncwarp();
        tile.for_each([&](int r, int c, auto sum) {
            constexpr int N = sizeof(sum) / sizeof(Acc);
            Acc factor = HS == 1 && first + r < step.count ? from[first + r].factor : Acc(1);
            if constexpr (HS > 1) {
                const int h = head + c / T::kColumns;
                if (first + r < step.count && h < H) factor = convert<Acc>(scale[from[first + r].target * HS + h]);
            }
            Pack<Result, N> results;
#pragma unroll
            for (int n = 0; n < N; ++n) results[n] = convert<Result>(HS == 0 ? sum[n] : factor * sum[n]);
            *reinterpret_cast<Pack<Result, N>*>(rows + r * T::kResultStride + c) = results;
        });
        __syncwarp();
        const int count = smaller(T::kWarpRows, step.count - first);
        if constexpr (kFinishesStaged) {
            finish_all(
                finish, count, [&](int r) { return from[first + r].target; },
                [&](int r) { return rows + r * T::kResultStride; }, local);
        }
        constexpr int V = C % (16 / sizeof(Result)) == 0 ? 16 / sizeof(Result) : 1;
        constexpr int kRow = T::kHeads * T::kColumns / V;
        for (int n = lane(); n < T::kWarpRows * kRow; n += kWarp) {
            const int r = n / kRow, c = n % kRow * V, h = head + c / T::kColumns;
            if (r >= count || h >= H || column + c % T::kColumns >= C) continue;
            Result* const to = Y + from[first + r].target * (H * C) + h * C + column + c % T::kColumns;
            const Pack<Result, V> result = pack<V>(rows + r * T::kResultStride + c);
            store_vector<V>(to, result);
        }
        if constexpr (kFinishes && !kFinishesStaged) {
            __syncwarp();
            if (step.panel + 1 < T::kPanels) return;
            finish_all(
                finish, count, [&](int r) { return from[first + r].target; },
                [&](int r) { return Y + from[first + r].target * (H * C); }, local);
        }
    }
};

}  // namespace dacergnn::cuda
