// Allocations fail now and then: writes that cannot finish leave the graph as it is.
// Usage: store_faults STEPS, linked with -Wl,--wrap=malloc. Prints how many writes have been finished and have failed.
#include <cstdio>
#include <stdexcept>

#include "graph_store/neighbourhood.h"

using namespace dacergnn;
using namespace graph_store;

static Number allocations_left = -1;  // Then one fails. None does if it is negative.

static bool fails() { return allocations_left >= 0 && allocations_left-- == 0; }

extern "C" void *__real_malloc(std::size_t);
extern "C" void *__wrap_malloc(std::size_t bytes) { return fails() ? nullptr : __real_malloc(bytes); }

void *operator new(std::size_t bytes) {
  void *memory = fails() ? nullptr : __real_malloc(bytes);
  if (!memory) throw std::bad_alloc();
  return memory;
}
void *operator new(std::size_t bytes, std::align_val_t alignment) {
  if (fails()) throw std::bad_alloc();
  return std::aligned_alloc((std::size_t)alignment, bytes);
}
void operator delete(void *memory) noexcept { std::free(memory); }
void operator delete(void *memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void *memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void *memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

constexpr Number kMostNodes = 400, kWidths[] = {3, 1};
constexpr Relation kRelations[] = {{0, 0}, {0, 1}, {1, 0}};

// All that readers see of a store.
struct Picture {
  std::vector<Number> nodes[2], edges[3], counts;
  std::vector<float> features[2];

  explicit Picture(const Snapshot &snapshot) {
    Batch batch;
    const Number fanouts[] = {-1, -1, -1};
    for (Number type = 0; type < 2; ++type) {
      for (Number id = 0; id < kMostNodes; ++id)
        if (snapshot.nodes(type).at(id, snapshot.version())) nodes[type].push_back(id);
      neighbourhood(snapshot, type, nodes[type], fanouts, 0, batch);
      features[type].assign(batch.features(type).begin(), batch.features(type).end());
      for (Number r = 0; r < 3; ++r)
        if (kRelations[r].destination == type) edges[r].assign(batch.edges(r).begin(), batch.edges(r).end());
      counts.push_back(snapshot.count_nodes(type));
    }
    for (Number r = 0; r < 3; ++r) counts.push_back(snapshot.count_edges(r));
  }

  bool operator==(const Picture &) const = default;
};

static dacergnn::sampling::Random random_numbers(3);

static Number below(Number bound) { return (Number)random_numbers.below(bound); }

// Returns some of the nodes of a picture, with repetitions.
static std::vector<Number> some(const std::vector<Number> &nodes, Number count) {
  std::vector<Number> found;
  for (Number i = 0; !nodes.empty() && i < count; ++i) found.push_back(nodes[below((Number)nodes.size())]);
  return found;
}

static void change(Write &write, const Picture &picture) {
  const Number type = below(2), r = below(3), count = below(40);
  const std::vector<float> features(40 * 3, (float)below(1000));
  std::vector<Number> ids(40), sources = some(picture.nodes[kRelations[r].source], count),
                              destinations = some(picture.nodes[kRelations[r].destination], count);
  const Number pairs = (Number)std::min(sources.size(), destinations.size());
  switch (below(5)) {
    case 0:
      if (picture.nodes[type].size() < kMostNodes / 4) write.add_nodes(type, below(20), features.data(), ids.data());
      return;
    case 1:
      ids = some(picture.nodes[type], count);
      return write.set_features(type, (Number)ids.size(), ids.data(), features.data());
    case 2:
      ids = some(picture.nodes[type], below(3));
      return write.remove_nodes(type, (Number)ids.size(), ids.data());
    case 3:
      return write.add_edges(r, pairs, sources.data(), destinations.data());
    default:
      return write.remove_edges(r, std::min<Number>(pairs, 2), sources.data(), destinations.data());
  }
}

int main(int, char **arguments) {
  const Number steps = std::atoll(arguments[1]);
  Store store(kWidths, kRelations);
  Batch batch;
  Number finished = 0, failed = 0;
  std::vector<Snapshot> kept;
  for (Number step = 0; step < steps; ++step) {
    const Picture before(store.snapshot());
    try {
      store.write([&](Write &write) {
        do {
          allocations_left = -1;
          const Number next = below(60);
          allocations_left = next;
          change(write, before);
        } while (below(2));
      });
      ++finished;
    } catch (const std::exception &) {
      allocations_left = -1;
      ++failed;
      if (Picture(store.snapshot()) != before) return std::puts("A write that has failed changed the graph."), 1;
    }
    allocations_left = below(8);
    try {
      const Number fanouts[] = {-1, 30, 3};
      neighbourhood(store.snapshot(), 0, some(before.nodes[0], 1), fanouts, 0, batch);
    } catch (const std::exception &) {
    }
    allocations_left = -1;
    if (step % 50 == 0) kept.clear();
    if (step % 50 == 20) kept.push_back(store.snapshot());
  }
  std::printf("%lld %lld\n", (long long)finished, (long long)failed);
}
