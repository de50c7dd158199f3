"""Compiles the CPU kernel headers once into a shared library with one C function per tested instantiation."""

from __future__ import annotations

import ctypes
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from tests.support.compilers import needs

INCLUDE = Path(__file__).parents[2] / "dacergnn" / "library_nodes" / "include"
FLAGS = ["-O3", "-march=native", "-fopenmp", "-std=c++20", "-Wall", "-Wextra", "-Werror", "-fPIC"]
BY_COMPILER = ("g++", pytest.param("clang++", marks=pytest.mark.check))

Array = npt.NDArray[np.generic]


@dataclass(frozen=True)
class Config:
    """Template arguments of one instantiation, and what of it is compiled."""

    dtype: str
    index: str
    heads: int
    k: int
    m: int
    scale_size: int
    rows: int = 0
    depth: int = 0
    transposed: tuple[int, ...] = (0,)
    """0 for products with the weights, 1 with the transposed ones."""
    runs: tuple[int, ...] = ()
    """Outer products: 0 without runs, 1 with runs of X, 2 of Y."""
    identity: bool = False
    """Tells whether there is a form for lists that are known to be the identity."""

    @property
    def name(self) -> str:
        sizes = f"H{self.heads}_K{self.k}_M{self.m}_S{self.scale_size}_T{self.rows}_D{self.depth}"
        return f"{self.dtype}_{self.index}_{sizes}"

    @property
    def _shape(self) -> str:
        return f"{self.dtype}, {self.index}, {self.heads}, {self.k}, {self.m}"

    def products(self) -> str:
        """C functions gemm and scatter of the configuration, 1 transposed."""
        tile = f"dacergnn::gemm::Tile<{self.rows}, {self.depth}>"
        arguments = [f"{self._shape}, {flag}, {self.scale_size}, {tile}" for flag in ("false", "true")]
        return "".join(self._filled(PRODUCTS, n=n, args=arguments[n]) for n in self.transposed)

    def outer_products(self) -> str:
        """C functions outer of the configuration, 1 with runs of X, 2 of Y."""
        args = f"{self._shape}, {self.scale_size}"
        kinds = ("kNone", "kOfX", "kOfY")
        return "".join(self._filled(OUTER, n=n, args=args, runs=kinds[n]) for n in self.runs)

    def finished(self) -> str:
        """A C function as gemm0 that doubles every row when it is finished."""
        args, width = f"{self._shape}, false, {self.scale_size}", self.heads * self.m
        return self._filled(FINISHED, args=args, width=width)

    def is_blocked(self) -> str:
        """C++ that compiles only where the first of the products goes block by block of its depth."""
        depth, columns = (self.m, self.k) if self.transposed[0] else (self.k, self.m)
        return f"static_assert(dacergnn::gemm::kBlocked<{self.dtype}, {self.heads}, {depth}, {columns}>);\n"

    def _filled(self, text: str, **words: object) -> str:
        known = "true" if self.identity else "false"
        return text.format(name=self.name, t=self.dtype, i=self.index, known=known, **words)


