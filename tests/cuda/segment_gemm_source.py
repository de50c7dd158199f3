"""CUDA sources with one C function per tested instantiation of the products of segments."""

from __future__ import annotations

from dataclasses import dataclass

HEAD = """
#include "dacergnn/cuda/weight_product.cuh"
using namespace dacergnn::cuda;

// f of the lists, or where they are null, of lists that are known to be the identity.
template <class F, class... I>
void with_lists(F f, const I*... lists) {
    if ((... && (lists == nullptr)))
        f(((void)lists, nullptr)...);
    else
        f(lists...);
}

// Turns a row around through the memory of the warp, adds its number and stores its sum.
template <class T, int Width>  // nvcc writes constants of type int64_t as casts that C++ does not have
struct Turn {
    T* sums;
    __device__ void operator()(int64_t i, T* row, T* local) const {
        Accumulator<T> sum = 0;
        for (int64_t j = lane(); j < Width; j += 32) {
            local[j] = row[j];
            sum += convert<Accumulator<T>>(row[j]);
        }
        __syncwarp();
        for (int64_t j = lane(); j < Width; j += 32)
            row[j] = convert<T>(convert<Accumulator<T>>(local[Width - 1 - j]) + Accumulator<T>(i));
        sum = warp_sum(sum);
        if (lane() == 0) sums[i] = convert<T>(sum);
    }
};
"""
PRODUCTS = """
extern "C" void gemm{n}_{name}(const {t}* X, const {i}* gather, const {t}* W, const {i}* ptr, int64_t types,
                               int64_t total, const {i}* rows, const {t}* scale, {t}* Y, {t}* sums) {{
    constexpr int width = {width};
    const Segments<{i}> segments = {{ptr, types}};
    if (gather == nullptr)
        start(segment_gemm<{args}, width, {tf32}>(X, nullptr, W, segments, total, nullptr, scale, Y,
                                                  Turn<{t}, width>{{sums}}));
    else
        start(segment_gemm<{args}, 0, {tf32}>(X, gather, W, segments, total, rows, scale, Y));
}}
"""
SCATTER = """
extern "C" void scatter_{name}(const {t}* X, const {i}* gather, const {t}* W, const {i}* ptr, int64_t types,
                                  int64_t total, const {i}* rows, const {t}* scale, const {i}* target_ptr,
                                  const {i}* target_rows, int64_t targets, int64_t y_rows, {t}* Y, {t}* sums) {{
    constexpr int width = {width};
    with_lists([&](auto gather, auto rows) {{
        start(segment_gemm_scatter<{args}, width, {tf32}>(X, gather, W, Segments<{i}>{{ptr, types}}, total, rows,
                                                          scale, target_ptr, target_rows, targets, y_rows, Y,
                                                          Turn<{t}, width>{{sums}}, Chunks(total)));
    }}, gather, rows);
}}
"""
SUMS = """
extern "C" void pairs_{name}(const {t}* X, const {i}* gather, const {t}* W, const {i}* ptr, int64_t types,
                                int64_t pairs, const {t}* scale, const {i}* pair_ptr, const {i}* pair_rows,
                                const {i}* target_ptr, const {i}* target_rows, int64_t targets, int64_t y_rows,
                                int64_t total, {t}* Y) {{
    start(segment_gemm_scatter_pairs<{args}, 0, {tf32}>(X, gather, W, Segments<{i}>{{ptr, types}}, pairs, scale,
                                                        pair_ptr, pair_rows, target_ptr, target_rows, targets, y_rows,
                                                        Y, Keep(), Chunks(total)));
}}
extern "C" void sums_{name}(const {t}* X, const {t}* W, const {t}* scale, const {i}* target_ptr, int64_t targets,
                               int64_t y_rows, int64_t total, {t}* Y, {t}* sums) {{
    constexpr int width = {width};
    const Turn<{t}, width> finish = {{sums}};
    start(segment_gemm_of_sums<{args}, width, {tf32}>(X, nullptr, W, EqualSegments<>{{targets}}, targets, nullptr,
                                                      scale, target_ptr, nullptr, Y, finish, Chunks(total)));
    start(zero_rows<{t}, width, width>(targets, y_rows, Y, finish));
}}
"""
OUTER = """
extern "C" void outer_{name}(const {t}* X, const {i}* gx, const {t}* Y, const {i}* gy, const {i}* ptr, int64_t types,
                             int64_t total, const {i}* rows, const {t}* scale, {t}* dW) {{
    with_lists([&](auto gx, auto gy, auto rows) {{
        if (ptr == nullptr)
            start(segment_outer<{args}, {tf32}>(X, gx, Y, gy, EqualSegments<>{{total}}, total, rows, scale, dW));
        else
            start(segment_outer<{args}, {tf32}>(X, gx, Y, gy, Segments<{i}>{{ptr, types}}, total, rows, scale, dW));
    }}, gx, gy, rows);
}}
"""
WEIGHTS = """
extern "C" void {kind}{flags}_{name}(const {t}* A, const {i}* a, const {t}* B, const {i}* b, int64_t rows, {t}* Y) {{
    with_lists([&](auto a, auto b) {{ start({kind}<{args}, {tf32}>(A, a, B, b, rows, Y)); }}, a, b);
}}
"""
PARTS = ("product", "transposed")
"""The parts of a configuration with products of rows and weights, as they are and transposed."""


