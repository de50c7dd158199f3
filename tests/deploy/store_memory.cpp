// Inserts and removes without end: memory stays the same, and taking neighbourhoods needs none.
// Usage: store_memory STEPS. Prints by how many bytes the memory of the process and what it has allocated have grown,
// and how often neighbourhoods have allocated.
#include <malloc.h>

#include <cstdio>
#include <deque>
#include <fstream>
#include <optional>

#include "graph_store/neighbourhood.h"

using namespace dacergnn;
using namespace graph_store;

static thread_local Number allocations = 0;

void *operator new(std::size_t bytes) {
  ++allocations;
  return allocate(bytes);
}
void operator delete(void *memory) noexcept { std::free(memory); }
void operator delete(void *memory, std::size_t) noexcept { std::free(memory); }

Number resident_bytes() {
  Number pages = 0;
  std::ifstream("/proc/self/statm") >> pages >> pages;
  return pages * 4096;
}

constexpr Number kNodes = 1000, kEdges = 8000, kWidths[] = {16};
constexpr Relation kRelations[] = {{0, 0}, {0, 0}};

class Churn {
 public:
  Churn() : nodes_(kNodes) {
    const std::vector<float> features(kNodes * kWidths[0], 1.0f);
    store_.write([&](Write &write) { write.add_nodes(0, kNodes, features.data(), nodes_.data()); });
    for (Number i = 0; i < kEdges; ++i) add();
  }

  // Replaces an edge, and now and then a node or features. Some writes are given up, some snapshots are kept a while.
  void step(Number number) {
    struct GivenUp {};
    add();
    remove();
    if (number % 10 == 0) replace_node();
    if (number % 7 == 0)
      try {
        store_.write([&](Write &write) {
          for (int i = 0; i < 20; ++i) write.add_edges(1, 1, &nodes_[i], &nodes_[1]);
          write.set_features(0, 1, &nodes_[3], features_);
          write.remove_nodes(0, 1, &nodes_[2]);
          throw GivenUp();
        });
      } catch (const GivenUp &) {
      }
    if (number % 400 == 0) kept_.emplace(store_.snapshot());
    if (number % 400 == 100) kept_.reset();
    if (number % 100 == 0) look(number);
  }

  // Fills a batch, and returns how often it allocated memory.
  Number look(Number key) {
    const Number before = allocations, fanouts[] = {100, 5, 100, 5};
    neighbourhood(store_.snapshot(), 0, {nodes_.data(), 2}, fanouts, key, batch_);
    return allocations - before;
  }

 private:
  struct Edge {
    Number relation, from, to;
  };

  Number any() { return (Number)random_.below(kNodes); }

  // A third of all edges leads from node 0, another third leads to it.
  void add() {
    const Number end = (Number)random_.below(3), relation = end & 1;
    const Number from = end == 0 ? 0 : any(), to = end == 1 ? 0 : any();
    store_.write([&](Write &write) { write.add_edges(relation, 1, &nodes_[from], &nodes_[to]); });
    edges_.push_back({relation, nodes_[from], nodes_[to]});
  }

  void remove() {
    const auto [relation, from, to] = edges_.front();
    edges_.pop_front();
    store_.write([&](Write &write) { write.remove_edges(relation, 1, &from, &to); });
  }

  void replace_node() {
    const Number place = 1 + (Number)random_.below(kNodes - 1), old = nodes_[place];
    store_.write([&](Write &write) {
      write.remove_nodes(0, 1, &old);
      write.add_nodes(0, 1, features_, &nodes_[place]);
    });
    const Number lost = std::erase_if(edges_, [=](const Edge &edge) { return edge.from == old || edge.to == old; });
    for (Number i = 0; i < lost; ++i) add();
  }

  Store store_{kWidths, kRelations};
  std::vector<Number> nodes_;
  std::deque<Edge> edges_;
  std::optional<Snapshot> kept_;
  Batch batch_;
  float features_[16] = {};
  dacergnn::sampling::Random random_{1};
};

int main(int, char **arguments) {
  const Number steps = std::atoll(arguments[1]);
  Churn churn;
  for (Number i = 0; i < steps / 4; ++i) churn.step(i);
  const Number resident = resident_bytes(), used = (Number)mallinfo2().uordblks;
  for (Number i = 0; i < steps; ++i) churn.step(i);
  const Number more_resident = resident_bytes() - resident, more_used = (Number)mallinfo2().uordblks - used;
  Number allocated = 0;
  for (Number i = 0; i < 1000; ++i) churn.look(i);
  for (Number i = 0; i < 1000; ++i) allocated += churn.look(i);
  std::printf("%lld %lld %lld\n", (long long)more_resident, (long long)more_used, (long long)allocated);
}
