// The library of an exported model: its weights, and the kernels that fit the processor.
#pragma once

#ifdef _OPENMP
#include <omp.h>
#endif

#include "arguments.h"
#include "borders.h"
#include "weights.h"

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
  WeightsDescription weights;
  const Variant *variants;
  int variant_count;
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
  Model(const Description &own, const char *path)
      : variant_(variant(own)), contexts_(variant_.slots), weights_(own.weights, path) {}

  int run(const Input *inputs, Output *outputs, int threads, Message &told) const {
    if (threads < 0) fail(kBadInput, "The number of threads is %d; pass 0 for as many as there are processors.", threads);
    const Threads guard(threads);
    const Lease lease(contexts_);
    return variant_.run(weights_.data(), *lease, inputs, outputs, told);
  }

  void trim() const { contexts_.clear(); }
  const char *processor() const { return variant_.name; }

 private:
  static const Variant &variant(const Description &own) {
    for (int i = 0; i < own.variant_count; ++i)
      if (own.variants[i].fits()) return own.variants[i];
    fail(kNoProcessor, "%s has no kernels for this processor; the last ones are for %s.", own.weights.name,
         own.variants[own.variant_count - 1].name);
  }

  const Variant &variant_;
  mutable Contexts contexts_;
  Weights weights_;
};

}  // namespace deploy
