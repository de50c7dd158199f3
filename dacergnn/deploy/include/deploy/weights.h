// The weights of an exported model: a part of its library, or a file that is mapped into memory.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "context.h"

namespace deploy {

// Describes the weights of a model.
struct WeightsDescription {
  const char *name;  // of the model
  const std::int64_t *offsets;  // of each, behind the header of the file
  int count;
  const char *header;  // what the file begins with
  std::int64_t header_bytes, bytes;
  const void *embedded;  // the file within the library; null if it lies beside
};

// A file in memory.
class Mapping {
 public:
  Mapping() = default;
  Mapping(const Mapping &) = delete;
  Mapping &operator=(const Mapping &) = delete;
  ~Mapping() {
    if (data_) munmap(data_, bytes_);
  }

  const char *open(const char *path, std::int64_t bytes) {
    const int file = ::open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) fail(kBadWeights, "The weights %s cannot be read: %s.", path, std::strerror(errno));
    struct stat status;
    const bool known = fstat(file, &status) == 0;
    if (!known || status.st_size != bytes) {
      ::close(file);
      fail(kBadWeights, "The weights %s have %lld bytes, and the model needs %lld; pass the file that was exported with it.",
           path, known ? (long long)status.st_size : -1LL, (long long)bytes);
    }
    void *const data = mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ, MAP_PRIVATE, file, 0);
    ::close(file);
    if (data == MAP_FAILED) fail(kNoMemory, "The weights %s cannot be mapped: %s.", path, std::strerror(errno));
    data_ = data;
    bytes_ = static_cast<std::size_t>(bytes);
    return static_cast<const char *>(data);
  }

 private:
  void *data_ = nullptr;
  std::size_t bytes_ = 0;
};

// The addresses of weights in memory of the host.
class Weights {
 public:
  Weights(const WeightsDescription &own, const char *path) {
    const char *file = static_cast<const char *>(own.embedded);
    if (file == nullptr && path == nullptr) fail(kBadWeights, "The path of the weights is null; %s needs a file.", own.name);
    if (path != nullptr) file = mapping_.open(path, own.header_bytes + own.bytes);
    if (std::memcmp(file, own.header, static_cast<std::size_t>(own.header_bytes)) != 0)
      fail(kBadWeights, "The weights hold other tensors than %s; pass the file that was exported with it.", own.name);
    for (int i = 0; i < own.count; ++i) addresses_.push_back(file + own.header_bytes + own.offsets[i]);
  }

  const void *const *data() const { return addresses_.data(); }

 private:
  Mapping mapping_;
  std::vector<const void *> addresses_;
};

}  // namespace deploy
