// Operations on rows between the programs of an exported model, on a CUDA device. They have the names and arguments of
// those in tensors.h and row_functions.h; those that add up have memory for parts of sums besides.
#pragma once

#include <cmath>

#include "device_context.h"
#include "include/dacergnn/cuda/warp_reduce.cuh"
#include "pieces.h"

namespace deploy::device {

using dacergnn::cuda::kWarp;

inline constexpr int kThreads = 256;

// Prepares the launches of a call.
inline void begin(const DeviceContext &context) {
  dacergnn::cuda::call = {context.stream, nullptr, context.multiprocessors, nullptr, 0};
}

// Ends a call if a kernel could not be launched.
inline void check_launches() {
  if (dacergnn::cuda::call.failure != nullptr) fail(kDevice, "A kernel cannot be launched: %s", dacergnn::cuda::call.failure);
}

// Calls a function with each number below `count`, one number a thread.
template <class Function>
struct Each {
  std::int64_t count;
  Function function;
  __device__ void operator()() const {
    const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
    if (i < count) function(i);
  }
};
template <class Function>
void for_each(std::int64_t count, const Function &function) {
  dacergnn::cuda::launch<kThreads>((count + kThreads - 1) / kThreads, 0, Each<Function>{count, function});
}

template <class T>
struct Filled {
  T *to;
  T value;
  __device__ void operator()(std::int64_t i) const { to[i] = value; }
};
template <class T>
void fill(T *to, std::int64_t count, T value) {
  for_each(count, Filled<T>{to, value});
}

template <class T>
struct CopiedRows {
  T *to;
  const T *from;
  std::int64_t to_stride, from_stride, width;
  __device__ void operator()(std::int64_t i) const {
    const std::int64_t row = i / width, k = i % width;
    to[row * to_stride + k] = from[row * from_stride + k];
  }
};
template <class T>
void copy_rows(T *to, std::int64_t to_stride, const T *from, std::int64_t from_stride, std::int64_t rows,
               std::int64_t width) {
  for_each(rows * width, CopiedRows<T>{to, from, to_stride, from_stride, width});
}

template <class T, class I>
struct GatheredRows {
  T *to;
  const T *from;
  const I *index;
  std::int64_t rows, width;
  __device__ void operator()(std::int64_t i) const {
    std::int64_t row = index[i / width];
    if (row < 0) row += rows;
    to[i] = from[row * width + i % width];
  }
};
// The index is checked already.
template <class T, class I>
void gather_rows(T *to, const T *from, const I *index, std::int64_t count, std::int64_t rows, std::int64_t width) {
  for_each(count * width, GatheredRows<T, I>{to, from, index, rows, width});
}

// How two values become one, and from which value that starts.
struct Added {
  static constexpr double start = 0;
  __device__ double operator()(double a, double b) const { return a + b; }
};
template <int sign>
struct Extreme {
  static constexpr double start = -sign * HUGE_VAL;
  __device__ double operator()(double a, double b) const { return sign * b > sign * a || b != b ? b : a; }
};

// Reduces the rows of one piece, and of up to 32 columns, in a block. The order of sums is fixed.
template <class T, class Combine>
struct ReducedPieces {
  double *to;
  const T *from;
  Pieces pieces;
  std::int64_t width, tiles;
  __device__ void operator()() const {
    constexpr int kRows = kThreads / kWarp;
    __shared__ double found[kRows][kWarp];
    const std::int64_t piece = blockIdx.x / tiles, k = blockIdx.x % tiles * kWarp + dacergnn::cuda::lane();
    const int row = dacergnn::cuda::warp();
    double value = Combine::start;
    if (k < width)
      for (std::int64_t i = pieces.start(piece) + row; i < pieces.start(piece + 1); i += kRows)
        value = Combine()(value, from[pieces.row(i) * width + k]);
    found[row][dacergnn::cuda::lane()] = value;
    __syncthreads();
    if (row > 0 || k >= width) return;
    for (int other = 1; other < kRows; ++other) value = Combine()(value, found[other][dacergnn::cuda::lane()]);
    to[piece * width + k] = value;
  }
};

// Reduces the pieces of each group. `first` may hold a value for each group; null stands for the start of the sum.
template <class T, class Combine>
struct ReducedGroups {
  T *to;
  const T *first;
  const double *from;
  Pieces pieces;
  std::int64_t width;
  bool include, mean;
  __device__ void operator()(std::int64_t i) const {
    const std::int64_t group = i / width, k = i % width, begin = pieces.first(group), end = pieces.first(group + 1);
    const std::int64_t entries = pieces.start(end) - pieces.start(begin);
    if (entries == 0 && first != nullptr) {
      to[i] = first[i];
      return;
    }
    double value = include ? static_cast<double>(first[i]) : Combine::start;
    for (std::int64_t piece = begin; piece < end; ++piece) value = Combine()(value, from[piece * width + k]);
    to[i] = static_cast<T>(mean ? value / static_cast<double>(entries) : value);
  }
};

template <class Combine, class T>
void reduce(DeviceBuffer &buffer, T *to, const T *first, const T *from, const Pieces &pieces, std::int64_t width,
            bool include, bool mean) {
  double *const partial = buffer.of<double>(pieces.count * width);
  const std::int64_t tiles = (width + kWarp - 1) / kWarp;
  dacergnn::cuda::launch<kThreads>(pieces.count * tiles, 0, ReducedPieces<T, Combine>{partial, from, pieces, width, tiles});
  for_each(pieces.groups * width, ReducedGroups<T, Combine>{to, first, partial, pieces, width, include, mean});
}

template <class T>
void scatter_rows(DeviceBuffer &buffer, T *to, const T *first, const T *from, const Pieces &pieces, std::int64_t width,
                  Reduce kind, bool include) {
  if (kind == Reduce::kMax)
    reduce<Extreme<1>>(buffer, to, first, from, pieces, width, include, false);
  else if (kind == Reduce::kMin)
    reduce<Extreme<-1>>(buffer, to, first, from, pieces, width, include, false);
  else
    reduce<Added>(buffer, to, first, from, pieces, width, include, kind == Reduce::kMean);
}

template <bool mean, class T>
void sum_of_rows(DeviceBuffer &buffer, T *to, const T *from, std::int64_t rows, std::int64_t width) {
  reduce<Added>(buffer, to, (const T *)nullptr, from, Pieces::of_rows(rows), width, false, mean);
}

// Runs a function with each row, one row a warp. All lanes of a warp come to the same places.
template <class Function>
struct EachRow {
  std::int64_t rows;
  Function function;
  __device__ void operator()() const {
    const std::int64_t row = std::int64_t{blockIdx.x} * (kThreads / kWarp) + dacergnn::cuda::warp();
    if (row < rows) function(row, dacergnn::cuda::lane());
  }
};
template <class Function>
void for_each_row(std::int64_t rows, const Function &function) {
  constexpr int kRows = kThreads / kWarp;
  dacergnn::cuda::launch<kThreads>((rows + kRows - 1) / kRows, 0, EachRow<Function>{rows, function});
}

// Returns the larger of two numbers; NaN counts as the largest.
struct Larger {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return b > a || b != b ? b : a;
  }
};

