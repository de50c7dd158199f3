// Prints the bytes of scratch memory for products that are added up into rows of 16 bits: four of many rows are targets,
// then all are.
#include <cstdio>
#include <cstdlib>
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

using dacergnn::bfloat16;
constexpr int64_t kRows = int64_t{1} << 21, kWidth = 16;

// Returns the bytes for products of four rows, which are the only ones of so many targets.
static std::size_t scratch_for(int64_t targets, const std::vector<int32_t>& target_ptr) {
    const std::vector<bfloat16> x(4 * kWidth, 1.0f), w(kWidth * kWidth, 0.5f);
    std::vector<bfloat16> y(kRows * kWidth, 3.0f);
    const int32_t ptr[] = {0, 4}, target[] = {0, 1, 2, 3};
    bytes = 0;
    dacergnn::segment_gemm_scatter<float, int32_t, 1, kWidth, kWidth, false, 0>(
        x.data(), nullptr, w.data(), ptr, 1, nullptr, static_cast<const bfloat16*>(nullptr), target, target_ptr.data(),
        targets, kRows, y.data());
    for (int64_t i = 0; i < kRows * kWidth; ++i)
        if (static_cast<float>(y[i]) != (i < 4 * kWidth ? 0.5f * kWidth : 0.0f)) std::exit(1);
    return bytes;
}

int main() {
    omp_set_num_threads(2);
    std::vector<int32_t> target_ptr(kRows + 1, 4);
    for (int32_t i = 0; i < 4; ++i) target_ptr[i] = i;
    const std::size_t few = scratch_for(4, target_ptr), many = scratch_for(kRows, target_ptr);
    std::printf("%zu %zu", few, many);
}
