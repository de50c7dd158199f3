// Memory and errors of the calls of an exported model.
#pragma once

#include <algorithm>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

// Runs a program. Benchmarks define it to measure kernels alone.
#if !defined(DEPLOY_RUN)
#define DEPLOY_RUN(call) call
#endif

namespace deploy {

// Codes that functions of a model return. The header of the model repeats them.
enum Code { kDone = 0, kBadInput = 1, kNoMemory = 2, kBadWeights = 3, kNoProcessor = 4, kTooSmall = 5, kDevice = 6 };

// Holds the text of the last error of the calling thread.
struct Message {
  char text[1024] = "";
};

inline Message &message() {
  static thread_local Message own;
  return own;
}

// Ends a call. The text is in `message` already.
struct Failure {
  int code;
};

[[gnu::format(printf, 2, 3), noreturn]] inline void fail(int code, const char *format, ...) {
  va_list values;
  va_start(values, format);
  std::vsnprintf(message().text, sizeof message().text, format, values);
  va_end(values);
  throw Failure{code};
}

// A kind of memory, and how pieces of it are taken and given back. `take` returns null if there is none.
struct Memory {
  const char *name;
  void *(*take)(std::size_t bytes);
  void (*give)(void *data);
};
inline constexpr Memory kPlain{"memory", [](std::size_t bytes) { return std::aligned_alloc(64, bytes); }, std::free};

// A piece of memory that only grows, so that calls of equal size allocate nothing.
class Buffer {
 public:
  explicit Buffer(const Memory &memory = kPlain) : memory_(memory) {}
  Buffer(const Buffer &) = delete;
  Buffer &operator=(const Buffer &) = delete;
  ~Buffer() { memory_.give(data_); }

  // Returns memory for `count` elements; what was there before is lost.
  template <class T>
  T *of(std::int64_t count) {
    constexpr std::int64_t kMost = std::int64_t{1} << 60;  // bytes, far more than there is
    if (count < 0 || count > kMost / static_cast<std::int64_t>(sizeof(T)))
      fail(kNoMemory, "There is no %s for %lld elements; pass a smaller batch.", memory_.name, (long long)count);
    const std::size_t bytes = (static_cast<std::size_t>(std::max<std::int64_t>(count, 1)) * sizeof(T) + 63) / 64 * 64;
    if (bytes > bytes_) {
      memory_.give(data_);
      bytes_ = 0;
      const std::size_t room = bytes + bytes / 4 / 64 * 64;  // sizes differ a little from call to call
      data_ = memory_.take(room);
      if (data_ == nullptr) fail(kNoMemory, "There is no %s for %zu bytes; pass a smaller batch.", memory_.name, room);
      bytes_ = room;
    }
    return static_cast<T *>(data_);
  }

 private:
  const Memory &memory_;
  void *data_ = nullptr;
  std::size_t bytes_ = 0;
};

// Memory of a call in parallel to others; calls take turns in using it.
struct Context {
  explicit Context(int slots) : slots(slots) {}
  std::vector<Buffer> slots;
  std::unique_ptr<Context> next;  // of those that are idle
};

// Holds the contexts that no call uses at the moment.
class Contexts {
 public:
  explicit Contexts(int slots) : slots_(slots) {}

  std::unique_ptr<Context> take() {
    {
      const std::lock_guard<std::mutex> guard(mutex_);
      if (idle_ != nullptr) {
        std::unique_ptr<Context> context = std::move(idle_);
        idle_ = std::move(context->next);
        return context;
      }
    }
    return std::make_unique<Context>(slots_);
  }

  // Takes a context back, also if there is no memory left.
  void give(std::unique_ptr<Context> context) noexcept {
    const std::lock_guard<std::mutex> guard(mutex_);
    context->next = std::move(idle_);
    idle_ = std::move(context);
  }

  // Frees the memory that no call uses.
  void clear() {
    const std::lock_guard<std::mutex> guard(mutex_);
    while (idle_ != nullptr) idle_ = std::move(idle_->next);
  }

 private:
  std::mutex mutex_;
  std::unique_ptr<Context> idle_;
  int slots_;
};

// The memory of one call, which other calls use later.
template <class Pool>
class Lease {
 public:
  explicit Lease(Pool &pool) : pool_(pool), context_(pool.take()) {}
  Lease(const Lease &) = delete;
  Lease &operator=(const Lease &) = delete;
  ~Lease() { pool_.give(std::move(context_)); }
  auto &operator*() const { return *context_; }

 private:
  Pool &pool_;
  decltype(pool_.take()) context_;
};

// Runs a function at a border that no exception may cross; returns its code, and copies the text of an error.
template <class Function>
int guarded(Message &told, Function function) noexcept {
  try {
    function();
    return kDone;
  } catch (const Failure &failure) {
    if (&told != &message()) std::snprintf(told.text, sizeof told.text, "%s", message().text);
    return failure.code;
  } catch (const std::bad_alloc &) {
    std::snprintf(told.text, sizeof told.text, "There is no memory for this call; pass a smaller batch.");
    return kNoMemory;
  } catch (const std::exception &error) {
    std::snprintf(told.text, sizeof told.text, "%s", error.what());
    return kNoMemory;
  }
}

}  // namespace deploy