LISTS = """#include <numeric>
#include <vector>
#include "dacergnn/segment_gemm.h"
#include "dacergnn/segment_outer.h"

// f of the lists where there are any, else, with `Known`, of the lists that are known to be the identity.
template <bool Known, class F, class... I>
void with_lists(int64_t rows, F f, const I*... lists) {
    if constexpr (Known) {
        if ((... && (lists == nullptr))) return f(((void)lists, nullptr)...);
    }
    std::vector<std::common_type_t<I...>> identity(rows);
    std::iota(identity.begin(), identity.end(), 0);
    f((lists == nullptr ? identity.data() : lists)...);
}
"""
PRODUCTS = """
extern "C" void gemm{n}_{name}(const {t}* X, const {i}* gather, const {t}* W, const {i}* ptr, int64_t types,
                               const {i}* rows, const {t}* scale, {t}* Y)
{{
    with_lists<{known}>(int64_t(ptr[types]), [&](auto gather, auto rows) {{
        dacergnn::segment_gemm<{args}>(X, gather, W, ptr, types, rows, scale, Y);
    }}, gather, rows);
}}
extern "C" void scatter{n}_{name}(const {t}* X, const {i}* gather, const {t}* W, const {i}* ptr,
                                  int64_t types, const {i}* rows, const {t}* scale, const {i}* target,
                                  const {i}* target_ptr, int64_t targets, int64_t y_rows, {t}* Y) {{
    with_lists<{known}>(int64_t(ptr[types]), [&](auto gather, auto rows) {{
        dacergnn::segment_gemm_scatter<{args}>(X, gather, W, ptr, types, rows, scale, target, target_ptr, targets,
                                               y_rows, Y);
    }}, gather, rows);
}}
"""
FINISHED = """
extern "C" void finished_{name}(const {t}* X, const {i}* gather, const {t}* W, const {i}* ptr, int64_t types,
                                const {i}* rows, const {t}* scale, {t}* Y)
{{
    dacergnn::segment_gemm<{args}>(X, gather, W, ptr, types, rows, scale, Y, [](int64_t, {t}* row) {{
        for (int64_t column = 0; column < {width}; ++column) row[column] *= 2;
    }});
}}
"""
OUTER = """
extern "C" void outer{n}_{name}(const {t}* X, const {i}* gx, const {t}* Y, const {i}* gy, const {i}* ptr,
                             int64_t types, const {i}* rows, const {t}* scale, {t}* dW)
{{
    with_lists<{known}>(int64_t(ptr[types]), [&](auto gx, auto gy, auto rows) {{
        dacergnn::segment_outer<{args}, dacergnn::Runs::{runs}>(X, gx, Y, gy, ptr, types, rows, scale, dW);
    }}, gx, gy, rows);
}}
"""

# Whole vectors, parts of vectors, single columns, several panels, heads; some with double and int64. Each of these is
# multiplied, transposed, summed and scaled in some of them, as what compiles takes seconds.
CONFIGS = [
    Config("float", "int32_t", 1, 64, 64, 0, transposed=(0, 1), runs=(0, 1, 2), identity=True),
    Config("double", "int32_t", 1, 16, 24, 1, runs=(0, 1), identity=True),
    Config("double", "int64_t", 3, 5, 3, 3, transposed=(0, 1), runs=(0, 2), identity=True),
    Config("float", "int32_t", 4, 16, 8, 4, runs=(0,)),
    Config("float", "int32_t", 2, 33, 17, 0, transposed=(1,), runs=(0, 1)),
    Config("float", "int32_t", 1, 7, 100, 0),
    Config("float", "int32_t", 1, 130, 10, 1, transposed=(1,), runs=(2,)),
    Config("float", "int32_t", 1, 1, 1, 1, runs=(0,)),
    Config("double", "int32_t", 2, 12, 1, 0, runs=(1, 2), identity=True),
    Config("float", "int64_t", 2, 1, 20, 2, transposed=(0, 1), runs=(1,)),
    Config("float", "int32_t", 1, 70, 100, 1, rows=2, depth=32, runs=(0, 2)),
    Config("double", "int32_t", 2, 20, 24, 0, rows=4, transposed=(1,)),
    Config("float", "int32_t", 1, 64, 64, 0, rows=8, depth=48),
]
# Depths of several blocks, in whole numbers of them or not, of products and of transposed ones.
DEEP_CONFIGS = [
    Config("float", "int32_t", 1, 1024, 144, 0, identity=True),
    Config("float", "int64_t", 1, 1100, 130, 1),
    Config("double", "int32_t", 2, 60, 601, 2, transposed=(1,)),
]
# Those whose results the tests stream.
STREAMED_CONFIGS = [*CONFIGS[:2], DEEP_CONFIGS[0]]

