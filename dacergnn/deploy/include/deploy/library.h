// The library of an exported model: its weights, and the kernels that fit the processor.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "arguments.h"

namespace deploy {

// Kernels for one kind of processor.
struct Variant {
  const char *name;
  bool (*fits)();
  int (*run)(const void *const *weights, Context &, const Input *, Output *, Message &);
  int slots;
};

// Everything that differs between models.
struct Description {
  const char *name;
  const Variant *variants;
  int variant_count;
  const std::int64_t *offsets;  // of the weights, behind the header of their file
  int weight_count;
  const char *header;  // what the file of weights begins with
  std::int64_t header_bytes, weight_bytes;
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

// Sets the number of threads for the calls of a thread, while it exists.
class Threads {
 public:
#ifdef _OPENMP
  explicit Threads(int count) : before_(omp_get_max_threads()) {
    if (count > 0) omp_set_num_threads(std::min(count, omp_get_num_procs()));  // OpenMP ends the process at too many
  }
  ~Threads() { omp_set_num_threads(before_); }

 private:
  int before_;
#else
  explicit Threads(int) {}
#endif
};

class Model {
 public:
  Model(const Description &own, const char *path) : variant_(variant(own)), contexts_(variant_.slots) {
    const std::int64_t bytes = own.header_bytes + own.weight_bytes;
    const char *file = static_cast<const char *>(own.embedded);
    if (file == nullptr && path == nullptr) fail(kBadWeights, "The path of the weights is null; %s needs a file.", own.name);
    if (path != nullptr) file = mapping_.open(path, bytes);
    if (std::memcmp(file, own.header, static_cast<std::size_t>(own.header_bytes)) != 0)
      fail(kBadWeights, "The weights hold other tensors than %s; pass the file that was exported with it.", own.name);
    for (int i = 0; i < own.weight_count; ++i) weights_.push_back(file + own.header_bytes + own.offsets[i]);
  }

  int run(const Input *inputs, Output *outputs, int threads, Message &told) const {
    const Threads guard(threads);
    const Lease lease(contexts_);
    return variant_.run(weights_.data(), *lease.context, inputs, outputs, told);
  }

  void trim() const { contexts_.clear(); }
  const char *processor() const { return variant_.name; }

 private:
  struct Lease {
    explicit Lease(Contexts &contexts) : from(contexts), context(contexts.take()) {}
    ~Lease() { from.give(std::move(context)); }
    Contexts &from;
    std::unique_ptr<Context> context;
  };

  static const Variant &variant(const Description &own) {
    for (int i = 0; i < own.variant_count; ++i)
      if (own.variants[i].fits()) return own.variants[i];
    fail(kNoProcessor, "%s has no kernels for this processor; the last ones are for %s.", own.name,
         own.variants[own.variant_count - 1].name);
  }

  const Variant &variant_;
  mutable Contexts contexts_;
  Mapping mapping_;
  std::vector<const void *> weights_;
};

inline int create(const Description &own, const char *path, Model **made) {
  return guarded(message(), [&] {
    if (made == nullptr) fail(kBadInput, "The place for the model is null.");
    *made = nullptr;
    *made = new Model(own, path);
  });
}

inline int run(const Model *model, const Input *inputs, Output *outputs, int threads) {
  int code = kDone;
  const int border = guarded(message(), [&] {
    if (model == nullptr) fail(kBadInput, "The model is null; make one first.");
    if (inputs == nullptr || outputs == nullptr) fail(kBadInput, "The inputs or the outputs are null.");
    if (threads < 0) fail(kBadInput, "The number of threads is %d; pass 0 for as many as there are processors.", threads);
    code = model->run(inputs, outputs, threads, message());
  });
  return border == kDone ? code : border;
}

}  // namespace deploy
