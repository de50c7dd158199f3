// Provides rows of products that are sums of gathered rows.
#pragma once

#include "gemm_tile.cuh"
#include "sums.cuh"

namespace dacergnn::cuda {

// Adds up the rows X[gather[q]] for ptr[j] <= q < ptr[j + 1], scaled by scale[list[q]], to one row for every j in
// targets. Hubs is HubRows, or nullptr if there are none.
template <class Value, int64_t H, int64_t D, int HS, class I, class Gather, class List, class Targets, class Hubs>
struct SummedRows {
    const Value* X;
    Gather gather;
    const I* ptr;
    List list;
    const Value* scale;
    Targets targets;
    Hubs hubs;

    __device__ Place find(int64_t p) const {
        const int64_t j = at(targets, p);
        return {int64_t(ptr[j]), int64_t(ptr[j + 1]), j};
    }

    // Loads the rows of a step into a stage. All warps share long sums; groups of a warp's lanes compute other rows.
    template <class T, class Acc, class PlaceOfRow>
    __device__ void load(const PlaceOfRow* places, const Step& step, Value* stage, Acc* partials) const {
        constexpr int kRow = T::kHeads * T::kDepth, kWide = 16 / sizeof(Acc), N = D % kWide == 0 ? kWide : 1;
        constexpr int kLanes = smaller<int>(kWarp, power_of_two_from(kRow / N));
        constexpr int kGroupRows = divide_up(T::kWarpRows * kLanes, kWarp);  // some lanes have none of few rows
        const int first = warp() * T::kWarpRows + lane() / kLanes * kGroupRows;
        const int last = smaller(smaller(first + kGroupRows, (warp() + 1) * T::kWarpRows), step.count);
        for (int column = lane() % kLanes * N; column < kRow; column += kLanes * N)
            add_rows<T, Acc, N>(places, first, last, column, step, stage);
        for (int row = 0; row < step.count; ++row) {
            const int64_t begin = places[row].source, end = places[row].source_end;
            if (end - begin <= kLongSum) continue;
            for (int from = 0; from < kRow; from += kWarp) {
                const int column = from + lane();
                const auto column_term = [&](int64_t q) { return term<T, Acc, 1>(q, column, step); };
                const auto sum = [&] {
                    if constexpr (!std::is_null_pointer_v<Hubs>)
                        if (hubs.covers(begin, end))
                            return hubs.template sum<1, kTileWarps>(begin, end, in_row<T>(column, step), partials);
                    return sum_terms_of_block<Acc, 1, kTileWarps>(begin, end, column_term, partials);
                }();
                if (warp() == 0 && column < kRow) stage[row * T::kStride + column] = convert<Value>(sum[0]);
            }
        }
    }

    // Returns N elements of the term q, from `element` on and of one head.
    template <class Acc, int N>
    __device__ Vector<Acc, N> value(int64_t q, int element) const {
        const Vector<Value, N> x = load_vector<N>(X + at(gather, q) * (H * D) + element);
        return scaled<Acc>(x, factor<Acc>(HS > 0 ? at(list, q) : 0, element));
    }

  private:
    // Returns the scale of a row, for an element of it.
    template <class Acc>
    __device__ Acc factor(int64_t row, int element) const {
        return HS == 0 ? Acc(1) : convert<Acc>(scale[row * HS + (HS > 1 ? element / D : 0)]);
    }
    template <class Acc, int N>
    __device__ static Vector<Acc, N> scaled(const Vector<Value, N>& x, Acc factor) {
        Vector<Acc, N> result;
#pragma unroll
        for (int n = 0; n < N; ++n) result[n] = factor * convert<Acc>(x[n]);
        return result;
    }

    // Returns the element of a row that is in a column of a step, or the end of the row.
    template <class T>
    __device__ static int in_row(int column, const Step& step) {
        const int head = T::head(step) + column / T::kDepth, d = T::depth(step) + column % T::kDepth;
        return column >= T::kHeads * T::kDepth || head >= H || d >= D ? H * D : head * D + d;
    }

    // Returns N columns of the term for list[q].
    template <class T, class Acc, int N>
    __device__ Vector<Acc, N> term(int64_t q, int column, const Step& step) const {
        const int element = in_row<T>(column, step);
        return element < H * D ? value<Acc, N>(q, element) : Vector<Acc, N>{};
    }

    // Stores N columns of the rows first .. last, except long sums. Terms of several rows are on their way at once: first
    // all indices, then all scales and elements.
    template <class T, class Acc, int N, class PlaceOfRow>
    __device__ void add_rows(const PlaceOfRow* places, int first, int last, int column, const Step& step,
                             Value* stage) const {
        constexpr int kAhead = 4;
        const auto store = [&](int row, const Vector<Acc, N>& sum) {
#pragma unroll
            for (int n = 0; n < N; ++n) stage[row * T::kStride + column + n] = convert<Value>(sum[n]);
        };
        const int element = in_row<T>(column, step);
        const bool inside = element < H * D;
        int row = first - 1;
        int64_t q = 0, end = 0;
        Vector<Acc, N> sum = {};
        for (bool more = true; more;) {
            int64_t terms[kAhead], from[kAhead], rows[kAhead];
            int ends[kAhead];  // the row that is complete with a term, or -1
#pragma unroll
            for (int u = 0; u < kAhead; ++u) {
                while (q == end && ++row < last) {
                    q = places[row].source;
                    end = places[row].source_end;
                    const bool other = end - q > kLongSum;  // others add it up
                    if (!other && (q == end || !inside)) store(row, {});
                    if (other || !inside) q = end;
                }
                more = row < last;
                ends[u] = more && q + 1 == end ? row : -1;
                terms[u] = more ? q++ : -1;
            }
            if (terms[0] < 0) return;
            Vector<Value, N> x[kAhead];
            Acc factors[kAhead];
            // A term that is missing reads what the first one reads, so that no branch keeps loads apart.
#pragma unroll
            for (int u = 0; u < kAhead; ++u) from[u] = at(gather, terms[u] < 0 ? terms[0] : terms[u]);
#pragma unroll
            for (int u = 0; u < kAhead; ++u) rows[u] = HS > 0 ? at(list, terms[u] < 0 ? terms[0] : terms[u]) : 0;
#pragma unroll
            for (int u = 0; u < kAhead; ++u) x[u] = load_vector<N>(X + from[u] * (H * D) + element);
#pragma unroll
            for (int u = 0; u < kAhead; ++u) factors[u] = factor<Acc>(rows[u], element);
#pragma unroll
            for (int u = 0; u < kAhead; ++u) {
                const Vector<Acc, N> term = scaled(x[u], factors[u]);
#pragma unroll
                for (int n = 0; n < N; ++n) sum[n] += terms[u] < 0 ? Acc(0) : term[n];
                if (ends[u] < 0) continue;
                store(ends[u], sum);
                sum = {};
            }
        }
    }
};

}  // namespace dacergnn::cuda
