"""CUDA traversals in emulation against the interpreter: every statement, nest and group, layers, random programs."""

from __future__ import annotations

import ctypes
import re
from itertools import pairwise

import dace
import numpy as np
import pytest
import torch

from dacergnn import Config, parse
from dacergnn.frontends.programs import hgt, rgat, rgcn
from dacergnn.graph.profile import TYPICAL, Profile
from dacergnn.library_nodes.node import Typeclass
from dacergnn.sdfg_passes import compile_program
from tests.cuda.traversals import Kernels, emulated, source_of
from tests.nodes.statements import traversals
from tests.nodes.test_expansions import graphs, with_index
from tests.nodes.test_fused_traversals import NESTS, as_one
from tests.nodes.test_levels import PROFILES, single_typed
from tests.nodes.test_schedules import OPERATIONS, everything
from tests.support.emulated import Array, compile_emulated, device
from tests.support.random_graphs import RawGraph
from tests.support.random_programs import large_case

# Bodies beside those of the CPU's tests; each becomes one operator under its mapping.
WIDE = {
    # Wide rows that lanes cannot keep to themselves, over several loops: shifted, joined, seen in another shape.
    "shifted": (
        "ND",
        """def p(g, a: E[3, 8], b: NS[24], m: ND[24]):
    for e in g.edges():
        e["s"] = reshape(e.a, 24) * e.src.b
        e["t"] = concat(slice(e["s"], 8, 24), slice(e["s"], 0, 8)) + e.dst.m
        e.dst["u"] += e["t"]
        e.dst["low"] = min(e.dst["low"], sum(e["t"]))
    for n in g.dst_nodes():
        n["v"] = concat(slice(n["u"], 20, 24), slice(n["u"], 0, 20)) * n["low"]
    for e in g.edges():
        e["w"] = dot_prd(reshape(e["t"], 3, 8), reshape(e.dst["v"], 3, 8))
        e.dst["x"] += dot_prd(e["w"], e["w"])
    return w, x, u
""",
    ),
    # Heads added up, and rows spread over heads.
    "heads": (
        "ND",
        """def p(g, a: E[3], b: NS[3, 24], m: ND[24]):
    for e in g.edges():
        e["s"] = e.a * e.src.b
        e.dst["u"] += sum_heads(e["s"]) + sum_heads(e.src.b * 2.0)
        e["t"] = dot_prd(to_heads(e.dst.m, 3), e["s"])
        e.dst["v"] += to_heads(e.dst.m, 3) * e["t"]
    for n in g.dst_nodes():
        n["w"] = sum_heads(n["v"]) * n["u"]
    return t, v, w
""",
    ),
    # Sums of many elements to a few: heads of whole rounds of the lanes, of parts of one, of neither; a lone one.
    "sums": (
        "NS",
        """def p(g, a: E[2, 64], b: ND[8, 8], c: NS[3, 20], d: ND[3, 20], h: NS[130], k: ND[130]):
    for e in g.edges():
        e["s"] = sum(e.a)
        e["t"] = dot_prd(e.dst.b, e.dst.b)
        e["u"] = dot_prd(e.src.c, e.dst.d) * sum(e["s"])
        e["v"] = dot_prd(e.src.h, e.dst.k)
        e.src["x"] += sum(e["t"]) * e["v"]
        e.src["y"] += e["u"] * e.dst.d
    for n in g.src_nodes():
        n["z"] = dot_prd(n["y"], n.c) * n["x"]
    return s, t, u, z, x
""",
    ),
    # Pairs between: values of theirs that edges read, with no sum over the edges of one.
    "pairs": (
        "ND",
        """def p(g, a: NS[32], b: ND[32], q: R[32], r: U):
    for v in g.dst_pairs():
        v["s"] = dot_prd(v.dst.b, q[v.etype])
    for e in g.edges():
        e["t"] = leakyrelu(e.dst_pair["s"] + e.src_pair.r, 0.2)
        e.dst["large"] = max(e.dst["large"], e["t"])
        e["x"] = exp(e["t"] - e.dst["large"])
        e.dst["total"] += e["x"]
    for v in g.dst_pairs():
        v["k"] = v["s"] / v.dst["total"]
        v.dst["kept"] += v["k"] * q[v.etype]
    for e in g.edges():
        e.dst["out"] += e["x"] * e.dst_pair["k"] * e.src.a
    for n in g.dst_nodes():
        n["last"] = n["out"] / (n["kept"] + 3.0)
    return last, x, k
""",
    ),
    # No row needs another one.
    "maps": (
        "V",
        """def p(g, a: E[40], b: ND[40], c: V):
    for e in g.edges():
        e["s"] = dot_prd(e.a, e.dst.b)
        e["t"] = e["s"] * e.dst_pair.c * e.a
    return s, t
""",
    ),
}


