// Measures operators, in builds that read a clock before and behind each of them (`runtime/clocks.py`).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace dacergnn {

// Everything here is static: libraries in one process would share the variables of inline functions.
static std::mutex tick_lock;
static std::vector<double> tick_seconds;  // of each operator, in all runs since they were read

// Is called by each run before its first operator, with 0, and behind its k-th operator, with k.
static void tick(std::size_t k) {
  using Clock = std::chrono::steady_clock;
  static thread_local Clock::time_point before;
  const std::chrono::duration<double> passed = Clock::now() - before;
  if (k > 0) {
    const std::lock_guard<std::mutex> guard(tick_lock);
    if (tick_seconds.size() < k) tick_seconds.resize(k);
    tick_seconds[k - 1] += passed.count();
  }
  before = Clock::now();
}

}  // namespace dacergnn

// Writes the seconds of `count` operators, and sets them back to 0; returns an error message, or null.
extern "C" const char *read_ticks(double *seconds, std::int64_t count) {
  const std::lock_guard<std::mutex> guard(dacergnn::tick_lock);
  dacergnn::tick_seconds.resize(count);
  for (std::int64_t k = 0; k < count; ++k) seconds[k] = dacergnn::tick_seconds[k];
  dacergnn::tick_seconds.clear();
  return nullptr;
}
