// Versions of the graph, who reads which of them, and memory that is freed once nobody can read it.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace graph_store {

using Number = std::int64_t;
using Version = std::uint64_t;  // Each write makes the next version.

inline constexpr Version kNever = ~Version{0};

// Memory from `allocate` that the newest version does not use any more. It is a list of its own, since a write that
// ends must not need memory.
struct Retired {
  Retired *next = nullptr;
  Version since = 0;  // The first version whose readers cannot find it.
};

inline void *allocate(std::size_t bytes) {
  void *memory = std::malloc(bytes);
  if (!memory) throw std::bad_alloc();
  return memory;
}

class Retirees {
 public:
  Retirees() = default;
  Retirees(const Retirees &) = delete;
  ~Retirees() { free_until(kNever); }

  // Takes over memory, in the order of versions.
  void add(Retired *item, Version since) noexcept {
    item->next = nullptr;
    item->since = since;
    (first_ ? last_->next : first_) = item;
    last_ = item;
  }

  // Frees what readers of `oldest` and later versions cannot find.
  void free_until(Version oldest) noexcept {
    while (first_ && first_->since <= oldest) {
      Retired *next = first_->next;
      std::free(first_);
      first_ = next;
    }
  }

 private:
  Retired *first_ = nullptr, *last_ = nullptr;
};

// The readers. Each has a slot in which it says the oldest version that it may read. Slots are never freed, so readers
// find one without a lock; there are as many as there were readers at the same time.
class Readers {
 public:
  struct alignas(64) Slot {
    std::atomic<Version> version{kNever};
    Slot *next = nullptr;
  };

  Readers() = default;
  Readers(const Readers &) = delete;
  ~Readers() {
    for (Slot *slot = first_.load(), *next; slot; slot = next) {
      next = slot->next;
      delete slot;
    }
  }

  // Says that a reader enters which reads this version or a later one.
  Slot *enter(Version version) {
    for (Slot *slot = first_.load(std::memory_order_acquire); slot; slot = slot->next) {
      Version vacant = kNever;
      if (slot->version.load(std::memory_order_relaxed) == kNever &&
          slot->version.compare_exchange_strong(vacant, version))
        return slot;
    }
    auto *slot = new Slot;
    slot->version.store(version);
    slot->next = first_.load();
    while (!first_.compare_exchange_weak(slot->next, slot)) {
    }
    return slot;
  }

  static void leave(Slot *slot) noexcept { slot->version.store(kNever, std::memory_order_release); }

  // Returns the oldest version that a reader may see, where `newest` is the newest one. A reader that enters meanwhile
  // is missed, but as it asks for the newest version only after it has entered, it gets this one or a later one.
  Version oldest(Version newest) const noexcept {
    Version oldest = newest;
    for (const Slot *slot = first_.load(); slot; slot = slot->next) oldest = std::min(oldest, slot->version.load());
    return oldest;
  }

  Number count() const noexcept {
    Number count = 0;
    for (const Slot *slot = first_.load(); slot; slot = slot->next) count += slot->version.load() != kNever;
    return count;
  }

 private:
  std::atomic<Slot *> first_{nullptr};
};

}  // namespace graph_store
