// Sends many requests, good and bad ones, to an exported model from several threads, and checks every answer.
//
//   stress REQUESTS THREADS
//
// THREADS are those of each request; -1 for numbers that differ.
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>
#include <thread>

#include "requests.h"

namespace {

constexpr int kCallers = 8, kReferences = 40;
constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kSmallest = std::numeric_limits<std::int64_t>::min();

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kMemoryIsOurs = false;  // a sanitizer keeps memory that was freed
#else
constexpr bool kMemoryIsOurs = true;
#endif

// A request, and its results of the first time.
struct Reference {
  Request request;
  std::vector<unsigned char> results[kTypes];
};

void require(bool holds, const char *what, int code) {
  if (holds) return;
  std::fprintf(stderr, "%s; code %d: %s\n", what, code, model_message());
  std::_Exit(1);
}

// What a bad request should be answered.
struct Expected {
  int code;
  const char *text;  // a part of the message
};

template <std::size_t Count>
std::int64_t one_of(Random &random, const std::int64_t (&values)[Count]) {
  return values[below(random, Count)];
}

const char *const kNames[kTypes] = {"x.author", "x.paper", "x.venue"};
const char *const kResultNames[kTypes] = {"out.author", "out.paper", "out.venue"};

// Makes an index of an edge wrong. `edges` holds the copy that is passed.
bool wrong_index(Random &random, const Request &request, Call &call, std::vector<std::int64_t> &edges, Expected &answer) {
  const int r = static_cast<int>(below(random, kRelations));
  const std::int64_t count = request.edge_count(r), place = count ? below(random, 2 * count) : 0;
  if (count == 0) return false;
  const std::int64_t nodes = request.nodes[place < count ? kEdges[r].source : kEdges[r].destination];
  edges = request.edges[r];
  edges[static_cast<std::size_t>(place)] =
      one_of(random, {nodes, nodes + 1, -1, kSmallest, kLargest, std::int64_t{1} << 32, nodes + (std::int64_t{1} << 32)});
  call.inputs[kEdges[r].input].data = edges.data();
  answer = {MODEL_BAD_INPUT, "is out of range"};
  return true;
}

// Makes the address of an argument wrong: null, or not aligned.
bool wrong_address(Random &random, Call &call, Expected &answer) {
  model_input &input = call.inputs[below(random, MODEL_INPUTS)];
  if (input.sizes[0] * input.sizes[1] == 0) return false;
  const bool null = below(random, 2);
  input.data = null ? nullptr : static_cast<const char *>(input.data) + 1 + below(random, 3);
  answer = {MODEL_BAD_INPUT, null ? "is null" : "is no multiple"};
  return true;
}

// Makes a size wrong that differs from call to call.
bool wrong_open_size(Random &random, Call &call, Expected &answer) {
  const std::int64_t size = one_of(random, {-1, -16, kSmallest, kLargest, (std::int64_t{1} << 40) + 1, kLargest / 16 + 2});
  const bool features = below(random, 2);
  const int place = features ? kFeatures[below(random, kTypes)] : kEdges[below(random, kRelations)].input;
  call.inputs[place].sizes[features ? 0 : 1] = size;
  answer = {MODEL_BAD_INPUT, "out of range"};
  return true;
}

// Makes a size so large that edges or nodes have no index of 32 bits. Nothing may be read then.
bool too_many(Random &random, const Request &request, Call &call, Expected &answer) {
  const std::int64_t size = one_of(random, {std::int64_t{1} << 31, std::int64_t{1} << 33, std::int64_t{1} << 36});
  answer = {MODEL_BAD_INPUT, "indices of 64 bits"};
  const int type = static_cast<int>(below(random, kTypes)), r = static_cast<int>(below(random, kRelations));
  if (below(random, 2)) {
    call.inputs[kFeatures[type]].sizes[0] = size;
    call.outputs[kResults[type]].bytes = kLargest;
    return request.nodes[type] > 0;
  }
  call.inputs[kEdges[r].input].sizes[1] = size;
  return request.edge_count(r) > 0;
}

bool wrong_fixed_size(Random &random, Call &call, Expected &answer) {
  const bool features = below(random, 2);
  const int place = features ? kFeatures[below(random, kTypes)] : kEdges[below(random, kRelations)].input;
  const std::int64_t right = features ? kIn : 2;
  call.inputs[place].sizes[features ? 1 : 0] = one_of(random, {right - 1, right + 1, 0, -right, right << 45});
  answer = {MODEL_BAD_INPUT, " in axis "};
  return true;
}

// Makes the memory of a result too small, or its rows more than there is memory for.
bool too_small(Random &random, const Request &request, Call &call, Expected &answer) {
  const int type = static_cast<int>(below(random, kTypes));
  model_output &output = call.outputs[kResults[type]];
  answer = {MODEL_TOO_SMALL, kResultNames[type]};
  if (output.bytes == 0) return false;
  switch (below(random, 3)) {
    case 0: output.bytes = one_of(random, {output.bytes - 1, 0, -1, kSmallest}); break;
    case 1: output.data = nullptr; break;
    default:
      call.inputs[kFeatures[type]].sizes[0] =
          one_of(random, {request.nodes[type] + 1, std::int64_t{1} << 31, std::int64_t{1} << 36});
  }
  return true;
}

bool wrong_call(Random &random, const model *own, Call &call) {
  int code = MODEL_DONE;
  switch (below(random, 4)) {
    case 0: code = call.run(nullptr, 1); break;
    case 1: code = model_run(own, nullptr, call.outputs, 1); break;
    case 2: code = model_run(own, call.inputs, nullptr, 1); break;
    default: code = call.run(own, -1 - static_cast<int>(below(random, 5)));
  }
  require(code == MODEL_BAD_INPUT, "A call without sense was run", code);
  require(call.untouched(), "A failed call wrote to its results", code);
  return true;
}

// Sends a request that is wrong in one place; returns false if the request has no such place.
bool bad(Random &random, const model *own, const Request &request, int threads) {
  Call call(request);
  std::vector<std::int64_t> edges;
  Expected answer{};
  bool made = false;
  switch (below(random, 8)) {
    case 0:
    case 1: made = wrong_index(random, request, call, edges, answer); break;
    case 2: made = wrong_address(random, call, answer); break;
    case 3: made = wrong_open_size(random, call, answer); break;
    case 4: made = too_many(random, request, call, answer); break;
    case 5: made = wrong_fixed_size(random, call, answer); break;
    case 6: made = too_small(random, request, call, answer); break;
    default: return wrong_call(random, own, call);
  }
  if (!made) return false;
  const int code = call.run(own, threads);
  require(code == answer.code, "A bad request has the wrong code", code);
  require(std::strstr(model_message(), answer.text) != nullptr, answer.text, code);
  require(call.untouched(), "A failed call wrote to its results", code);
  if (code == MODEL_TOO_SMALL)
    for (int type = 0; type < kTypes; ++type)
      require(call.has_sizes(type, call.inputs[kFeatures[type]].sizes[0]), "A failed call told wrong sizes", code);
  return true;
}

// Sends a good request, whose results must have the same bits as those of the first time.
void good(const model *own, const Reference &reference, int threads) {
  Call call(reference.request);
  const int code = call.run(own, threads);
  require(code == MODEL_DONE, "A good request failed", code);
  for (int type = 0; type < kTypes; ++type) {
    require(call.has_sizes(type, reference.request.nodes[type]), "A good request has results of other sizes", code);
    require(call.results[type] == reference.results[type], "A good request has other results than before", code);
  }
}

Reference first_time(Random &random, const model *own) {
  Reference made{Request(random), {}};
  Call call(made.request);
  const int code = call.run(own, 1);
  require(code == MODEL_DONE, "A good request failed", code);
  for (int type = 0; type < kTypes; ++type) made.results[type] = call.results[type];
  return made;
}

// Makes models and frees memory while other threads run requests.
void disturb(const model *own, const Reference &reference) {
  model_trim(own);
  model *other = nullptr;
  int code = model_create("/no/such/file", &other);
  require(code == MODEL_BAD_WEIGHTS && other == nullptr && *model_message(), "Weights that do not exist were read", code);
  code = model_create(nullptr, &other);
  require(code == MODEL_DONE, "A second model cannot be made", code);
  good(other, reference, 1);
  model_destroy(other);
}

std::int64_t resident_kib() {
  long long pages = 0, resident = 0;
  std::FILE *file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr || std::fscanf(file, "%lld %lld", &pages, &resident) != 2) resident = 0;
  if (file != nullptr) std::fclose(file);
  return resident * sysconf(_SC_PAGESIZE) / 1024;
}

