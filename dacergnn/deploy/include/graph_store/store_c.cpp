// The functions of store_c.h.
#include "store_c.h"

#include "neighbourhood.h"

using graph_store::Code;
using graph_store::Number;

struct store {
  graph_store::Store graph;
  std::unique_ptr<graph_store::Write> open;  // The write from store_begin on; only its thread touches it.

  store(std::span<const Number> widths, std::span<const graph_store::Relation> relations) : graph(widths, relations) {}
};

struct store_snapshot {
  graph_store::Snapshot graph;
};

struct store_batch {
  graph_store::Batch nodes;
};

namespace {

// Texts are cut to this length, so that keeping one cannot fail.
thread_local char message[1024];

int report(Code code, const char *text) noexcept {
  std::strncpy(message, text, sizeof message - 1);
  return (int)code;
}

// Runs a function, and turns errors into codes.
template <class Function>
int guarded(Function function) noexcept {
  try {
    function();
    return STORE_OK;
  } catch (const graph_store::Error &error) {
    return report(error.code, error.what());
  } catch (const std::bad_alloc &) {
    return report(Code::kNoMemory, "There is too little memory; make the request smaller, or free memory.");
  } catch (const std::length_error &) {  // The sizes exceed the range of addresses.
    return report(Code::kNoMemory, "There is too little memory; make the request smaller, or free memory.");
  } catch (const std::exception &error) {
    return report(Code::kUnknown, error.what());
  }
}

void check_address(const void *address, const char *name) {
  if (!address) fail(Code::kBadArgument, name, " is null; pass an address.");
}

template <class Value>
std::span<const Value> array(const Value *values, Number count, const char *name) {
  if (count < 0 || count > Number{1} << 58)
    fail(Code::kBadArgument, "the size of ", name, " is ", count, "; pass a number from 0 on.");
  if (count) check_address(values, name);
  return {values, (std::size_t)count};
}

// Runs a function with the write that this thread has begun, or with one of its own.
template <class Function>
int written(store *graph, Function function) noexcept {
  return guarded([&] {
    check_address(graph, "graph");
    if (graph->graph.writes_here())
      function(*graph->open);
    else
      graph->graph.write(function);
  });
}

void check_open(const store *graph) {
  check_address(graph, "graph");
  if (!graph->graph.writes_here())
    fail(Code::kFailedWrite, "This thread has no write under way; call store_begin first.");
}

}  // namespace

const char *store_message(void) { return message; }

int store_create(int64_t types, const int64_t *widths, int64_t relations, const int64_t *ends, store **made) {
  return guarded([&] {
    check_address(made, "made");
    const auto features = array(widths, types, "widths");
    array(ends, relations, "ends");
    std::vector<graph_store::Relation> pairs;
    for (Number r = 0; r < relations; ++r) pairs.push_back({ends[2 * r], ends[2 * r + 1]});
    *made = new store(features, pairs);
  });
}

int store_destroy(store *graph) {
  return guarded([&] {
    if (!graph) return;
    if (const Number count = graph->graph.count_snapshots())
      fail(Code::kInUse, "There are ", count, " snapshots of this store; release them first.");
    if (graph->open) fail(Code::kInUse, "A write is under way; call store_commit or store_abort first.");
    delete graph;
  });
}

int store_add_nodes(store *graph, int64_t type, int64_t count, const float *features, int64_t *ids) {
  return written(graph, [=](graph_store::Write &write) { write.add_nodes(type, count, features, ids); });
}

int store_set_features(store *graph, int64_t type, int64_t count, const int64_t *ids, const float *features) {
  return written(graph, [=](graph_store::Write &write) { write.set_features(type, count, ids, features); });
}

int store_remove_nodes(store *graph, int64_t type, int64_t count, const int64_t *ids) {
  return written(graph, [=](graph_store::Write &write) { write.remove_nodes(type, count, ids); });
}

int store_add_edges(store *graph, int64_t relation, int64_t count, const int64_t *sources,
                    const int64_t *destinations) {
  return written(graph, [=](graph_store::Write &write) { write.add_edges(relation, count, sources, destinations); });
}

int store_remove_edges(store *graph, int64_t relation, int64_t count, const int64_t *sources,
                       const int64_t *destinations) {
  return written(graph, [=](graph_store::Write &write) { write.remove_edges(relation, count, sources, destinations); });
}

int store_begin(store *graph) {
  return guarded([&] {
    check_address(graph, "graph");
    auto write = std::make_unique<graph_store::Write>(graph->graph);
    graph->open = std::move(write);
  });
}

int store_commit(store *graph) {
  return guarded([&] {
    check_open(graph);
    const auto write = std::move(graph->open);  // now, as others may begin a write as soon as it is finished
    write->finish();
  });
}

int store_abort(store *graph) {
  return guarded([&] {
    check_open(graph);
    const auto write = std::move(graph->open);
  });
}

int store_snapshot_take(const store *graph, store_snapshot **made) {
  return guarded([&] {
    check_address(graph, "graph");
    check_address(made, "made");
    *made = new store_snapshot{graph->graph.snapshot()};
  });
}

void store_snapshot_release(store_snapshot *snapshot) { delete snapshot; }

int store_snapshot_sizes(const store_snapshot *snapshot, int64_t *nodes, int64_t *edges) {
  return guarded([&] {
    check_address(snapshot, "snapshot");
    const graph_store::Snapshot &graph = snapshot->graph;
    if (graph.types()) check_address(nodes, "nodes");
    if (graph.relations()) check_address(edges, "edges");
    for (Number type = 0; type < graph.types(); ++type) nodes[type] = graph.count_nodes(type);
    for (Number r = 0; r < graph.relations(); ++r) edges[r] = graph.count_edges(r);
  });
}

int store_batch_create(store_batch **made) {
  return guarded([&] {
    check_address(made, "made");
    *made = new store_batch;
  });
}

void store_batch_destroy(store_batch *batch) { delete batch; }

int store_neighbourhood(const store_snapshot *snapshot, int64_t type, int64_t count, const int64_t *seeds, int64_t hops,
                        const int64_t *fanouts, uint64_t random_seed, store_batch *batch) {
  return guarded([&] {
    check_address(snapshot, "snapshot");
    check_address(batch, "batch");
    const Number relations = snapshot->graph.relations();
    if (hops < 0 || hops > 1 << 20)
      fail(Code::kBadArgument, "hops is ", hops, "; pass the number of rows of fanouts, from 0 on.");
    graph_store::neighbourhood(snapshot->graph, type, array(seeds, count, "seeds"),
                          array(fanouts, hops * relations, "fanouts"), random_seed, batch->nodes);
  });
}

int store_batch_inputs(const store_batch *batch, store_tensor *inputs) {
  return guarded([&] {
    check_address(batch, "batch");
    if (batch->nodes.types()) check_address(inputs, "inputs");
    batch->nodes.write_inputs(inputs);
  });
}

int store_batch_ids(const store_batch *batch, int64_t type, const int64_t **ids, int64_t *count) {
  return guarded([&] {
    check_address(batch, "batch");
    check_address(ids, "ids");
    check_address(count, "count");
    if (type < 0 || type >= batch->nodes.types())
      fail(Code::kBadArgument, "type is ", type, ", but the batch has ", batch->nodes.types(),
           " node types, from 0 on; fill it first.");
    *ids = batch->nodes.ids(type).data();
    *count = (Number)batch->nodes.ids(type).size();
  });
}
