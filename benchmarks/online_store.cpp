// How many edges a second does one writer insert while two readers take neighbourhoods, and how long does one take?
//
//   g++ -std=c++20 -O3 -march=native -pthread -Idacergnn/deploy/include -Idacergnn/sampler/include
//     benchmarks/online_store.cpp -o online_store && ./online_store TYPES EDGES_IN_A_WRITE
//
// The graph has 100,000 nodes of so many types with 64 features, and 20 relations with 10 edges into each node. A
// neighbourhood has one seed and two hops of up to 10 edges of each relation. Each row of the table is a run of 3 s.
#include <chrono>
#include <cstdio>

#include "graph_store/neighbourhood.h"

using namespace dacergnn;
using namespace graph_store;

constexpr Number kNodes = 100000, kRelationCount = 20, kDegree = 10, kWidth = 64;
constexpr double kSeconds = 3;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::vector<Relation> relations(Number types) {
  std::vector<Relation> made;
  for (Number r = 0; r < kRelationCount; ++r) made.push_back({r % types, (r + r / types) % types});
  return made;
}

class Graph {
 public:
  explicit Graph(Number types)
      : ends(relations(types)), store(std::vector<Number>(types, kWidth), ends), nodes(kNodes / types) {
    store.write([&](Write &write) {
      const std::vector<float> features(nodes * kWidth, 0.5f);
      std::vector<Number> ids(nodes);
      for (Number type = 0; type < types; ++type) write.add_nodes(type, nodes, features.data(), ids.data());
    });
    dacergnn::sampling::Random random(0);
    for (Number r = 0; r < kRelationCount; ++r) insert(r, nodes * kDegree, random);
  }

  void insert(Number relation, Number count, dacergnn::sampling::Random &random) {
    for (std::vector<Number> *side : {&sources, &destinations}) {
      side->resize(count);
      for (Number &node : *side) node = (Number)random.below(nodes);
    }
    store.write([&](Write &write) { write.add_edges(relation, count, sources.data(), destinations.data()); });
  }

  void remove_last(Number relation) {
    store.write([&](Write &write) {
      write.remove_edges(relation, (Number)sources.size(), sources.data(), destinations.data());
    });
  }

  const std::vector<Relation> ends;
  Store store;
  const Number nodes;  // of each type
  std::vector<Number> sources, destinations;
};

// Takes neighbourhoods until told to stop.
struct Reading {
  Number taken = 0, edges = 0;
  double seconds = 0;

  void run(const Graph &graph, std::uint64_t key, const std::atomic<bool> &stop) {
    Batch batch;
    dacergnn::sampling::Random random(key);
    const std::vector<Number> fanouts(2 * kRelationCount, 10);
    while (!stop) {
      const Number seed = (Number)random.below(graph.nodes);
      const double start = now();
      neighbourhood(graph.store.snapshot(), 0, {&seed, 1}, fanouts, random.next(), batch);
      seconds += now() - start;
      ++taken;
      for (Number r = 0; r < kRelationCount; ++r) edges += (Number)batch.edges(r).size() / 2;
    }
  }
};

enum class Writes { kNone, kInsert, kInsertAndRemove };

void measure(Graph &graph, int readers, Writes writes, Number together, const char *name) {
  std::atomic<bool> stop = false;
  std::vector<Reading> readings(readers);
  Number inserted = 0;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < readers; ++i) threads.emplace_back([&, i] { readings[i].run(graph, i, stop); });
    dacergnn::sampling::Random random(7);
    const double end = now() + kSeconds;
    while (now() < end) {
      if (writes == Writes::kNone) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
        continue;
      }
      const Number relation = (Number)random.below(kRelationCount);
      graph.insert(relation, together, random);
      if (writes == Writes::kInsertAndRemove) graph.remove_last(relation);
      inserted += together;
    }
    stop = true;
  }
  Reading all;
  for (const Reading &one : readings) {
    all.taken += one.taken;
    all.edges += one.edges;
    all.seconds += one.seconds;
  }
  const double taken = (double)std::max<Number>(all.taken, 1);
  std::printf("%-32s %7d %14.0f %18.0f %14.1f %9.0f\n", name, readers, inserted / kSeconds, all.taken / kSeconds,
              1e6 * all.seconds / taken, all.edges / taken);
}

int main(int count, char **arguments) {
  if (count != 3) return std::fprintf(stderr, "usage: online_store TYPES EDGES_IN_A_WRITE\n"), 1;
  const Number types = std::atoll(arguments[1]), together = std::atoll(arguments[2]);
  if (types < 1 || types > kNodes || together < 1) return std::fprintf(stderr, "pass numbers from 1 on\n"), 1;
  const double start = now();
  Graph graph(types);
  const double seconds = now() - start;
  std::printf("inserting %lld edges at first took %.2f s\n", (long long)(graph.nodes * kDegree * kRelationCount),
              seconds);
  std::printf("%-32s %7s %14s %18s %14s %9s\n", "writer", "readers", "insertions/s", "neighbourhoods/s", "us for one",
              "edges");
  measure(graph, 1, Writes::kNone, together, "none");
  measure(graph, 0, Writes::kInsert, together, "inserts");
  measure(graph, 0, Writes::kInsertAndRemove, together, "inserts and removes");
  measure(graph, 2, Writes::kInsertAndRemove, together, "inserts and removes");
  measure(graph, 2, Writes::kInsert, together, "inserts");
}
