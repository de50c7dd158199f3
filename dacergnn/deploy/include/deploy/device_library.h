// The library of an exported model for CUDA devices: its weights on a device, and its kernels.
#pragma once

#include "arguments.h"
#include "borders.h"
#include "device_context.h"
#include "weights.h"

namespace deploy {

// Everything that differs between models.
struct DeviceDescription {
  WeightsDescription weights;
  const std::int64_t *bytes;  // of each of the weights
  const int *architectures;   // that there is machine code for; the last is also there as PTX
  int architecture_count;
  DeviceSlots slots;
  int (*run)(const void *const *weights, const void *const *memory, DeviceContext &, const Input *, Output *, Message &);
};

// Makes a device the current one of the calling thread, while it exists.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device) {
    check_device(cudaGetDevice(&before_), "There is no CUDA device");
    if (device != before_) check_device(cudaSetDevice(device), "The device of the model cannot be used");
    changed_ = device != before_;
  }
  CurrentDevice(const CurrentDevice &) = delete;
  CurrentDevice &operator=(const CurrentDevice &) = delete;
  ~CurrentDevice() {
    if (changed_) cudaSetDevice(before_);
  }

 private:
  int before_ = 0;
  bool changed_ = false;
};

class DeviceModel {
 public:
  DeviceModel(const DeviceDescription &own, const char *path)
      : run_(own.run), device_(device_of(own)), contexts_(own.slots), weights_(own.weights, path) {
    std::int64_t total = 0;
    for (int i = 0; i < own.weights.count; ++i) total += rounded(own.bytes[i]);
    char *to = copy_.of<char>(total);
    for (int i = 0; i < own.weights.count; ++i) {
      const auto bytes = static_cast<std::size_t>(own.bytes[i]);
      check_device(cudaMemcpy(to, weights_.data()[i], bytes, cudaMemcpyHostToDevice), "The weights cannot be copied");
      addresses_.push_back(to);
      to += rounded(own.bytes[i]);
    }
  }

  int run(const Input *inputs, Output *outputs, void *stream, Message &told) const {
    const CurrentDevice current(device_);
    const Lease lease(contexts_);
    DeviceContext &context = *lease;
    context.stream = static_cast<cudaStream_t>(stream);
    context.device = device_;
    context.multiprocessors = multiprocessors_;
    return run_(weights_.data(), addresses_.data(), context, inputs, outputs, told);
  }

  void trim() const { contexts_.clear(); }
  const char *processor() const { return name_; }

 private:
  // Returns the current device, if there are kernels for it.
  int device_of(const DeviceDescription &own) {
    int device = 0, major = 0, minor = 0;
    check_device(cudaGetDevice(&device), "There is no CUDA device");
    check_device(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "The device is unknown");
    check_device(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), "The device is unknown");
    check_device(cudaDeviceGetAttribute(&multiprocessors_, cudaDevAttrMultiProcessorCount, device), "The device is unknown");
    std::snprintf(name_, sizeof name_, "sm_%d%d", major, minor);
    const int capability = 10 * major + minor, newest = own.architectures[own.architecture_count - 1];
    bool fits = capability >= newest;
    for (int i = 0; i < own.architecture_count; ++i)
      fits |= own.architectures[i] / 10 == major && own.architectures[i] <= capability;
    if (!fits)
      fail(kNoProcessor, "%s has no kernels for device %d of compute capability %d.%d; the last ones are for %d.%d.",
           own.weights.name, device, major, minor, newest / 10, newest % 10);
    return device;
  }

  decltype(DeviceDescription::run) run_;
  char name_[16] = "";
  int multiprocessors_ = 1;
  int device_;
  mutable DeviceContexts contexts_;
  Weights weights_;
  DeviceBuffer copy_;
  std::vector<const void *> addresses_;
};

}  // namespace deploy
