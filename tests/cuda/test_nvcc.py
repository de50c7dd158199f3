"""nvcc compiles all kernels without warnings, those of float32 for sm_80 and sm_90, and no register is spilled.

The end of a run of tests reports how many registers each kernel takes.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import dace
import pytest

from dacergnn import Config, parse
from dacergnn.frontends.programs import hgt, rgat, rgcn
from dacergnn.graph.profile import TYPICAL, Profile
from dacergnn.library_nodes.node import Typeclass
from dacergnn.native.build import INCLUDE_FOLDER
from dacergnn.runtime.lower import lower
from dacergnn.sdfg_passes import compile_program
from tests.cuda import segment_gemm_source
from tests.cuda.samples import SOURCE
from tests.cuda.test_segment_gemm import CONFIGS
from tests.cuda.test_traversal import LAYERS, WIDE
from tests.cuda.traversals import source_of
from tests.nodes.test_fused_traversals import as_one
from tests.support.nvcc import PROPERTY, compile_nvcc

SPILLING = """
struct Spilling {
    float* y;
    __device__ void operator()() const {
        float values[100];
#pragma unroll
        for (int i = 0; i < 100; ++i) values[i] = y[i * 1024 + threadIdx.x];
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 100; ++i) y[i * 1024 + threadIdx.x + 1] = values[i];
    }
};
void spill(float* y) { dacergnn::cuda::launch<1024>(1, 0, Spilling{y}); }
"""


@pytest.mark.check
def test_the_samples_compile_for_every_architecture() -> None:
    usages = compile_nvcc(SOURCE.read_text(), (80, 90))
    products = [u for u in usages if "Product" in u.name]
    assert [u.arch for u in products] == ["sm_80", "sm_90"]
    assert all(u.name == "Product" for u in products)
    assert all(0 < u.registers <= 255 for u in usages)
    assert all(u.shared == 16 * 17 * 4 for u in products)
    assert all((u.spilled, u.stack > 0) == (0, "Deep" in u.name) for u in usages)


def test_no_nvcc_is_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("DACERGNN_REQUIRE_NVCC", raising=False)
    with pytest.raises(pytest.skip.Exception, match="nvcc is not on PATH"):
        compile_nvcc("")
    monkeypatch.setenv("DACERGNN_REQUIRE_NVCC", "1")
    with pytest.raises(pytest.fail.Exception, match="nvcc is not on PATH"):
        compile_nvcc("")


@pytest.mark.check
def test_spills_are_seen() -> None:
    (usage,) = compile_nvcc(SPILLING, (80,))
    assert usage.registers <= 64
    assert usage.spilled > 0


@pytest.mark.check
def test_warnings_are_errors() -> None:
    with pytest.raises(AssertionError, match="unused"):
        compile_nvcc("void f() { int unused; }", (80,))


ODD: dict[str, Any] = {
    "rgcn": (rgcn, {"x": "NS[33]", "W": "R[33, 17]", "norm": "E", "root": "ONE[33, 17]", "bias": "ONE[17]"}),
    "rgat": (rgat, {"x": "NS[33]", "W": "R[33, 51]", "q": "ONE[3, 17]", "k": "ONE[3, 17]", "bias": "ONE[3, 17]",
                    "heads": 3, "channels": 17, "slope": 0.2}),
    "hgt": (hgt, {"x": "NS[33]", "W_k": "T[33, 33]", "W_q": "T[33, 33]", "W_v": "T[33, 33]", "W_att": "R[3, 11, 11]",
                  "W_msg": "R[3, 11, 11]", "pri": "R[3]", "A": "T[33, 33]", "skip": "T", "heads": 3, "dim": 11,
                  "width": 33, "scale": 0.25}),
}  # fmt: skip
"""Sizes that no load of several elements divides."""


def layer(name: str, dtype: Typeclass, hubs: int = 0, cases: dict[str, Any] = LAYERS, level: str = "O2") -> str:
    """The programs of a layer, forward and backward, as they are built for a graph with groups of so many edges."""
    source, bindings = cases[name]
    wrt = [n for n, spec in bindings.items() if isinstance(spec, str)]
    longest = tuple((path, hubs) for path in ("src", "dst", "srcpair", "dstpair"))
    profile = Profile(TYPICAL.rows, single_typed=True, hubs=longest)
    program = parse(source, dtype=dtype, **bindings)
    plan = compile_program(program, wrt, Config(level, implementation="cuda"), dace.int32, profile, keep=False)
    assert plan.backward is not None
    code = "\n".join(lower(sdfg).code for sdfg in (plan.forward, plan.backward))
    return code.replace(name, f"{name}_hubs") if hubs else code


def layers(dtype: Typeclass, *hubs: int) -> str:
    """In one file, so that kernels that several layers use are compiled once."""
    return "\n".join(layer(name, dtype, longest) for name in ("rgcn", "rgat", "hgt") for longest in hubs)


def nests(dtype: Typeclass) -> str:
    sources = [as_one(parse(text, dtype=dtype), mapping) for mapping, text in WIDE.values()]
    functions = [source_of(sdfg, dtype, dace.int64, f"p{n}_")[1] for n, sdfg in enumerate(sources)]
    return "".join(functions)


SMALL_ELEMENTS = """#include "dacergnn/cuda/weight_product.cuh"
using namespace dacergnn::cuda;
template <class T>
void kernels(const T* X, const int* index, int64_t n, T* Y) {
    const Segments<int> types = {index, n};
    start(segment_gemm<T, 1, 64, 64, false, 1>(X, index, X, types, n, index, X, Y));
    start(segment_gemm<T, 4, 33, 17, true, 0>(X, nullptr, X, types, n, index, X, Y));
    start(segment_gemm_scatter_pairs<T, 1, 64, 64, true, 1>(X, index, X, types, n, X, index, index, index, index, n, n,
                                                            Y));
    start(segment_outer<T, 1, 64, 64, 1>(X, index, X, index, types, n, index, X, Y));
}
template void kernels(const __nv_bfloat16*, const int*, int64_t, __nv_bfloat16*);
template void kernels(const __half*, const int*, int64_t, __half*);
"""


def products() -> str:
    """On matrix units, of several heads, with scales, lists and an epilogue; the others are in layers."""
    config = next(config for config in CONFIGS if config.tf32 and config.scale_size == 2)
    return segment_gemm_source.HEAD + config.functions()


def narrow_products() -> str:
    """Returns products whose whole weight has no room in shared memory."""
    config = next(config for config in CONFIGS if config.shared < 160 and config.k == 128)
    config = replace(config, parts=segment_gemm_source.Config.parts)
    return config.limit + segment_gemm_source.HEAD + config.functions()


SOURCES: dict[str, Callable[[], str]] = {
    "products": products,
    "products in little shared memory": narrow_products,
    "products of 16 bits": lambda: SMALL_ELEMENTS,
    "nests, float32": lambda: nests(dace.float32),
    "nests, bfloat16": lambda: nests(dace.bfloat16),
    "layers, float32": lambda: layers(dace.float32, 0, 100_000),
    "layers, float64": lambda: layers(dace.float64, 0),
    "layers, TF32": lambda: f"#define DACERGNN_TF32\n{layers(dace.float32, 0)}",
    "layers of level hector": lambda: "\n".join(layer(name, dace.float32, level="hector") for name in ODD),
    "layers of odd sizes": lambda: "\n".join(layer(name, dace.float32, 0, ODD) for name in ODD),
    "layers with hubs, bfloat16": lambda: layers(dace.bfloat16, 100_000),
}


ARCHITECTURES = {
    "products in little shared memory": (86, 120),
    "layers, float32": (80, 90),
    "layers, float64": (80,),
    "nests, float32": (80,),
}
"""Architectures other than sm_90 alone. nvcc takes minutes for all kernels, so that one source has both."""


def kernel_templates() -> set[str]:
    """The functors in the headers that a launch runs: they are given the number of their block."""
    texts = [path.read_text() for path in (INCLUDE_FOLDER / "dacergnn" / "cuda").glob("*.cuh")]
    structs = [part for text in texts for part in re.split(r"^struct ", text, flags=re.MULTILINE)[1:]]
    return {re.split(r"\W", part)[0] for part in structs if "= blockIdx.x) const" in part}


@pytest.mark.check
@pytest.mark.no_cover
@pytest.mark.parametrize("kernels", SOURCES)
def test_kernels(kernels: str, record_property: Callable[[str, object], None]) -> None:
    source, started = SOURCES[kernels](), time.perf_counter()
    architectures = ARCHITECTURES.get(kernels, (90,))
    usages = compile_nvcc(source, architectures)
    seconds = time.perf_counter() - started
    record_property(PROPERTY, {"title": kernels, "seconds": seconds, "usages": [asdict(usage) for usage in usages]})
    assert {usage.arch for usage in usages} == {f"sm_{arch}" for arch in architectures}
    assert not [usage for usage in usages if usage.spilled]
    if kernels == "layers, float32":  # with and without hubs, these have kernels of every kind
        compiled = {name for usage in usages for name in re.findall(r"\w+", usage.name)}
        assert len(kernel_templates()) > 10
        assert kernel_templates() <= compiled