template <bool logarithm, class T>
struct SoftmaxRows {
  T *to;
  const T *from;
  std::int64_t width;
  __device__ void operator()(std::int64_t row, int lane) const {
    const T *const own = from + row * width;
    T most = -static_cast<T>(HUGE_VAL), total = 0;
    for (std::int64_t k = lane; k < width; k += kWarp) most = Larger()(most, own[k]);
    most = dacergnn::cuda::warp_reduce(most, Larger());
    for (std::int64_t k = lane; k < width; k += kWarp) total += std::exp(own[k] - most);
    total = dacergnn::cuda::warp_sum(total);
    for (std::int64_t k = lane; k < width; k += kWarp)
      to[row * width + k] = logarithm ? own[k] - (most + std::log(total)) : std::exp(own[k] - most) / total;
  }
};
template <bool logarithm, class T>
void softmax_rows(T *to, const T *from, std::int64_t rows, std::int64_t width) {
  for_each_row(rows, SoftmaxRows<logarithm, T>{to, from, width});
}

template <int sign, class T>
struct ExtremeOfRows {
  T *to;
  std::int64_t *places;
  const T *from;
  std::int64_t width;
  __device__ bool better(T value, std::int64_t place, T best, std::int64_t at) const {
    if (best != best) return value != value && place < at;
    return value != value || sign * value > sign * best || (value == best && place < at);
  }
  __device__ void operator()(std::int64_t row, int lane) const {
    const T *const own = from + row * width;
    std::int64_t at = lane < width ? lane : 0;
    T best = own[at];
    for (std::int64_t k = at + kWarp; k < width; k += kWarp)
      if (better(own[k], k, best, at)) best = own[k], at = k;
    for (int distance = kWarp / 2; distance > 0; distance /= 2) {
      const T value = __shfl_xor_sync(dacergnn::cuda::kAll, best, distance);
      const long long place = __shfl_xor_sync(dacergnn::cuda::kAll, static_cast<long long>(at), distance);
      if (better(value, place, best, at)) best = value, at = place;
    }
    if (lane > 0) return;
    to[row] = best;
    places[row] = at;
  }
};
template <int sign, class T>
void extreme_of_rows(T *to, std::int64_t *places, const T *from, std::int64_t rows, std::int64_t width) {
  if (width > 0) for_each_row(rows, ExtremeOfRows<sign, T>{to, places, from, width});
}

}  // namespace deploy::device
