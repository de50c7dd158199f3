// Entries that are added up group by group, cut into pieces of about equal size, so that large groups are shared.
#pragma once

#include <cstdint>

#include "context.h"
#include "tensors.h"

#ifdef __CUDACC__
#define DEPLOY_BOTH __host__ __device__
#else
#define DEPLOY_BOTH
#endif

namespace deploy {

// The entries of each group in order: `order` holds their rows, `starts` the first entry of each piece, and `firsts` the
// first piece of each group. If all are null, there is one group of all rows.
struct Pieces {
  static constexpr std::int64_t kMost = 512;  // entries of a piece

  std::int64_t count, groups, entries;
  const std::int32_t *order, *starts, *firsts;

  static Pieces of_rows(std::int64_t rows) { return {(rows + kMost - 1) / kMost, 1, rows, nullptr, nullptr, nullptr}; }

  DEPLOY_BOTH std::int64_t row(std::int64_t entry) const { return order != nullptr ? order[entry] : entry; }
  DEPLOY_BOTH std::int64_t start(std::int64_t piece) const {
    if (starts != nullptr) return starts[piece];
    return piece * kMost < entries ? piece * kMost : entries;
  }
  DEPLOY_BOTH std::int64_t first(std::int64_t group) const { return firsts != nullptr ? firsts[group] : group * count; }
};

// Returns the groups of entries whose index is the same, in memory of the host.
template <class I>
Pieces pieces_of(Buffer &buffer, const I *index, std::int64_t count, std::int64_t groups, const char *label) {
  constexpr std::int64_t kMostEntries = INT32_MAX;
  check_index(index, count, groups, label, false);
  if (count > kMostEntries || groups > kMostEntries)
    fail(kBadInput, "%s: %lld rows and %lld groups need indices of 64 bits; pass a smaller batch.", label, (long long)count,
         (long long)groups);
  const std::int64_t most = groups + count / Pieces::kMost + 1;
  std::int32_t *const order = buffer.of<std::int32_t>(count + most + groups + 1), *const starts = order + count;
  std::int32_t *const firsts = starts + most;
  std::fill_n(firsts, groups + 1, 0);
  for (std::int64_t i = 0; i < count; ++i) ++firsts[index[i] + 1];
  for (std::int64_t group = 0; group < groups; ++group) firsts[group + 1] += firsts[group];  // first entries, for now
  std::int64_t pieces = 0, end = 0;
  for (std::int64_t i = 0; i < count; ++i) order[firsts[index[i]]++] = static_cast<std::int32_t>(i);
  for (std::int64_t group = 0; group < groups; ++group) {
    const std::int64_t begin = end;
    end = firsts[group];
    firsts[group] = static_cast<std::int32_t>(pieces);
    for (std::int64_t start = begin; start < end; start += Pieces::kMost) starts[pieces++] = static_cast<std::int32_t>(start);
  }
  firsts[groups] = static_cast<std::int32_t>(pieces);
  starts[pieces] = static_cast<std::int32_t>(count);
  return {pieces, groups, count, order, starts, firsts};
}

}  // namespace deploy