def hub(out: bool) -> RawGraph:
    """Node 2 (0) has 700 incoming (outgoing) edges, most of one type; others have a few, the last two none."""
    rng = np.random.default_rng(7)
    one = np.concatenate([np.full(700, 0 if out else 2), rng.integers(0, 7, 60)])
    other, kinds = rng.integers(0, 7, len(one)), np.array([0, 1, 1, 0, 1, 0, 2, 0, 0])
    src, dst = (one, other) if out else (other, one)
    return RawGraph(src, dst, rng.choice([0, 0, 0, 2, 3], len(one)), kinds, kinds, 4, 3)


def all_graphs() -> list[RawGraph]:
    return [*graphs()[5:-1], hub(out=False), hub(out=True)]


def check(kernels: Kernels) -> None:
    for number, raw in enumerate(all_graphs()):
        kernels.check(raw, number)


@pytest.mark.parametrize("nest", ["ND > E", "ND > V", "NS > U > E", "V > E", "E"])
def test_nests(nest: str) -> None:
    """Nests of other mappings are among those of `everything`, and of the wide ones."""
    mapping, text = NESTS[nest]
    check(emulated(as_one(parse(text, dtype=dace.float64), mapping), hub_rows=300))


@pytest.mark.parametrize(
    ("nest", "dtype"),
    [("shifted", dace.float64), ("heads", dace.bfloat16), ("sums", dace.float32), ("pairs", dace.float16),
     ("maps", dace.float64)],
)  # fmt: skip
def test_wide_nests(nest: str, dtype: Typeclass) -> None:
    mapping, text = WIDE[nest]
    hub_rows = 0 if dtype == dace.float64 else 300
    check(emulated(as_one(parse(text, dtype=dtype), mapping), dtype, dace.int64, hub_rows=hub_rows))


def test_statements() -> None:
    check(emulated(parse(traversals(every=5), dtype=dace.float64)))


def test_softmax_and_lone_reductions() -> None:
    """Of the lone ones, two to each kind of target, so that each operation has results of one element and of two."""
    without = [
        f"l_{way}_{operation}_{size}"
        for n, way in enumerate(("src", "dst", "src_pair", "dst_pair"))
        for m, operation in enumerate(OPERATIONS)
        for i, size in enumerate(("one", "two"))
        if (n + m) % 3 != i
    ]
    check(emulated(everything(dace.float32), dace.float32, without=without))


LAYERS = {
    "rgcn": (rgcn, {"x": "NS[64]", "W": "R[64, 64]", "norm": "E", "root": "ONE[64, 64]", "bias": "ONE[64]"}),
    "rgat": (rgat, {"x": "NS[64]", "W": "R[64, 64]", "q": "ONE[1, 64]", "k": "ONE[1, 64]", "bias": "ONE[1, 64]",
                    "heads": 1, "channels": 64, "slope": 0.2}),
    "rgat of odd heads": (rgat, {"x": "NS[10]", "W": "R[10, 21]", "q": "ONE[3, 7]", "k": "ONE[3, 7]",
                                 "bias": "ONE[3, 7]", "heads": 3, "channels": 7, "slope": 0.2}),
    "hgt": (hgt, {"x": "NS[64]", "W_k": "T[64, 64]", "W_q": "T[64, 64]", "W_v": "T[64, 64]", "W_att": "R[8, 8, 8]",
                  "W_msg": "R[8, 8, 8]", "pri": "R[8]", "A": "T[64, 64]", "skip": "T", "heads": 8, "dim": 8,
                  "width": 64, "scale": 0.25}),
}  # fmt: skip


def fused(layer: str, sizes: str, dtype: Typeclass) -> list[dace.SDFG]:
    """Forward and backward as the passes leave them for these sizes."""
    source, bindings = LAYERS[layer]
    wrt = [n for n, spec in bindings.items() if isinstance(spec, str)]
    profile = Profile(tuple(PROFILES[sizes].items()), single_typed=True)
    plan = compile_program(parse(source, dtype=dtype, **bindings), wrt, Config(), dace.int32, profile)
    steps = next(step.sdfgs for step in plan.steps if step.name == "select_schedule")
    return [steps["forward"], steps["backward"]]


@pytest.mark.parametrize(
    ("layer", "sizes", "dtype"),
    [
        ("rgat of odd heads", "relations", dace.float64),
        ("hgt", "destinations", dace.float32),
    ],
)
def test_layers(layer: str, sizes: str, dtype: Typeclass) -> None:
    hub_rows = 300 if dtype == dace.float32 else 0
    forward, backward = (emulated(sdfg, dtype, hub_rows=hub_rows) for sdfg in fused(layer, sizes, dtype))
    for number, raw in enumerate([*graphs()[6:-1], hub(out=False), hub(out=True)]):
        values = forward.check(single_typed(raw), number)
        backward.check(single_typed(raw), number, values)


