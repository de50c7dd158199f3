// Numbers the nodes of a sample in the order in which they come.
#pragma once

#include <utility>
#include <vector>

#include "graph.h"
#include "random.h"

namespace dacergnn::sampling {

// A hash table with open addressing from a key, which is not negative, to its number. At least half of it is free.
class LocalIds {
 public:
  // Returns the number of a key; a new key gets the number `fresh`.
  Number insert(Number key, Number fresh) {
    std::uint64_t at = place(key);
    if (slots_[at].key < 0) {
      if (++count_ * 2 > slots_.size()) {
        grow();
        at = place(key);
      }
      slots_[at] = {key, fresh};
    }
    return slots_[at].id;
  }

  // Returns the number of a key, -1 if it has none.
  Number find(Number key) const { return slots_[place(key)].id; }

  // Has the processor fetch what `insert` will read.
  void prefetch(Number key) const { __builtin_prefetch(&slots_[start(key)]); }

 private:
  struct Slot {
    Number key = -1, id = -1;
  };

  std::uint64_t start(Number key) const { return (std::uint64_t)key * kStep >> shift_; }

  // Returns the slot of a key; for a new key, the first free slot from its start on.
  std::uint64_t place(Number key) const {
    std::uint64_t place = start(key);
    while (slots_[place].key >= 0 && slots_[place].key != key) place = (place + 1) & (slots_.size() - 1);
    return place;
  }

  void grow() {
    const std::vector<Slot> old = std::exchange(slots_, std::vector<Slot>(slots_.size() * 4));
    shift_ -= 2;
    for (const Slot &slot : old)
      if (slot.key >= 0) slots_[place(slot.key)] = slot;
  }

  std::vector<Slot> slots_{256};
  int shift_ = 56;  // Leaves as many bits of a hash as number the slots.
  std::uint64_t count_ = 0;
};

}  // namespace dacergnn::sampling