@dataclass(frozen=True)
class Config:
    """Template arguments of one instantiation."""

    dtype: str
    index: str
    heads: int
    k: int
    m: int
    scale_size: int
    tf32: bool = False
    tile_rows: int = 64
    least_blocks: int = 0
    shared: int = 160
    """KiB of shared memory that a block may have."""
    parts: tuple[str, ...] = ("product", "transposed", "sums", "outer")
    """The kinds of kernels that tests run with these sizes."""

    @property
    def name(self) -> str:
        kind = "tf32" if self.tf32 else self.dtype
        sizes = f"H{self.heads}_K{self.k}_M{self.m}_S{self.scale_size}_T{self.tile_rows}_L{self.shared}"
        return f"{kind}_{self.index}_{sizes}"

    @property
    def limit(self) -> str:
        """Returns what comes before all headers."""
        return f"#undef DACERGNN_SHARED_BYTES\n#define DACERGNN_SHARED_BYTES ({self.shared} * 1024)\n"

    @property
    def sums_transposed(self) -> bool:
        """Whether the weights are transposed in the forms that sum up rows."""
        return self.k > self.m

    def functions(self) -> str:
        """C functions of the configuration: gemm1_ is that of transposed weights."""
        tf32 = str(self.tf32).lower()
        names = {"name": self.name, "t": self.dtype, "i": self.index, "tf32": tf32}
        tile = {**names, "tf32": f"{tf32}, {self.tile_rows}, {self.least_blocks}"}
        shape = f"{self.dtype}, {self.heads}, {self.k}, {self.m}"
        text = OUTER.format(args=f"{shape}, {self.scale_size}", **names) if "outer" in self.parts else ""
        for n, flag in enumerate(("false", "true")):
            args, width = f"{shape}, {flag}, {self.scale_size}", self.heads * (self.k if n else self.m)
            of_sums = n == self.sums_transposed
            if PARTS[n] in self.parts:
                text += PRODUCTS.format(n=n, args=args, width=width, **tile)
                text += SCATTER.format(args=args, width=width, **tile) if of_sums else ""
            if "sums" in self.parts and of_sums:
                text += SUMS.format(args=args, width=width, **tile)
        return text


@dataclass(frozen=True)
class WeightConfig:
    """Template arguments of the products of weights."""

    dtype: str
    index: str
    heads: int
    k: int
    d: int
    m: int
    tf32: bool = False
    transposed: tuple[tuple[int, int], ...] = ((0, 0), (1, 1))
    """Names the operands that are."""
    shared = 160
    limit = ""

    @property
    def name(self) -> str:
        kind = "tf32" if self.tf32 else self.dtype
        return f"{kind}_{self.index}_H{self.heads}_K{self.k}_D{self.d}_M{self.m}"

    def functions(self) -> str:
        """C functions such as compose01_ and inner11_: the digits say which operands are transposed."""
        names = {"name": self.name, "t": self.dtype, "i": self.index, "tf32": str(self.tf32).lower()}
        sizes = f"{self.dtype}, {self.heads}, {self.k}, {self.d}, {self.m}"
        return "".join(
            WEIGHTS.format(
                kind=kind, flags=f"{left}{right}", args=f"{sizes}, {bool(left)}, {bool(right)}".lower(), **names
            )
            for kind in ("compose", "inner")
            for left, right in self.transposed
        )
