// Memory of the calls of an exported model on a CUDA device, and copies between the device and the host.
#pragma once

#ifdef DACERGNN_EMULATE_CUDA
#include "cuda_emulation.h"
#else
#include <cuda_runtime_api.h>
#endif

#include <array>
#include <cstring>
#include <deque>

#include "context.h"

namespace deploy {

// Ends a call that the device refuses.
inline void check_device(cudaError_t error, const char *what) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // or a later call would report it
  fail(error == cudaErrorMemoryAllocation ? kNoMemory : kDevice, "%s: %s.", what, cudaGetErrorString(error));
}

// Returns what a function of CUDA has allocated; null if there is no memory.
template <class Allocate>
void *allocated(Allocate allocate, std::size_t bytes) {
  void *data = nullptr;
  if (allocate(&data, bytes) == cudaSuccess) return data;
  cudaGetLastError();
  return nullptr;
}

inline constexpr Memory kOfDevice{
    "memory of the device",
    [](std::size_t bytes) { return allocated([](void **data, std::size_t size) { return cudaMalloc(data, size); }, bytes); },
    [](void *data) { cudaFree(data); }};
inline constexpr Memory kPinned{
    "pinned memory",
    [](std::size_t bytes) { return allocated([](void **data, std::size_t size) { return cudaMallocHost(data, size); }, bytes); },
    [](void *data) { cudaFreeHost(data); }};

struct DeviceBuffer : Buffer {
  DeviceBuffer() : Buffer(kOfDevice) {}
};
struct PinnedBuffer : Buffer {
  PinnedBuffer() : Buffer(kPinned) {}
};

// Numbers of buffers of a call: ordinary memory of the host, pinned memory, memory of the device.
struct DeviceSlots {
  int host, pinned, memory;
};

// Memory of a call in parallel to others. Another call may use it once `done` has happened on the device.
struct DeviceContext {
  explicit DeviceContext(const DeviceSlots &own) : slots(own.host), pinned(own.pinned), memory(own.memory) {
    check_device(cudaEventCreateWithFlags(&done, cudaEventDisableTiming), "An event cannot be made");
  }
  DeviceContext(const DeviceContext &) = delete;
  DeviceContext &operator=(const DeviceContext &) = delete;
  ~DeviceContext() {
    cudaEventSynchronize(done);
    cudaEventDestroy(done);
  }

  std::vector<Buffer> slots;
  std::vector<PinnedBuffer> pinned;  // each is written once in a call, since copies of it may be waiting still
  std::vector<DeviceBuffer> memory;
  cudaEvent_t done = nullptr;
  cudaStream_t stream = nullptr;
  int device = 0, multiprocessors = 1;
};

// Holds the contexts that no call uses at the moment, in the order in which the device is done with them.
class DeviceContexts {
 public:
  explicit DeviceContexts(const DeviceSlots &slots) : slots_(slots) {}

  // Returns a context that the device is done with. It waits for one if there are two whose work is not done yet.
  std::unique_ptr<DeviceContext> take() {
    std::unique_ptr<DeviceContext> context;
    {
      const std::lock_guard<std::mutex> guard(mutex_);
      if (!idle_.empty() && (idle_.size() > 1 || cudaEventQuery(idle_.front()->done) == cudaSuccess)) {
        context = std::move(idle_.front());
        idle_.pop_front();
      }
    }
    if (context == nullptr) return std::make_unique<DeviceContext>(slots_);
    check_device(cudaEventSynchronize(context->done), "An earlier call on the device has failed");
    return context;
  }

  // Takes a context back, also if there is no memory left.
  void give(std::unique_ptr<DeviceContext> context) noexcept {
    cudaEventRecord(context->done, context->stream);
    try {
      const std::lock_guard<std::mutex> guard(mutex_);
      idle_.push_back(std::move(context));
    } catch (const std::bad_alloc &) {  // the context is freed
    }
  }

  // Frees the memory that no call uses.
  void clear() {
    const std::lock_guard<std::mutex> guard(mutex_);
    idle_.clear();
  }

 private:
  std::mutex mutex_;
  std::deque<std::unique_ptr<DeviceContext>> idle_;
  DeviceSlots slots_;
};

// Numbers in memory of the host or of the device.
struct Block {
  const void *data;
  std::int64_t bytes;
};

inline std::int64_t rounded(std::int64_t bytes) { return (bytes + 255) / 256 * 256; }

