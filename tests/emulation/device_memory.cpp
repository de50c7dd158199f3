#include "device_memory.h"

#include <sys/mman.h>

#include <cstring>
#include <deque>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "fiber.h"

namespace dacergnn::emulation {
namespace {

// Device memory can be touched by the work of streams alone.
class Memory {
public:
    void* take(std::size_t bytes, cudaMemoryType type) {
        const std::lock_guard lock(mutex_);
        if (bytes > limit || ++taken == failing) return nullptr;
        auto made = std::make_unique<GuardedMemory>(std::max<std::size_t>(bytes, 1));
        char* const end = made->end();
        char* const begin = end - (bytes + 255) / 256 * 256;  // as CUDA aligns it; up to the end of what may be touched
        std::memset(made->begin(), 0xff, static_cast<std::size_t>(end - made->begin()));
        if (type == cudaMemoryTypeDevice) mprotect(made->begin(), static_cast<std::size_t>(end - made->begin()), PROT_NONE);
        pieces_.emplace(begin, Piece{std::move(made), type});
        return begin;
    }
    void give(void* data) {
        const std::lock_guard lock(mutex_);
        pieces_.erase(static_cast<char*>(data));
    }
    cudaMemoryType type(const void* data) {
        const std::lock_guard lock(mutex_);
        const auto* address = static_cast<const char*>(data);
        auto next = pieces_.upper_bound(const_cast<char*>(address));
        if (next == pieces_.begin()) return cudaMemoryTypeUnregistered;
        const Piece& piece = std::prev(next)->second;
        return address < piece.memory->end() ? piece.type : cudaMemoryTypeUnregistered;
    }
    void protect(cudaMemoryType type, int access) {
        const std::lock_guard lock(mutex_);
        for (auto& [begin, piece] : pieces_)
            if (piece.type == type)
                mprotect(piece.memory->begin(), static_cast<std::size_t>(piece.memory->end() - piece.memory->begin()), access);
    }

    std::size_t limit = std::size_t{1} << 40;
    std::int64_t taken = 0, failing = -1;  // number of the allocation that finds no memory

private:
    struct Piece {
        std::unique_ptr<GuardedMemory> memory;
        cudaMemoryType type;
    };
    std::mutex mutex_;
    std::map<char*, Piece> pieces_;
};
Memory& memory() {
    static Memory& own = *new Memory;  // outlives the objects that a library destroys last
    return own;
}

// All streams of a library are one queue.
class Stream {
public:
    bool waits = false;
    std::string failure;

    void add(std::function<void()> work) {
        if (waits) {
            const std::lock_guard lock(mutex_);
            queue_.push_back(std::move(work));
        } else {
            run(work);
        }
    }
    cudaError_t finish() {
        const std::lock_guard lock(running_);
        while (true) {
            std::function<void()> work;
            {
                const std::lock_guard inner(mutex_);
                if (queue_.empty()) break;
                work = std::move(queue_.front());
                queue_.pop_front();
            }
            run(work);
        }
        return failure.empty() ? cudaSuccess : cudaErrorLaunchFailure;
    }

private:
    static void run(const std::function<void()>& work) {
        memory().protect(cudaMemoryTypeDevice, PROT_READ | PROT_WRITE);
        work();
        memory().protect(cudaMemoryTypeDevice, PROT_NONE);
    }

    std::mutex mutex_;
    std::recursive_mutex running_;
    std::deque<std::function<void()>> queue_;
};
Stream& stream() {
    static Stream& own = *new Stream;
    return own;
}

cudaError_t taken(void** data, std::size_t bytes, cudaMemoryType type) {
    *data = memory().take(bytes, type);
    return *data != nullptr ? cudaSuccess : cudaErrorMemoryAllocation;
}

}  // namespace

void enqueue(std::function<void()> work) { stream().add(std::move(work)); }
bool streams_wait() { return stream().waits; }
void launch_failed(const char* text) { stream().failure = text; }

}  // namespace dacergnn::emulation

using namespace dacergnn::emulation;

// For who loads the library.
extern "C" void dacergnn_emulation_streams_wait() { stream().waits = true; }
extern "C" void dacergnn_emulation_memory_limit(std::uint64_t bytes) { memory().limit = bytes; }
extern "C" void dacergnn_emulation_failing_allocation(std::int64_t number) {
    memory().taken = 0;
    memory().failing = number;
}
extern "C" void* dacergnn_emulation_take(std::uint64_t bytes) { return memory().take(bytes, cudaMemoryTypeDevice); }
extern "C" void dacergnn_emulation_give(void* data) { memory().give(data); }
extern "C" void dacergnn_emulation_copy(void* to, const void* from, std::uint64_t bytes) {
    cudaMemcpy(to, from, bytes, cudaMemcpyDefault);
}
extern "C" const char* dacergnn_emulation_finish() {
    stream().finish();
    return stream().failure.empty() ? nullptr : stream().failure.c_str();
}

const char* cudaGetErrorString(cudaError_t error) {
    switch (error) {
        case cudaSuccess: return "no error";
        case cudaErrorMemoryAllocation: return "out of memory";
        case cudaErrorNotReady: return "device not ready";
        case cudaErrorLaunchFailure: return stream().failure.c_str();
        default: return "invalid argument";
    }
}
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaMalloc(void** data, std::size_t bytes) { return taken(data, bytes, cudaMemoryTypeDevice); }
cudaError_t cudaMallocHost(void** data, std::size_t bytes) { return taken(data, bytes, cudaMemoryTypeHost); }
cudaError_t cudaFree(void* data) {
    const cudaError_t error = stream().finish();
    memory().give(data);
    return error;
}
cudaError_t cudaFreeHost(void* data) { return cudaFree(data); }
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind, cudaStream_t) {
    if (memory().type(from) == cudaMemoryTypeUnregistered) {  // is read at once, as in CUDA
        const std::vector<char> copy(static_cast<const char*>(from), static_cast<const char*>(from) + bytes);
        enqueue([to, copy] { std::memcpy(to, copy.data(), copy.size()); });
    } else {
        enqueue([=] { std::memcpy(to, from, bytes); });
    }
    return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
    cudaMemcpyAsync(to, from, bytes, kind, nullptr);
    return stream().finish();
}
cudaError_t cudaStreamSynchronize(cudaStream_t) { return stream().finish(); }
cudaError_t cudaGetDevice(int* device) {
    *device = 0;
    return cudaSuccess;
}
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
    *value = attribute == cudaDevAttrComputeCapabilityMajor ? 8 : attribute == cudaDevAttrComputeCapabilityMinor ? 0 : 4;
    return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* data) {
    *attributes = {memory().type(data), 0};
    return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) {
    *event = new Event;
    return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) { return cudaEventCreate(event); }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
    event->pending = true;
    enqueue([event] { *event = {false, std::chrono::steady_clock::now()}; });
    return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) { return event->pending ? cudaErrorNotReady : cudaSuccess; }
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    if (event == nullptr) return cudaErrorInvalidValue;
    return event->pending ? stream().finish() : cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
    *milliseconds = std::chrono::duration<float, std::milli>(end->time - start->time).count();
    return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
    delete event;
    return cudaSuccess;
}
