// Shares a loop among threads that end with it. The threads that OpenMP keeps would be missing in forked processes.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <system_error>
#include <thread>
#include <vector>

namespace dacergnn::sampling {

using Number = std::int64_t;

// Returns the number of threads for a loop over so many nodes or edges.
inline Number worth(Number items, Number threads) { return items < 8192 ? 1 : threads; }

// Calls `work(first, last)` for ranges of at most `grain` that cover 0..count. Each thread has a copy of `work`.
template <class Work>
void share(Number count, Number grain, Number threads, const Work &work) {
  std::atomic<Number> next = 0;
  std::atomic<bool> failed = false;
  std::exception_ptr error;
  const auto run = [&] {
    try {
      Work mine = work;
      for (Number first; !failed && (first = next.fetch_add(grain)) < count;)
        mine(first, std::min(first + grain, count));
    } catch (...) {
      if (!failed.exchange(true)) error = std::current_exception();
    }
  };
  std::vector<std::jthread> others;
  try {
    for (Number other = 1; other < std::min(threads, (count + grain - 1) / grain); ++other) others.emplace_back(run);
  } catch (const std::system_error &) {  // no more threads can start; the others do the work
  }
  run();
  others.clear();
  if (error) std::rethrow_exception(error);
}

}  // namespace dacergnn::sampling