WEIGHTS = """
extern "C" void {kind}{flags}_{name}(const {t}* A, const {i}* a, const {t}* B, const {i}* b, int64_t rows, {t}* Y)
{{ dacergnn::{kind}<{t}, {i}, {sizes}, {booleans}>(A, a, B, b, rows, Y); }}
"""


@dataclass(frozen=True)
class WeightConfig:
    """Template arguments of the products of weights."""

    dtype: str
    index: str
    heads: int
    k: int
    d: int
    m: int
    transposed: tuple[tuple[int, int], ...]
    """For each form, which of the operands are transposed."""

    @property
    def name(self) -> str:
        return f"{self.dtype}_{self.index}_H{self.heads}_K{self.k}_D{self.d}_M{self.m}"

    def functions(self) -> str:
        """C functions compose00_, compose01_, ..., inner11_: the digits say which operands are transposed."""
        sizes = f"{self.heads}, {self.k}, {self.d}, {self.m}"
        return "".join(
            WEIGHTS.format(kind=kind, flags=f"{left}{right}", name=self.name, t=self.dtype, i=self.index, sizes=sizes,
                           booleans=", ".join("true" if flag else "false" for flag in (left, right)))
            for kind in ("compose", "inner") for left, right in self.transposed
        )  # fmt: skip


WEIGHT_CONFIGS = [
    WeightConfig("float", "int32_t", 1, 64, 64, 64, ((0, 0), (1, 1))),
    WeightConfig("float", "int64_t", 2, 130, 17, 9, ((0, 1), (1, 0))),
    WeightConfig("double", "int32_t", 3, 7, 5, 1, ((0, 0), (0, 1), (1, 0), (1, 1))),
    WeightConfig("float", "int32_t", 4, 1, 1, 16, ((0, 1),)),
    WeightConfig("float", "int32_t", 1, 3, 1100, 130, ((1, 0),)),
]

TRAVERSALS = """
extern "C" void set_threads(int n) { omp_set_num_threads(n); }
extern "C" void count_items(int64_t n, int64_t work, int64_t* out)
{ dacergnn::parallel_for(n, work, [=](int64_t i) { out[i] += i + 1; }); }
extern "C" void sum_groups(const int32_t* ptr, int64_t n, int64_t work, const double* x, double* out,
                           int64_t* visits) {
    dacergnn::parallel_groups(ptr, n, work, [=](int64_t g, int64_t begin, int64_t end) {
        double sum = 0;
        for (int64_t p = begin; p < end; ++p) sum += x[p];
        out[g] = sum;
        ++visits[g];
    });
}
extern "C" int64_t longest_undivided(int64_t rows) { return dacergnn::longest_undivided(rows); }
extern "C" void visit_tiles(const int64_t* ptr, int64_t n, int64_t work, int64_t tile, int64_t chunks,
                            int64_t hub_rows, int64_t* visits, int64_t* hubs) {
    const auto count = [](int64_t* out, int64_t first, int64_t last) { for (; first < last; ++first) ++out[first]; };
    dacergnn::parallel_tiles(
        ptr, n, work, tile, chunks, hub_rows, [=](int64_t first, int64_t last) { count(visits, first, last); },
        [=](int64_t first, int64_t last) { count(hubs, first, last); });
}
extern "C" void ends_of_tiles(const int64_t* ptr, int64_t n, int64_t work, int64_t tile, int64_t chunks, int64_t* ends)
{ dacergnn::parallel_tiles(ptr, n, work, tile, chunks, [=](int64_t first, int64_t last) { ends[first] = last; }); }
extern "C" void ends_of_ranges(int64_t n, int64_t work, int64_t chunks, int64_t* ends)
{ dacergnn::parallel_ranges(n, work, chunks, [=](int64_t first, int64_t last) { ends[first] = last; }); }
extern "C" void ends_of_slots(int64_t n, int64_t width, int64_t work, int64_t tile, int64_t chunks, int64_t* ends) {
    dacergnn::parallel_slots(n, width, n * width, work, tile, chunks,
                             [=](int64_t first, int64_t last) { ends[first] = last; });
}
extern "C" void visit_rows(const int32_t* groups, int64_t rows, int64_t n, int64_t tile, int64_t hub_rows,
                           int64_t* visits, int64_t* hubs) {
    const auto count = [](int64_t* out, int64_t first, int64_t last, dacergnn::Starts starts)
    { for (; first < last; ++first) out[first] += 1 + starts[first + 1] - starts[first]; };
    dacergnn::parallel_rows(
        groups, rows, n, 10, tile, hub_rows,
        [=](int64_t first, int64_t last, dacergnn::Starts starts) { count(visits, first, last, starts); },
        [=](int64_t first, int64_t last, dacergnn::Starts starts) { count(hubs, first, last, starts); });
}
extern "C" void order_of_blocks(const int64_t* ptr, int64_t n, int64_t blocks, int64_t row_work, int64_t* order)
{ std::copy_n(dacergnn::largest_first(ptr, n, blocks, row_work), blocks, order); }
extern "C" void split_sum(int64_t begin, int64_t end, const float* x, float* out) {
    dacergnn::split_rows<float>(
        begin, end, 1,
        [=](int64_t from, int64_t to, float* into) {
            float sum = 0;
            for (; from < to; ++from) sum += x[from];
            *into = sum;
        },
        [=](const float* partial) { *out += *partial; });
}
"""

