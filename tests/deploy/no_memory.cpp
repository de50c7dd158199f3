// Runs an exported model, built into this program, while one allocation after the other finds no memory.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <utility>

#include "requests.h"

namespace {
thread_local std::int64_t left = -1;  // allocations until one fails; negative for none
bool fails() { return left >= 0 && left-- == 0; }
}  // namespace

// All allocations of C++, and those of the buffers of calls.
void *operator new(std::size_t bytes) {
  void *const made = fails() ? nullptr : std::malloc(bytes ? bytes : 1);
  if (made == nullptr) throw std::bad_alloc();
  return made;
}
void *operator new(std::size_t bytes, const std::nothrow_t &) noexcept {
  return fails() ? nullptr : std::malloc(bytes ? bytes : 1);
}
void *operator new[](std::size_t bytes) { return operator new(bytes); }
void *operator new[](std::size_t bytes, const std::nothrow_t &same) noexcept { return operator new(bytes, same); }
void operator delete(void *memory) noexcept { std::free(memory); }
void operator delete(void *memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void *memory) noexcept { std::free(memory); }
void operator delete[](void *memory, std::size_t) noexcept { std::free(memory); }
extern "C" void *aligned_alloc(std::size_t alignment, std::size_t bytes) {
  void *made = nullptr;
  return fails() || posix_memalign(&made, alignment, bytes) != 0 ? nullptr : made;
}

// Runs an action with the first allocation failing, then the second, and so on, until it reaches none that fails.
// Returns how often it failed, since sorting also works without memory of its own; -1 if it had another code than that
// of missing memory, or no text.
template <class Action>
int failures(Action action) {
  int count = 0;
  for (std::int64_t allocation = 0;; ++allocation) {
    left = allocation;
    const int code = action();
    const bool reached = std::exchange(left, -1) < 0;
    if (code == MODEL_DONE) {
      if (!reached) return count;
    } else if (code == MODEL_NO_MEMORY && *model_message() != 0) {
      ++count;
    } else {
      std::fprintf(stderr, "allocation %lld: code %d, %s\n", (long long)allocation, code, model_message());
      return -1;
    }
  }
}

// Runs a request on a model that has no memory yet. Returns its code; negative if results are other than these.
int first_call(const Request &request, const Call &right) {
  const std::int64_t allocation = std::exchange(left, -1);
  Call call(request);
  model *own = nullptr;
  if (model_create(nullptr, &own) != MODEL_DONE) return -1;
  left = allocation;
  const int code = call.run(own, 1);
  model_destroy(own);
  if (code != MODEL_DONE) return call.untouched() ? code : -1;
  return std::equal(call.results, call.results + kTypes, right.results) ? code : -1;
}

int main() {
  Random random(3);
  model *own = nullptr;
  const int of_create = failures([&] { return model_create(nullptr, &own); });
  int of_calls = 0;
  for (int i = 0; i < 20; ++i) {
    const Request request(random);
    Call right(request);
    if (right.run(own, 1) != MODEL_DONE) return 1;
    const int count = failures([&] { return first_call(request, right); });
    if (count < 0) return 1;
    of_calls += count;
  }
  model_destroy(own);
  std::printf("%d failures of create, %d of calls\n", of_create, of_calls);
  return of_create > 0 && of_calls > 100 ? 0 : 1;
}