@pytest.mark.no_cover
def test_large_random_programs() -> None:
    case, seed = large_case(2), 2
    plan = compile_program(parse(case.text, dtype=dace.float64), case.wrt, Config(), dace.int32, TYPICAL)
    steps = next(step.sdfgs for step in plan.steps if step.name == "select_schedule")
    inputs = {name: value.numpy() for name, value in case.inputs.items()}
    values = emulated(steps["forward"]).check(case.graph, seed, inputs)
    emulated(steps["backward"]).check(case.graph, seed, values)


@pytest.mark.parametrize(("nest", "launches"), [("pairs", 6), ("sums", 2), ("shifted", 3), ("maps", 1)])
def test_launches_for_hubs(nest: str, launches: int) -> None:
    """One for every loop over a group and one to store its row."""
    mapping, text = WIDE[nest]
    sdfg = as_one(parse(text, dtype=dace.float32), mapping)
    for split_hubs in (False, True):
        _, source = source_of(sdfg, dace.float32, dace.int32, split_hubs=split_hubs)
        assert source.count("cuda::traverse_") == (launches if split_hubs else 1)


STRIPS = """def p(g, a: NS[20, 40], b: E[17, 31], c: ND[10, 100], d: E[384]):
    for n in g.src_nodes():
        even[n.ntype] += n.a
    for e in g.edges():
        odd[e.etype] = max(odd[e.etype], e.b)
    for n in g.dst_nodes():
        scaled[n.ntype] += n.c * dot_prd(n.c, n.c)
    for e in g.edges():
        all += e.d
    return even, odd, scaled, all
"""


@pytest.mark.parametrize(("dtype", "strips"), [(dace.float64, "4342"), (dace.bfloat16, "2321")])
def test_strips_of_wide_rows(dtype: Typeclass, strips: str) -> None:
    """Whole strips and parts of one, with and without runs, and with sums over rows of which a block has a strip."""
    kernels = emulated(parse(STRIPS, dtype=dtype), dtype)
    _, source = source_of(kernels.sdfg, dtype, dace.int32)
    assert "".join(re.findall(r"int64_t\(\w+\), \d+, \d+, (\d), dacergnn::cuda::take", source)) == strips
    check(kernels)


CHUNKS = """#include "dacergnn/cuda/traversal.cuh"
extern "C" void sums(const float* x, const int* ptr, int64_t groups, int64_t rows, int64_t limit, float* partials,
                     float* out) {
    using namespace dacergnn::cuda;
    start(reduce_chunks<Sum, 2>(Groups<int>{ptr, rows}, groups, rows, limit, 40, 2, partials, out,
                                [=] __device__(const Block crew, int64_t begin, int64_t end, int64_t, int strip,
                                               float* into) {
        float own[1] = {};
        const int f = strip * 32 + lane();
        for (int64_t i = begin + rank<32>(crew); i < end; i += teams<32>(crew))
            if (f < 40) own[0] += x[i * 40 + f];
        merge<32>(crew, own, Sum());
        if (rank<32>(crew) == 0) store_row<32, 1, 40>(into, own, strip * 32);
    }));
}
"""


@pytest.mark.parametrize("limit", [1, 3, 100])
def test_sums_of_chunks(limit: int) -> None:
    """Groups over several chunks, several in one, none at all; ``limit`` sums of chunks besides one for each group."""
    lengths = [0, 700, 0, 1, 2, 300, 0, 1100, 5, 0]
    ptr, rows = np.cumsum([0, *lengths]).astype(np.int32), sum(lengths)
    x = np.random.default_rng(0).uniform(-1, 1, (rows, 40)).astype(np.float32)
    out = device(np.full((len(lengths), 40), np.nan, dtype=np.float32))
    arrays = [device(x), device(ptr), device(np.full((limit + len(lengths), 40), np.nan, dtype=np.float32)), out]
    pointers = [ctypes.c_void_p(a.ctypes.data) for a in arrays]
    sizes = [ctypes.c_int64(n) for n in (len(lengths), rows, limit)]
    library = compile_emulated(CHUNKS)
    library.seed(limit)
    library.sums(*pointers[:2], *sizes, *pointers[2:])
    expected = [x[a:b].sum(0, dtype=np.float64) for a, b in pairwise(ptr)]
    np.testing.assert_allclose(out, expected, atol=1e-4)


def test_no_order_of_threads_changes_a_bit() -> None:
    mapping, text = WIDE["sums"]
    sdfg = as_one(parse(text, dtype=dace.float32), mapping)
    kernels = emulated(sdfg, dace.float32, dace.int64, hub_rows=300)  # as in the test of wide nests
    graph = with_index(hub(out=True).hetero(), torch.int64)
    values = kernels.values(graph, 0, {})
    found: list[dict[str, Array]] = []
    for seed in (0, 1, 2):
        kernels.library.seed(seed)
        found.append(kernels.run(graph, values))
    for other in found[1:]:
        assert all(np.array_equal(found[0][name], other[name]) for name in other)
