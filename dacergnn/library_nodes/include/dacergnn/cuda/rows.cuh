// Handles rows in the order of their types: where they lie, how blocks walk over them, and how shared memory gets them.
#pragma once

#include <type_traits>

#include "platform.cuh"

namespace dacergnn::cuda {

// Lists of rows are pointers to indices; nullptr stands for the list 0, 1, 2, ..., which the compiler then knows.
template <class List>
__device__ inline int64_t at(const List list, int64_t i) {
    if constexpr (std::is_null_pointer_v<List>)
        return i;
    else
        return static_cast<int64_t>(list[i]);
}

__host__ __device__ constexpr int64_t divide_up(int64_t n, int64_t by) { return (n + by - 1) / by; }
__host__ __device__ constexpr int64_t round_up(int64_t n, int64_t unit) { return divide_up(n, unit) * unit; }
template <class T>
__host__ __device__ constexpr T smaller(T a, T b) {
    return b < a ? b : a;
}

// Describes types of rows: type t has the rows ptr[t] .. ptr[t + 1], where ptr[0] = 0, and the weight t.
template <class I>
struct Segments {
    const I* ptr;
    int64_t types;

    __device__ int64_t start(int64_t t) const { return static_cast<int64_t>(ptr[t]); }
    __device__ int64_t weight(int64_t t) const { return t; }
    __device__ int64_t type_of(int64_t row) const {
        int64_t low = 0, high = types;
        while (high - low > 1) {
            const int64_t middle = (low + high) / 2;
            (start(middle) <= row ? low : high) = middle;
        }
        return low;
    }
};

// Describes types of `rows` rows each; type t has the weight weights[t].
template <class List = std::nullptr_t>
struct EqualSegments {
    int64_t rows;
    int64_t types = 1;
    List weights = nullptr;

    __device__ int64_t start(int64_t t) const { return t * rows; }
    __device__ int64_t weight(int64_t t) const { return at(weights, t); }
    __device__ int64_t type_of(int64_t row) const { return row / rows; }
};

// Describes a step: rows of one type, first .. first + count counted from the first of the block, and the next part of
// the product with them. With count 0 nothing is left.
struct Step {
    int first = 0, count = 0, stop = 0, type = 0, panel = 0, chunk = 0;
};

// Lists the steps of a block: `length` rows from `begin` on, at most Rows at a time, in Panels x Chunks steps each.
template <int Rows, int Panels, int Chunks, class Types>
struct Walk {
    const Types& types;
    int64_t begin;
    int length;

    __device__ Walk(const Types& types, int64_t begin, int64_t length, int64_t total)
        : types(types), begin(begin), length(static_cast<int>(smaller(length, total - begin))) {}

    __device__ Step start() const {
        Step step;
        step.type = static_cast<int>(types.type_of(begin));
        return rows_from(step, 0);
    }

    __device__ Step after(Step step) const {
        if (step.count == 0) return step;
        if (++step.chunk < Chunks) return step;
        step.chunk = 0;
        if (++step.panel < Panels) return step;
        step.panel = 0;
        return rows_from(step, step.first + step.count);
    }

  private:
    __device__ Step rows_from(Step step, int first) const {
        step.first = first;
        step.count = 0;
        if (first >= length) return step;
        if (first >= step.stop) {
            int64_t end;
            while ((end = types.start(step.type + 1)) <= begin + first) ++step.type;
            step.stop = static_cast<int>(smaller<int64_t>(end - begin, length));
        }
        step.count = smaller(Rows, step.stop - first);
        return step;
    }
};

// Holds the source of a row (or of the terms that it is the sum of) and the target of its result.
struct Place {
    int64_t source, source_end, target;
};

// Loads Heads x Depth elements of each of `count` rows into shared memory, row by row at `stride`, zeros where there
// are none: from head `head` and its element `from` on. Rows have H heads of D elements, ColumnStride apart; place(row)
// is the offset of a row in X. The copies are asynchronous if rows are made of 16-byte words.
template <int Threads, int Rows, int64_t H, int64_t D, int64_t ColumnStride, int Heads, int Depth, class Value,
          class PlaceOf>
__device__ inline void load_rows(const Value* X, PlaceOf place, int count, int head, int from, Value* into,
                                 int stride) {
    constexpr int V = 16 / sizeof(Value), kRow = Heads * Depth;
    if constexpr (ColumnStride == 1 && D % V == 0 && Depth % V == 0) {
#pragma unroll 4
        for (int n = threadIdx.x; n < Rows * (kRow / V); n += Threads) {
            const int row = n / (kRow / V), column = n % (kRow / V) * V, h = column / Depth, d = column % Depth;
            const bool valid = row < count && head + h < H && from + d < D;
            const Value* source = valid ? X + place(row) + (head + h) * D + from + d : X;
            copy_async16(into + row * stride + column, source, valid);
        }
    } else {
        for (int n = threadIdx.x; n < Rows * kRow; n += Threads) {
            // Neighboring threads read neighboring elements.
            const int row = ColumnStride == 1 ? n / kRow : n % Rows, column = ColumnStride == 1 ? n % kRow : n / Rows;
            const int h = column / Depth, d = column % Depth;
            const bool valid = row < count && head + h < H && from + d < D;
            into[row * stride + column] = valid ? X[place(row) + ((head + h) * D + from + d) * ColumnStride] : Value(0);
        }
    }
}

// Finds the rows of a list, each gathered from X, whose rows have Width elements.
template <class Value, int64_t Width, class Gather, class List>
struct GatheredRows {
    static constexpr int64_t kColumnStride = 1;
    const Value* X;
    Gather gather;
    List rows;

    __device__ Place find(int64_t p) const {
        const int64_t i = at(rows, p);
        return {at(gather, i) * Width, 0, i};
    }
};

// Finds the rows of matrices X[list[i]] of Rows x Width, one matrix after the other. Transposed: X holds Width x Rows.
template <class Value, int64_t Rows, int64_t Width, bool Transposed, class List>
struct MatrixRows {
    static constexpr int64_t kColumnStride = Transposed ? Rows : 1;
    const Value* X;
    List list;

    __device__ Place find(int64_t p) const {
        const int64_t i = p / Rows, row = p % Rows;
        return {at(list, i) * (Rows * Width) + row * (Transposed ? 1 : Width), 0, p};
    }
};

}  // namespace dacergnn::cuda
