// Passes sizes that nothing can have to the functions of exported models. None of them may read or write then.
#include <cstdio>

#include "deploy/arguments.h"
#include "deploy/graph.h"

namespace {

int wrong = 0;

template <class Action>
void expect(int code, const char *text, Action action) {
  const int found = deploy::guarded(deploy::message(), action);
  if (found == code && std::strstr(deploy::message().text, text) != nullptr) return;
  std::printf("code %d instead of %d: %s\n", found, code, deploy::message().text);
  ++wrong;
}

}  // namespace

int main() {
  deploy::Buffer buffer;
  constexpr std::int64_t rows = std::int64_t{1} << 31, huge = std::int64_t{1} << 40;
  expect(deploy::kBadInput, "2147483648 rows", [&] { deploy::counted(buffer, rows); });
  expect(deploy::kBadInput, "2147483648 rows", [&] { deploy::zeros(buffer, rows); });
  expect(deploy::kBadInput, "2147483648 rows", [&] { deploy::whole(buffer, rows); });
  const deploy::Ends ends{nullptr, nullptr, rows, 8};
  expect(deploy::kBadInput, "own: 2147483648 edges", [&] { deploy::with_loops(buffer, "own", ends, 2, 2, 2); });
  expect(deploy::kNoMemory, "-1 elements", [&] { buffer.of<float>(-1); });
  expect(deploy::kNoMemory, "elements", [&] { buffer.of<double>(std::int64_t{1} << 61); });
  expect(deploy::kNoMemory, "out has more", [&] {
    deploy::Output output{};
    deploy::set_sizes(output, {huge, huge});
    deploy::check_room(output, 2, 4, "out");
  });
  return wrong;
}