// Tells whether the host may read an address.
inline bool is_on_host(const void *data) {
  cudaPointerAttributes own{};
  check_device(cudaPointerGetAttributes(&own, data), "The place of an array cannot be found");
  return own.type == cudaMemoryTypeUnregistered || own.type == cudaMemoryTypeHost;
}

// Checks that an array lies in memory of the device of a call; one of no bytes may have any address.
inline void check_on_device(const DeviceContext &context, const void *data, std::int64_t bytes, const char *label) {
  if (data == nullptr || bytes == 0) return;
  if (is_on_host(data)) fail(kBadInput, "%s lies in memory of the host; pass an address in memory of the device.", label);
  cudaPointerAttributes own{};
  check_device(cudaPointerGetAttributes(&own, data), "The place of an array cannot be found");
  if (own.type == cudaMemoryTypeDevice && own.device != context.device)
    fail(kBadInput, "%s lies on device %d, and the model is on device %d.", label, own.device, context.device);
}

// Returns the addresses of blocks in memory of the host. What lies on the device is copied, and the call waits for it.
template <std::size_t Count>
std::array<const void *, Count> fetched(DeviceContext &context, PinnedBuffer &pinned, const Block (&blocks)[Count]) {
  std::array<const void *, Count> places;
  std::int64_t total = 0;
  for (std::size_t i = 0; i < Count; ++i) {
    places[i] = blocks[i].data;
    if (blocks[i].bytes > 0 && !is_on_host(blocks[i].data)) total += rounded(blocks[i].bytes);
  }
  if (total == 0) return places;
  char *to = pinned.of<char>(total);
  for (std::size_t i = 0; i < Count; ++i) {
    if (blocks[i].bytes == 0 || is_on_host(blocks[i].data)) continue;
    const auto bytes = static_cast<std::size_t>(blocks[i].bytes);
    check_device(cudaMemcpyAsync(to, blocks[i].data, bytes, cudaMemcpyDeviceToHost, context.stream),
                 "Edges and indices cannot be read from the device");
    places[i] = to;
    to += rounded(blocks[i].bytes);
  }
  check_device(cudaStreamSynchronize(context.stream), "Edges and indices cannot be read from the device");
  return places;
}

// Copies blocks of the host to the device, in one copy; returns their addresses there. Equal blocks are copied once.
template <std::size_t Count>
std::array<void *, Count> uploaded(DeviceContext &context, PinnedBuffer &pinned, DeviceBuffer &memory,
                                   const Block (&blocks)[Count]) {
  std::array<std::int64_t, Count> starts;
  std::int64_t total = 0;
  for (std::size_t i = 0; i < Count; ++i) {
    std::size_t same = 0;
    while (blocks[same].data != blocks[i].data || blocks[same].bytes != blocks[i].bytes) ++same;
    starts[i] = same < i ? starts[same] : total;
    if (same == i) total += rounded(blocks[i].bytes);
  }
  char *const staging = pinned.of<char>(total), *const to = memory.of<char>(total);
  std::array<void *, Count> places;
  std::int64_t end = 0;
  for (std::size_t i = 0; i < Count; ++i) {
    places[i] = to + starts[i];
    if (starts[i] < end || blocks[i].bytes == 0) continue;
    std::memcpy(staging + starts[i], blocks[i].data, static_cast<std::size_t>(blocks[i].bytes));
    end = starts[i] + blocks[i].bytes;
  }
  if (total > 0)
    check_device(cudaMemcpyAsync(to, staging, static_cast<std::size_t>(total), cudaMemcpyHostToDevice, context.stream),
                 "Edges and indices cannot be copied to the device");
  return places;
}

// Returns an address that kernels may read 16 bytes at once from: that of an array, or of a copy on the device.
template <class T>
T *aligned(DeviceContext &context, DeviceBuffer &memory, T *data, std::int64_t count) {
  if (reinterpret_cast<std::uintptr_t>(data) % 16 == 0) return data;
  T *const to = memory.of<T>(count);
  check_device(cudaMemcpyAsync(to, data, static_cast<std::size_t>(count) * sizeof(T), cudaMemcpyDeviceToDevice, context.stream),
               "An array cannot be copied");
  return to;
}

// Copies a result to the memory of the user, from the device or the host.
inline void copy_output(DeviceContext &context, void *to, const void *from, std::int64_t bytes) {
  if (bytes > 0)
    check_device(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDefault, context.stream),
                 "A result cannot be copied");
}

}  // namespace deploy
