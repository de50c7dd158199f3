// A batch: some nodes of a graph with their features, and edges between them.
#pragma once

#include <span>
#include <vector>

#include "sampling/chooser.h"

namespace graph_store {

using dacergnn::sampling::Number;

// Numbers keys in the order in which they come: a hash table with open addressing. It is emptied in no time, and keeps
// its memory.
class Numbering {
 public:
  // Returns the number of a key; a new key gets the number `fresh`.
  Number insert(Number key, Number fresh) {
    std::uint64_t at = place(key);
    if (slots_[at].round != round_) {
      if (++count_ * 2 > slots_.size()) {
        grow();
        at = place(key);
      }
      slots_[at] = {key, fresh, round_};
    }
    return slots_[at].number;
  }

  void clear() noexcept {
    ++round_;
    count_ = 0;
  }

 private:
  struct Slot {
    Number key = 0, number = 0;
    std::uint64_t round = 0;  // The slot is free in all other rounds.
  };

  std::uint64_t place(Number key) const noexcept {
    std::uint64_t place = (std::uint64_t)key * dacergnn::sampling::kStep >> shift_;
    while (slots_[place].round == round_ && slots_[place].key != key) place = (place + 1) & (slots_.size() - 1);
    return place;
  }

  void grow() {
    std::vector<Slot> old(slots_.size() * 4);
    old.swap(slots_);
    shift_ -= 2;
    for (const Slot &slot : old)
      if (slot.round == round_) slots_[place(slot.key)] = slot;
  }

  std::vector<Slot> slots_ = std::vector<Slot>(256);
  int shift_ = 56;  // Leaves as many bits of a hash as number the slots.
  std::uint64_t count_ = 0, round_ = 1;
};

// It belongs to one thread, which uses it again and again: `neighbourhood` overwrites it, and keeps its memory.
class Batch {
 public:
  Number types() const noexcept { return (Number)types_.size(); }
  Number relations() const noexcept { return (Number)relations_.size(); }

  // Returns the ids of the nodes of a type in the store. The seeds come first.
  std::span<const Number> ids(Number type) const { return types_.at(type).ids; }

  // Returns the features [nodes, width] of a type.
  std::span<const float> features(Number type) const {
    return {types_.at(type).features.data(), types_.at(type).ids.size() * types_.at(type).width};
  }

  // Returns the edges [2, E] of a relation, sources first, as places of nodes in this batch.
  std::span<const Number> edges(Number relation) const { return relations_.at(relation).edges; }

  // Writes the inputs of a model: the features of all types, then the edges of all relations. `Input` is a structure
  // with `data` and `sizes[4]`, such as `model_input`. Sizes beyond the second are 1.
  template <class Input>
  void write_inputs(Input *inputs) const {
    for (const Type &type : types_) *inputs++ = {type.features.data(), {(Number)type.ids.size(), type.width, 1, 1}};
    for (const Relation &relation : relations_)
      *inputs++ = {relation.edges.data(), {2, (Number)relation.edges.size() / 2, 1, 1}};
  }

 private:
  friend class Sampling;

  struct Type {
    std::vector<Number> ids;
    std::vector<float> features;  // At least as long as needed.
    Number width = 0;
    Number begin = 0, end = 0;  // The nodes that the last hop has reached.
    Numbering places;
  };

  struct Relation {
    std::vector<Number> edges;         // The sources, until destinations follow in the end.
    std::vector<Number> destinations;
  };

  void clear(Number types, Number relations) {
    types_.resize(types);
    relations_.resize(relations);
    for (Type &type : types_) {
      type.ids.clear();
      type.features.reserve(1);  // so that there is an address even without nodes
      type.places.clear();
    }
    for (Relation &relation : relations_) {
      relation.edges.clear();
      relation.edges.reserve(1);
      relation.destinations.clear();
    }
  }

  std::vector<Type> types_;
  std::vector<Relation> relations_;
  dacergnn::sampling::Chooser chooser_{nullptr, 0, false};  // Chooses just as many as it is told.
  std::vector<Number> chosen_, starts_;
};

}  // namespace graph_store
