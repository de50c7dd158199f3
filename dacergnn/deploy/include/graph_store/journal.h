// What the write under way has changed, so that it can be undone, and what later writes have to clear up.
#pragma once

#include <deque>
#include <vector>

#include "reclaim.h"

namespace graph_store {

// It belongs to whoever writes. Functions that end a change or clear up cannot fail.
struct Journal {
  struct Change {
    // Keeps the change for good, or undoes it.
    void (*end)(const Change &change, Journal &journal, bool keep) noexcept;
    void *object;
    Number index = 0;
    Retired *replaced = nullptr;
  };

  struct Task {
    Version since;  // It is done when no reader sees an earlier version.
    void (*act)(void *object, Number index, Journal &journal) noexcept;
    void *object;
    Number index;
  };

  Version version = 0;  // The version that the write makes.
  Version oldest = 0;   // The oldest version that a reader may see.
  Retirees retirees;
  std::vector<Change> changes;
  std::deque<Task> tasks;   // In the order of versions.
  std::size_t earlier = 0;  // How many of them stay if the write is undone.

  void begin(Version made, Version seen) noexcept {
    version = made;
    oldest = seen;
    retirees.free_until(oldest);
    while (!tasks.empty() && tasks.front().since <= oldest) {
      const Task task = tasks.front();
      tasks.pop_front();
      task.act(task.object, task.index, *this);
    }
    earlier = tasks.size();
  }

  // Makes room, so that noting changes cannot fail after they have been made.
  void prepare(std::size_t count) {
    if (changes.capacity() - changes.size() < count) changes.reserve(2 * (changes.size() + count));
  }

  void keep() noexcept {
    for (const Change &change : changes) change.end(change, *this, true);
    changes.clear();
  }

  void undo() noexcept {
    tasks.resize(earlier);
    for (; !changes.empty(); changes.pop_back()) {
      const Change change = changes.back();
      change.end(change, *this, false);
    }
  }

  // Memory that the new version does not use. The write may still be undone if that changes nothing that is read.
  void retire(Retired *item) noexcept { retirees.add(item, version); }
};

}  // namespace graph_store