REDUCE = """
extern "C" void reduce_{size}(const int64_t* ptr, int64_t n, int64_t work, const float* x, float* out) {{
    dacergnn::reduce_segments<float, int64_t, {size}>(ptr, n, work, out, [=](int64_t p, float* acc) {{
        for (int64_t f = 0; f < {size}; ++f) acc[f] += x[p * {size} + f];
    }});
}}
"""
REDUCE_SIZES = (1, 5, 64, 1500)


def command(compiler: str) -> list[str]:
    """The words that begin a command; clang does not know GCC's hints for loops."""
    return [needs(compiler), *FLAGS, *(["-Wno-unknown-pragmas"] if compiler == "clang++" else [])]


def build(folder: Path, compiler: str) -> ctypes.CDLL:
    """Two translation units side by side, as the machines that run the tests have at least two cores."""
    half = len(CONFIGS) // 2
    sources = [
        LISTS + "\n".join(c.products() + c.outer_products() for c in CONFIGS[:half]),
        LISTS + "\n".join(c.products() + c.outer_products() for c in CONFIGS[half:]),
        LISTS
        + "\n".join(c.is_blocked() + c.products() for c in DEEP_CONFIGS)
        + "\n".join(c.finished() for c in STREAMED_CONFIGS),
        '#include "dacergnn/weight_product.h"\n' + "\n".join(c.functions() for c in WEIGHT_CONFIGS),
        '#include "dacergnn/formats.h"\n' + TRAVERSALS + "".join(REDUCE.format(size=s) for s in REDUCE_SIZES),
    ]

    def compile_part(number: int) -> str:
        path = folder / f"part{number}.cpp"
        path.write_text(sources[number])
        made = str(path.with_suffix(".o"))
        words = [*command(compiler), "-I", str(INCLUDE), "-c", str(path), "-o", made]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return made

    with ThreadPoolExecutor() as pool:
        objects = list(pool.map(compile_part, range(len(sources))))
    library = folder / "kernels.so"
    subprocess.run([compiler, "-shared", "-fopenmp", *objects, "-o", str(library)], check=True)
    return ctypes.CDLL(str(library))


def call(function: ctypes._NamedFuncPointer, *arguments: Array | int | None) -> None:
    """Arrays as pointers, integers as int64, None as a null pointer."""
    converted: list[ctypes.c_void_p | ctypes.c_int64] = []
    for argument in arguments:
        if argument is None:
            converted.append(ctypes.c_void_p(None))
        elif isinstance(argument, int):
            converted.append(ctypes.c_int64(argument))
        else:
            assert argument.flags.c_contiguous
            converted.append(ctypes.c_void_p(argument.ctypes.data))
    function(*converted)
