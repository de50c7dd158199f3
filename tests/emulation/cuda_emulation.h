// The part of CUDA that kernels use, on the processor: an error where threads of a block do not work together.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "device_memory.h"
#include "emulation.h"

#define __host__
#define __device__
#define __global__
#define __forceinline__ inline
#define __grid_constant__
#define __align__(bytes) alignas(bytes)
#define __launch_bounds__(...)

struct alignas(8) [[gnu::may_alias]] int2 {
    int x, y;
};
struct alignas(16) [[gnu::may_alias]] int4 {
    int x, y, z, w;
};
struct alignas(8) [[gnu::may_alias]] float2 {
    float x, y;
};
struct alignas(16) [[gnu::may_alias]] float4 {
    float x, y, z, w;
};
struct alignas(16) [[gnu::may_alias]] double2 {
    double x, y;
};

namespace dacergnn::emulation {

template <class Kernel>
const char* launch(std::int64_t blocks, int threads, std::size_t shared_bytes, const Kernel& kernel) {
    const auto now = [=] {
        return launch(blocks, threads, shared_bytes, &kernel, [](const void* k) { (*static_cast<const Kernel*>(k))(); });
    };
    if (!streams_wait()) return now();
    enqueue([now] {
        if (const char* failure = now()) launch_failed(failure);
    });
    return nullptr;
}

inline int lane() { return static_cast<int>(threadIdx.x) % kLanes; }

template <class T>
T shuffle(const char* name, const char* file, int line, unsigned mask, T value, int source, int width) {
    static_assert(std::is_arithmetic_v<T> && sizeof(T) >= 4 && sizeof(T) <= 8, "CUDA shuffles words of 4 or 8 bytes");
    if (width <= 0 || width > kLanes || (width & (width - 1)) != 0)
        fail("shuffles with a width that is no power of 2 up to 32");
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    bits = exchange({Kind::shuffle, name, file, line, mask, bits, source});
    std::memcpy(&value, &bits, sizeof value);
    return value;
}
inline std::uint64_t ballot(const char* name, const char* file, int line, unsigned mask, bool value) {
    return exchange({Kind::ballot, name, file, line, mask, value, lane()});
}

}  // namespace dacergnn::emulation

// Where a call stands; the last parameters of what follows.
#define DACERGNN_PLACE const char *file = __builtin_FILE(), int line = __builtin_LINE()

inline void __syncthreads(DACERGNN_PLACE) {
    using namespace dacergnn::emulation;
    barrier({Kind::barrier, "__syncthreads", file, line});
}
inline void __syncwarp(unsigned mask = 0xffffffffu, DACERGNN_PLACE) {
    using namespace dacergnn::emulation;
    exchange({Kind::warp, "__syncwarp", file, line, mask, 0, lane()});
}
template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32, DACERGNN_PLACE) {
    const int lane = dacergnn::emulation::lane();
    const int from = (lane & ~(width - 1)) | (source & (width - 1));
    return dacergnn::emulation::shuffle("__shfl_sync", file, line, mask, value, from, width);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32, DACERGNN_PLACE) {
    const int lane = dacergnn::emulation::lane(), other = lane ^ lanes;
    const int from = other > (lane | (width - 1)) ? lane : other;
    return dacergnn::emulation::shuffle("__shfl_xor_sync", file, line, mask, value, from, width);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned distance, int width = 32, DACERGNN_PLACE) {
    const int lane = dacergnn::emulation::lane(), other = lane - static_cast<int>(distance);
    const int from = other < (lane & ~(width - 1)) ? lane : other;
    return dacergnn::emulation::shuffle("__shfl_up_sync", file, line, mask, value, from, width);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned distance, int width = 32, DACERGNN_PLACE) {
    const int lane = dacergnn::emulation::lane(), other = lane + static_cast<int>(distance);
    const int from = other > (lane | (width - 1)) ? lane : other;
    return dacergnn::emulation::shuffle("__shfl_down_sync", file, line, mask, value, from, width);
}
inline unsigned __ballot_sync(unsigned mask, int predicate, DACERGNN_PLACE) {
    return static_cast<unsigned>(dacergnn::emulation::ballot("__ballot_sync", file, line, mask, predicate != 0));
}
inline int __any_sync(unsigned mask, int predicate, DACERGNN_PLACE) {
    return dacergnn::emulation::ballot("__any_sync", file, line, mask, predicate != 0) != 0;
}
inline int __all_sync(unsigned mask, int predicate, DACERGNN_PLACE) {
    return dacergnn::emulation::ballot("__all_sync", file, line, mask, predicate == 0) == 0;
}
#undef DACERGNN_PLACE

// Threads of a block never run at the same time, so plain operations are atomic; none of them is a race.
template <class T>
T atomicAdd(T* address, std::type_identity_t<T> value) {
    static_assert(std::is_same_v<T, int> || std::is_same_v<T, unsigned> || std::is_same_v<T, unsigned long long> ||
                  std::is_same_v<T, float> || std::is_same_v<T, double>);
    const dacergnn::emulation::Unwatched unwatched;
    const T old = *address;
    *address += value;
    return old;
}
template <class T>
    requires std::is_integral_v<T>
T atomicMax(T* address, std::type_identity_t<T> value) {
    const dacergnn::emulation::Unwatched unwatched;
    const T old = *address;
    *address = std::max(old, value);
    return old;
}
template <class T>
    requires std::is_integral_v<T>
T atomicMin(T* address, std::type_identity_t<T> value) {
    const dacergnn::emulation::Unwatched unwatched;
    const T old = *address;
    *address = std::min(old, value);
    return old;
}
template <class T>
    requires std::is_integral_v<T>
T atomicExch(T* address, std::type_identity_t<T> value) {
    const dacergnn::emulation::Unwatched unwatched;
    const T old = *address;
    *address = value;
    return old;
}
template <class T>
    requires std::is_integral_v<T>
T atomicCAS(T* address, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
    const dacergnn::emulation::Unwatched unwatched;
    const T old = *address;
    if (old == expected) *address = value;
    return old;
}
inline void __threadfence() {}
inline void __threadfence_block() {}

template <class T>
T __ldg(const T* address) {
    return *address;
}
template <class T>
constexpr T min(T a, T b) {
    return b < a ? b : a;
}
template <class T>
constexpr T max(T a, T b) {
    return a < b ? b : a;
}
inline float rsqrtf(float x) { return 1 / std::sqrt(x); }
inline double rsqrt(double x) { return 1 / std::sqrt(x); }
inline float __expf(float x) { return std::exp(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline int __popc(unsigned x) { return std::popcount(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
