// Rows of products that are sums of gathered rows.
#pragma once

#include "gemm_tile.cuh"
#include "sums.cuh"

namespace dacergnn::cuda {

// Rows list[q] for ptr[j] <= q < ptr[j + 1], gathered from X, scaled and added up to one row, for every j in targets.
template <class Value, int64_t H, int64_t D, int HS, class I, class Gather, class List, class Targets>
struct SummedRows {
    const Value* X;
    Gather gather;
    const I* ptr;
    List list;
    const Value* scale;
    Targets targets;

    __device__ Place find(int64_t p) const {
        const int64_t j = at(targets, p);
        return {int64_t(ptr[j]), int64_t(ptr[j + 1]), j};
    }

    template <class T, class Acc>
    __device__ void load(const Place* places, const Step& step, Value* stage, Acc* partials) const {
        constexpr int kRow = T::kHeads * T::kDepth, N = D % 2 == 0 ? smaller(2, lane_elements(kRow, sizeof(Acc))) : 1;
        static_assert(kRow <= kWarp * 2);
        for (int column = 0; column < kRow; column += kWarp * N) {
            const int own = column + lane() * N, head = T::head(step) + own / T::kDepth;
            const int d = T::depth(step) + own % T::kDepth;
            const bool inside = own < kRow && head < H && d < D;
            const auto term = [&](int64_t q) {
                Vector<Acc, N> one = {};
                if (!inside) return one;
                const int64_t i = at(list, q);
                const Vector<Value, N> x = load_vector<N>(X + at(gather, i) * (H * D) + head * D + d);
                const Acc factor = HS == 0 ? Acc(1) : convert<Acc>(scale[i * HS + (HS > 1 ? head : 0)]);
#pragma unroll
                for (int n = 0; n < N; ++n) one[n] = factor * convert<Acc>(x[n]);
                return one;
            };
            for (int row = 0; row < step.count; ++row) {
                const Place place = places[row];
                const bool shared = place.source_end - place.source > kLongSum, mine = row / kWarpRows == warp();
                if (!shared && !mine) continue;
                const auto sum =
                    shared ? sum_terms_of_block<Acc, N, kTileWarps>(place.source, place.source_end, term, partials)
                           : sum_terms<Acc, N>(place.source, place.source_end, term);
                if (!mine || own >= kRow) continue;
                for (int n = 0; n < N; ++n) stage[row * T::kStride + own + n] = convert<Value>(sum[n]);
            }
        }
    }
};

}  // namespace dacergnn::cuda
