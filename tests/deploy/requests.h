// Random requests for the exported model of these tests, which has three types of nodes and four relations.
#pragma once

#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "model.h"

constexpr int kTypes = 3, kRelations = 4;
constexpr std::int64_t kIn = 16, kOut = 4;
constexpr unsigned char kUntouched = 0xA5;  // in all bytes of results that no call has written

struct Relation {
  int input, source, destination;
};

enum { kAuthor, kPaper, kVenue };
constexpr int kFeatures[kTypes] = {MODEL_X_AUTHOR, MODEL_X_PAPER, MODEL_X_VENUE};
constexpr int kResults[kTypes] = {MODEL_OUT_AUTHOR, MODEL_OUT_PAPER, MODEL_OUT_VENUE};
constexpr Relation kEdges[kRelations] = {
    {MODEL_EDGES_AUTHOR_WRITES_PAPER, kAuthor, kPaper},
    {MODEL_EDGES_PAPER_CITES_PAPER, kPaper, kPaper},
    {MODEL_EDGES_PAPER_REV_WRITES_AUTHOR, kPaper, kAuthor},
    {MODEL_EDGES_PAPER_APPEARS_IN_VENUE, kPaper, kVenue},
};

using Random = std::mt19937_64;

inline std::int64_t below(Random &random, std::int64_t bound) {
  return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(bound));
}

// A graph with features.
struct Request {
  std::int64_t nodes[kTypes];
  std::vector<float> features[kTypes];
  std::vector<std::int64_t> edges[kRelations];

  explicit Request(Random &random) {
    const std::int64_t most[] = {0, 1, 2, 8, 60, 300}, empty = below(random, 8);
    for (int type = 0; type < kTypes; ++type) {
      nodes[type] = type == empty ? 0 : below(random, most[below(random, 6)] + 1);
      features[type].resize(static_cast<std::size_t>(nodes[type] * kIn));
      for (float &number : features[type]) number = static_cast<float>(below(random, 2001) - 1000) / 500;
    }
    for (int r = 0; r < kRelations; ++r) {
      const std::int64_t sources = nodes[kEdges[r].source], destinations = nodes[kEdges[r].destination];
      const std::int64_t count = sources && destinations ? below(random, 4 * sources + 1) * below(random, 2) : 0;
      edges[r].resize(static_cast<std::size_t>(2 * count));
      for (std::int64_t i = 0; i < count; ++i) {
        edges[r][static_cast<std::size_t>(i)] = below(random, sources);
        edges[r][static_cast<std::size_t>(count + i)] = below(random, destinations);
      }
    }
  }

  std::int64_t edge_count(int relation) const { return static_cast<std::int64_t>(edges[relation].size() / 2); }
};

// The arguments and the results of a call. Memory of results has exactly the bytes that they need.
struct Call {
  model_input inputs[MODEL_INPUTS] = {};
  model_output outputs[MODEL_OUTPUTS] = {};
  std::vector<unsigned char> results[kTypes];

  explicit Call(const Request &request) {
    for (int type = 0; type < kTypes; ++type) {
      inputs[kFeatures[type]] = {request.features[type].data(), {request.nodes[type], kIn}};
      results[type].assign(static_cast<std::size_t>(request.nodes[type] * kOut) * sizeof(float), kUntouched);
      outputs[kResults[type]] = {results[type].data(), static_cast<std::int64_t>(results[type].size()), {-1, -1, -1, -1}};
    }
    for (int r = 0; r < kRelations; ++r)
      inputs[kEdges[r].input] = {request.edges[r].data(), {2, request.edge_count(r)}};
  }

  int run(const model *own, int threads) { return model_run(own, inputs, outputs, threads); }

  bool has_sizes(int type, std::int64_t rows) const {
    const std::int64_t *sizes = outputs[kResults[type]].sizes;
    return sizes[0] == rows && sizes[1] == kOut && sizes[2] == 0 && sizes[3] == 0;
  }

  bool untouched() const {
    for (const std::vector<unsigned char> &result : results)
      for (const unsigned char byte : result)
        if (byte != kUntouched) return false;
    return true;
  }
};
