// Checks what examples/deployment/cpp/model.hpp refuses, and that its models can be moved.
#include "model.h"
#include "model.hpp"

#include <cstdio>

EXPORTED_MODEL(Sage, model, MODEL);

static_assert(!std::is_copy_constructible_v<Sage> && std::is_nothrow_move_constructible_v<Sage>);

namespace {

int wrong = 0;

void require(bool holds, const char *what) {
  if (holds) return;
  std::printf("%s\n", what);
  ++wrong;
}

// Requires that an action throws an error whose text has a part.
template <class Thrown, class Action>
void refuses(const char *part, Action action) {
  try {
    action();
  } catch (const Thrown &error) {
    require(std::string(error.what()).find(part) != std::string::npos, error.what());
    return;
  }
  require(false, part);
}

std::vector<exported::View> arguments(const std::vector<float> &features, const std::vector<std::int64_t> &edges) {
  const exported::View x(features, {static_cast<std::int64_t>(features.size() / 16), 16});
  const exported::View pairs(edges, {2, static_cast<std::int64_t>(edges.size() / 2)});
  return {x, x, x, pairs, pairs, pairs, pairs};
}

}  // namespace

int main() {
  const std::vector<float> features(3 * 16, 0.5f);
  const std::vector<std::int64_t> edges = {0, 1, 2, 2, 1, 0}, far = {0, 1, 2, 2, 1, 3};
  Sage first;
  const auto results = first(arguments(features, edges), 1);
  require(results.size() == MODEL_OUTPUTS && results[0].label() == "out.paper", "There are other results");
  require(results[0].sizes() == exported::Sizes({3, 4}), "A result has other sizes");
  const std::vector<float> numbers = results[0].numbers<float>();
  require(numbers.size() == 12, "A result has another number of elements");

  refuses<exported::Error>("is out of range", [&] { first(arguments(features, far)); });
  try {
    first(arguments(features, far));
  } catch (const exported::Error &error) {
    require(error.code() == MODEL_BAD_INPUT, "An error has another code");
  }
  refuses<std::invalid_argument>("takes 7 arrays", [&] { first({}); });
  refuses<std::invalid_argument>("x.author needs numbers of type float32 and 2 sizes", [&] {
    auto own = arguments(features, edges);
    own[0] = exported::View(std::vector<double>(48), {3, 16});
    first(own);
  });
  refuses<std::invalid_argument>("do not fit", [&] { exported::View(features, {4, 16}); });
  refuses<std::invalid_argument>("do not fit", [&] { exported::View(features, {-3, -16}); });
  refuses<std::invalid_argument>("float32", [&] { results[0].numbers<int>(); });
  refuses<exported::Error>("cannot be read", [] { Sage("/no/such/file"); });

  Sage second = std::move(first);
  require(second(arguments(features, edges))[0].numbers<float>() == numbers, "A model that was moved differs");
  refuses<exported::Error>("is null", [&] { first(arguments(features, edges)); });
  first = std::move(second);
  require(first(arguments(features, edges))[0].numbers<float>() == numbers, "A model that was moved back differs");
  require(!first.processor().empty(), "The processor has no name");
  first.trim();
  return wrong;
}