std::atomic<std::int64_t> bad_requests{0};

// Sends requests from several threads.
void send(const model *own, const std::vector<Reference> &references, std::int64_t requests, int threads, int round) {
  std::atomic<std::int64_t> left{requests};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < kCallers; ++caller)
    callers.emplace_back([&, caller] {
      Random random(static_cast<std::uint64_t>(100 * round + caller));
      while (left-- > 0) {
        const Reference &reference = references[static_cast<std::size_t>(below(random, kReferences))];
        const int own_threads = threads >= 0 ? threads : static_cast<int>(one_of(random, {0, 1, 2, 1000000}));
        const std::int64_t kind = below(random, 1000);
        if (kind == 0) disturb(own, reference);
        else if (kind < 100) good(own, first_time(random, own), own_threads);
        else if (kind < 500 && bad(random, own, reference.request, own_threads)) ++bad_requests;
        else good(own, reference, own_threads);
      }
    });
  for (std::thread &caller : callers) caller.join();
}

}  // namespace

int main(int count, char **arguments) {
  if (count != 3) {
    std::fprintf(stderr, "stress REQUESTS THREADS\n");
    return 2;
  }
  const std::int64_t requests = std::atoll(arguments[1]);
  const int threads = std::atoi(arguments[2]);
  model *own = nullptr;
  require(model_create(nullptr, nullptr) == MODEL_BAD_INPUT, "A model without a place was made", 0);
  const int code = model_create(nullptr, &own);
  require(code == MODEL_DONE, "The model cannot be made", code);
  Random random(1);
  std::vector<Reference> references;
  for (int i = 0; i < kReferences; ++i) references.push_back(first_time(random, own));
  const auto started = std::chrono::steady_clock::now();
  send(own, references, requests / 5, threads, 0);
  const std::int64_t warm = resident_kib();
  send(own, references, requests - requests / 5, threads, 1);
  const std::int64_t end = resident_kib();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - started;
  std::printf("%lld requests, %lld of them bad, in %.1f s; %lld KiB resident after the first fifth, %lld at the end\n",
              (long long)requests, (long long)bad_requests, seconds.count(), (long long)warm, (long long)end);
  require(!kMemoryIsOurs || end < warm + 4096, "Memory grows", 0);
  model_trim(nullptr);
  model_destroy(nullptr);
  require(*model_processor(nullptr) == 0 && *model_processor(own) != 0, "The processor has no name", 0);
  model_destroy(own);
}
