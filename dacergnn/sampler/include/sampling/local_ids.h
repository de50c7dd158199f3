// Numbers the nodes of a sample in the order in which they come.
#pragma once

#include <bit>
#include <utility>
#include <vector>

#include "graph.h"
#include "random.h"

namespace dacergnn::sampling {

// A hash table with open addressing from a key, which is not negative, to its number.
class LocalIds {
 public:
  // Makes room for `more` keys besides those that are there.
  void reserve(Number more) {
    const std::uint64_t needed = std::bit_ceil((std::uint64_t)(count_ + more) * 2 + 2);
    if (needed <= slots_.size()) return;
    const std::vector<Slot> old = std::exchange(slots_, std::vector<Slot>(needed));
    shift_ = 64 - std::countr_zero(needed);
    for (const Slot &slot : old)
      if (slot.key >= 0) slots_[place(slot.key)] = slot;
  }

  // Returns the number of a key, which is `fresh` from now on if it had none. There has to be room.
  Number insert(Number key, Number fresh) {
    Slot &slot = slots_[place(key)];
    if (slot.key < 0) {
      slot = {key, fresh};
      ++count_;
    }
    return slot.id;
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

  // Returns where a key is, or would be: in the first free slot from its start on.
  std::uint64_t place(Number key) const {
    std::uint64_t place = start(key);
    while (slots_[place].key >= 0 && slots_[place].key != key) place = (place + 1) & (slots_.size() - 1);
    return place;
  }

  std::vector<Slot> slots_{2};
  int shift_ = 63;
  Number count_ = 0;
};

}  // namespace dacergnn::sampling
