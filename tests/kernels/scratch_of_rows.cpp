// Prints the bytes of scratch memory for products that are added up into four of many rows of 16 bits.
#include <cstdio>
#include <vector>

#include "dacergnn/half.h"
#include "dacergnn/segment_gemm.h"

static std::size_t bytes = 0;

extern "C" void* aligned_alloc(std::size_t alignment, std::size_t size) noexcept {
#pragma omp atomic
    bytes += size;
    void* made = nullptr;
    return posix_memalign(&made, alignment, size) == 0 ? made : nullptr;
}

int main() {
    using dacergnn::bfloat16;
    constexpr int64_t kRows = 100000, kWidth = 16;
    omp_set_num_threads(2);
    const std::vector<bfloat16> x(4 * kWidth, 1.0f), w(kWidth * kWidth, 0.5f);
    std::vector<bfloat16> y(kRows * kWidth, 3.0f);
    const int32_t ptr[] = {0, 4}, target[] = {0, 1, 2, 3}, target_ptr[] = {0, 1, 2, 3, 4};
    dacergnn::segment_gemm_scatter<float, int32_t, 1, kWidth, kWidth, false, 0>(
        x.data(), nullptr, w.data(), ptr, 1, nullptr, static_cast<const bfloat16*>(nullptr), target, target_ptr, 4, kRows,
        y.data());
    for (int64_t i = 0; i < kRows * kWidth; ++i)
        if (static_cast<float>(y[i]) != (i < 4 * kWidth ? 0.5f * kWidth : 0.0f)) return 1;
    std::printf("%zu", bytes);
}
