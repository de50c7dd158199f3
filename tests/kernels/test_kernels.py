"""CPU kernels against numpy in float64: shapes, gathers, row lists, scales, empty types, thread counts."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from dacergnn.cost import longest_undivided
from tests.kernels.harness import (
    BY_COMPILER,
    CONFIGS,
    DEEP_CONFIGS,
    REDUCE_SIZES,
    STREAMED_CONFIGS,
    WEIGHT_CONFIGS,
    Array,
    Config,
    WeightConfig,
    build,
    call,
)

NUMPY = {"float": np.float32, "double": np.float64, "int32_t": np.int32, "int64_t": np.int64}


@pytest.fixture(scope="session", params=BY_COMPILER)
def kernels(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """Compiles the kernels, which takes a quarter of a minute, since each has loops for every number of rows left."""
    return build(Path(tmp_path_factory.mktemp("kernels")), request.param)


@dataclass
class Case:
    """Rows of several types over one set of nodes. `rows` orders the row numbers by (type, target)."""

    type_of: Array
    gather: Array
    scatter: Array
    rows: Array
    ptr: Array
    scatter_ptr: Array
    nodes: int
    targets: int
    y_rows: int


def make_case(lengths: list[int], index: str, *, sorted_rows: bool, seed: int = 0, targets: int = 13) -> Case:
    rng = np.random.default_rng(seed)
    n, nodes = sum(lengths), 29
    type_of = np.repeat(np.arange(len(lengths)), lengths)
    scatter = rng.integers(0, targets, n) if targets else np.zeros(n, np.int64)
    scatter[: n // 3] = 0  # a hub
    if sorted_rows:
        scatter = scatter[np.lexsort((scatter, type_of))]
    else:
        order = rng.permutation(n)
        type_of, scatter = type_of[order], scatter[order]
    rows = np.lexsort((scatter, type_of))
    dtype = NUMPY[index]
    counts = np.bincount(scatter, minlength=targets)[:targets]
    return Case(
        type_of=type_of,
        gather=rng.integers(0, nodes, n).astype(dtype),
        scatter=scatter.astype(dtype),
        rows=rows.astype(dtype),
        ptr=np.concatenate([[0], np.cumsum(lengths)]).astype(dtype),
        scatter_ptr=np.concatenate([[0], np.cumsum(counts)]).astype(dtype),
        nodes=nodes,
        targets=targets,
        y_rows=targets + 4,
    )


def unaligned(shape: tuple[int, ...], dtype: type, rng: np.random.Generator | None = None) -> Array:
    """An array aligned to its element only; random, or filled with NaN to show what is not written."""
    size = int(np.prod(shape))
    memory = np.full(size + 33, np.nan, dtype)
    skip = 1 + (-memory.ctypes.data // memory.itemsize) % 16
    view = memory[skip : skip + size].reshape(shape)
    if rng is not None:
        view[...] = rng.standard_normal(shape)
    return view


def assert_close(actual: Array, expected: Array) -> None:
    """Equal up to the rounding of the dtype of `actual`, relative to the largest expected value."""
    atol = 100 * float(np.finfo(actual.dtype).eps) * float(np.abs(expected).max(initial=1.0))
    np.testing.assert_allclose(actual, expected, rtol=0, atol=atol)


LENGTHS = {
    "mixed": [0, 1, 37, 0, 5, 263, 2, 0],
    "tiny": [3, 1, 2],
    "one long": [3001],
    "many": [i % 7 for i in range(150)],
    "no rows": [0, 0],
    "no types": [],
}


def typed_products(x: Array, weight: Array, type_of: Array) -> Array:
    """Returns in float64 the rows of x (n, h, d) times the weights (types, h, d, c) of their types."""
    products = np.zeros((*x.shape[:2], weight.shape[3]))
    for t in np.unique(type_of):
        rows = np.swapaxes(x[type_of == t].astype(np.float64), 0, 1)
        products[type_of == t] = np.swapaxes(rows @ weight[t].astype(np.float64), 0, 1)
    return products


CASES = [(config, lengths) for config in CONFIGS for lengths in LENGTHS]
CASES += [(config, lengths) for config in DEEP_CONFIGS for lengths in ("mixed", "one long")]


@pytest.mark.parametrize(
    ("config", "lengths"), [pytest.param(c, LENGTHS[name], id=f"{c.name}-{name}") for c, name in CASES]
)
@pytest.mark.parametrize("listed", [False, True], ids=["identity", "rows"])
def test_products(kernels: ctypes.CDLL, config: Config, listed: bool, lengths: list[int]) -> None:
    case = make_case(lengths, config.index, sorted_rows=not listed)
    rng = np.random.default_rng(1)
    dtype, (h, k, m) = NUMPY[config.dtype], (config.heads, config.k, config.m)
    n, types = len(case.rows), len(lengths)
    weight = unaligned((types, h, k, m), dtype, rng)
    scale = unaligned((n, config.scale_size), dtype, rng) if config.scale_size else None
    factor = np.ones((n, h)) if scale is None else np.broadcast_to(scale.astype(np.float64), (n, h))
    rows = case.rows if listed else None

    for transpose in config.transposed:
        w = np.swapaxes(weight, 2, 3) if transpose else weight
        for gather in (case.gather, None):
            x = unaligned((n if gather is None else case.nodes, h, w.shape[2]), dtype, rng)
            taken = (x if gather is None else x[gather]).astype(np.float64) * factor[:, :, None]
            expected = typed_products(taken, w, case.type_of)
            summed = np.zeros((case.y_rows, h, w.shape[3]))
            np.add.at(summed, case.scatter, expected)
            common = (x, gather, weight, case.ptr, types, rows, scale)
            target = (case.scatter, case.scatter_ptr, case.targets, case.y_rows)
            results: list[tuple[Array, Array]] = []
            for threads in (1, 2):
                kernels["set_threads"](threads)
                y, z = unaligned(expected.shape, dtype), unaligned(summed.shape, dtype)
                call(kernels[f"gemm{transpose}_{config.name}"], *common, y)
                call(kernels[f"scatter{transpose}_{config.name}"], *common, *target, z)
                results.append((y, z))
            for found, again, right in zip(*results, (expected, summed), strict=True):
                assert_close(found, right)
                np.testing.assert_array_equal(found, again)


@pytest.mark.parametrize("config", STREAMED_CONFIGS, ids=lambda c: c.name)
def test_products_beyond_the_caches_are_the_same(kernels: ctypes.CDLL, config: Config) -> None:
    """Results of more than 64 MiB are streamed where their rows are whole cache lines of memory."""
    dtype, k, m = NUMPY[config.dtype], config.k, config.m
    n = (70 << 20) // (m * np.dtype(dtype).itemsize)
    case = make_case([n // 3, 0, 5, n - n // 3 - 5], config.index, sorted_rows=False)
    rng = np.random.default_rng(3)
    weight, x = unaligned((4, 1, k, m), dtype, rng), unaligned((case.nodes, 1, k), dtype, rng)
    scale = unaligned((n, config.scale_size), dtype, rng) if config.scale_size else None
    memory = np.full(n * m + 64, np.nan, dtype)
    start = (-memory.ctypes.data // memory.itemsize) % (64 // memory.itemsize)
    streamed, stored = memory[start : start + n * m].reshape(n, m), unaligned((n, m), dtype)
    for result in (streamed, stored):
        call(kernels[f"gemm0_{config.name}"], x, case.gather, weight, case.ptr, 4, case.rows, scale, result)
    np.testing.assert_array_equal(streamed, stored)
    some = rng.integers(0, n, 1000)
    expected = typed_products(x[case.gather[some]], weight, case.type_of[some])[:, 0]
    assert_close(streamed[some], expected if scale is None else expected * scale[some])
    call(kernels[f"finished_{config.name}"], x, case.gather, weight, case.ptr, 4, case.rows, scale, streamed)
    np.testing.assert_array_equal(streamed, 2 * stored)


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS.keys())
@pytest.mark.parametrize("listed", [False, True], ids=["identity", "rows"])
@pytest.mark.parametrize("config", [c for c in CONFIGS if c.runs], ids=lambda c: c.name)
def test_weight_gradient(kernels: ctypes.CDLL, config: Config, listed: bool, lengths: list[int]) -> None:
    case = make_case(lengths, config.index, sorted_rows=not listed)
    rng = np.random.default_rng(2)
    dtype, (h, k, m) = NUMPY[config.dtype], (config.heads, config.k, config.m)
    n, types = len(case.rows), len(lengths)
    scale = unaligned((n, config.scale_size), dtype, rng) if config.scale_size else None
    factor = np.ones((n, h)) if scale is None else np.broadcast_to(scale.astype(np.float64), (n, h))
    for gx, gy in [(case.gather, case.scatter), (None, None), (None, case.scatter), (case.gather, None)]:
        x = unaligned((n if gx is None else case.nodes, h, k), dtype, rng)
        y = unaligned((n if gy is None else case.y_rows, h, m), dtype, rng)
        left = (x if gx is None else x[gx]).astype(np.float64) * factor[:, :, None]
        right = (y if gy is None else y[gy]).astype(np.float64)
        expected = np.zeros((types, h, k, m))
        for t in range(types):
            expected[t] = np.einsum("nhk,nhm->hkm", left[case.type_of == t], right[case.type_of == t])
        for runs in config.runs:
            results: list[Array] = []
            for threads in (1, 2):
                kernels["set_threads"](threads)
                dw = unaligned((types, h, k, m), dtype)
                rows = case.rows if listed else None
                call(kernels[f"outer{runs}_{config.name}"], x, gx, y, gy, case.ptr, types, rows, scale, dw)
                results.append(dw)
            assert_close(results[0], expected)
            np.testing.assert_array_equal(results[0], results[1])


@pytest.mark.parametrize("rows", [0, 1, 3, 40])
@pytest.mark.parametrize("listed", [False, True], ids=["identity", "rows"])
@pytest.mark.parametrize("config", WEIGHT_CONFIGS, ids=lambda c: c.name)
def test_products_of_weights(kernels: ctypes.CDLL, config: WeightConfig, listed: bool, rows: int) -> None:
    rng = np.random.default_rng(3)
    dtype, (h, k, d, m) = NUMPY[config.dtype], (config.heads, config.k, config.d, config.m)
    nodes = 5 if listed else rows
    a = rng.integers(0, nodes, rows).astype(NUMPY[config.index]) if listed else None
    b = rng.integers(0, nodes, rows).astype(NUMPY[config.index]) if listed else None
    left, right = ((k, h * d), (h, d, m)), ((k, h * d), (k, h * m))
    for kind, shapes, result in (("compose", left, (k, h * m)), ("inner", right, (h, d, m))):
        x, y = (unaligned((nodes, *shape), dtype, rng) for shape in shapes)
        xs = (x if a is None else x[a]).astype(np.float64).reshape(rows, k, h, d)
        ys = (y if b is None else y[b]).astype(np.float64)
        if kind == "compose":
            expected = np.einsum("rkhd,rhdm->rkhm", xs, ys).reshape(rows, *result)
        else:
            expected = np.einsum("rkhd,rkhm->rhdm", xs, ys.reshape(rows, k, h, m))
        for flags in config.transposed:
            operands = [
                np.ascontiguousarray(np.swapaxes(v, -1, -2)) if flag else v
                for v, flag in zip((x, y), flags, strict=True)
            ]
            results: list[Array] = []
            for threads in (1, 2):
                kernels["set_threads"](threads)
                z = unaligned((rows, *result), dtype)
                name = f"{kind}{flags[0]}{flags[1]}_{config.name}"
                call(kernels[name], operands[0], a, operands[1], b, rows, z)
                results.append(z)
            assert_close(results[0], expected)
            np.testing.assert_array_equal(results[0], results[1])


def test_scatter_writes_only_zeros_without_rows(kernels: ctypes.CDLL) -> None:
    config = CONFIGS[0]
    case = make_case([0, 0], config.index, sorted_rows=True, targets=0)
    y = np.full((4, config.heads, config.m), np.nan, np.float32)
    x, weight = np.ones((1, 1, config.k), np.float32), np.ones((2, 1, config.k, config.m), np.float32)
    call(kernels[f"scatter0_{config.name}"], x, case.gather, weight, case.ptr, 2, None, None, case.scatter,
         case.scatter_ptr, 0, 4, y)  # fmt: skip
    assert (y == 0).all()


@pytest.mark.parametrize("work", [1, 1000])
@pytest.mark.parametrize("n", [0, 1, 5, 10_007])
def test_parallel_for_visits_every_item_once(kernels: ctypes.CDLL, n: int, work: int) -> None:
    kernels["set_threads"](2)
    out = np.zeros(n, np.int64)
    call(kernels["count_items"], n, work, out)
    np.testing.assert_array_equal(out, np.arange(n) + 1)


GROUPS = [[], [0], [4], [0, 3, 0, 20_000, 0, 0, 1], [3] * 5000, [0] * 9000]


@pytest.mark.parametrize("lengths", GROUPS, ids=len)
@pytest.mark.parametrize("work", [1, 1000])
def test_parallel_groups_visits_every_group_once(kernels: ctypes.CDLL, lengths: list[int], work: int) -> None:
    kernels["set_threads"](2)
    ptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    x = np.random.default_rng(0).integers(0, 9, int(ptr[-1])).astype(np.float64)
    out, visits = np.full(len(lengths), np.nan), np.zeros(len(lengths), np.int64)
    call(kernels["sum_groups"], ptr, len(lengths), work, x, out, visits)
    np.testing.assert_array_equal(visits, np.ones(len(lengths)))
    np.testing.assert_array_equal(out, [x[a:b].sum() for a, b in pairwise(ptr)])


EXTREMES = [-(1 << 63), -1, 0, 1, 64, 9000, 1 << 40, (1 << 63) - 1]
"""What schedules may ask for."""
WITH_HUBS = [*GROUPS, [5000, 4096, 0, 4097], [20_000, 4100] * 60]


def limit_of(kernels: ctypes.CDLL, rows: int, hub_rows: int) -> int:
    kernels["longest_undivided"].restype = ctypes.c_int64
    found = kernels["longest_undivided"](ctypes.c_int64(rows))
    assert found == longest_undivided(rows)
    return hub_rows if hub_rows > 0 else found


@pytest.mark.parametrize("hub_rows", [-1, 0, 1, 3, 4100, 1 << 40, (1 << 63) - 1])
@pytest.mark.parametrize("lengths", WITH_HUBS, ids=lambda x: str(len(x)))
def test_parallel_tiles_leaves_hubs_for_the_end(kernels: ctypes.CDLL, lengths: list[int], hub_rows: int) -> None:
    """Groups of more rows than asked for, or than the compiler goes by, are handed over alone, whatever the tile."""
    kernels["set_threads"](2)
    ptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    expected = np.array(lengths, np.int64) > limit_of(kernels, int(ptr[-1]), hub_rows)
    for tile in EXTREMES:
        for chunks in (EXTREMES[0], 16, EXTREMES[-1]):
            visits, hubs = np.zeros(len(lengths), np.int64), np.zeros(len(lengths), np.int64)
            call(kernels["visit_tiles"], ptr, len(lengths), 10, tile, chunks, hub_rows, visits, hubs)
            np.testing.assert_array_equal(hubs, expected)
            np.testing.assert_array_equal(visits, 1 - hubs)


@pytest.mark.parametrize("hub_rows", [-1, 0, 1, 3, 2000, 1 << 40, (1 << 63) - 1])
@pytest.mark.parametrize("lengths", WITH_HUBS, ids=lambda x: str(len(x)))
def test_parallel_rows_leaves_hubs_for_the_end(kernels: ctypes.CDLL, lengths: list[int], hub_rows: int) -> None:
    kernels["set_threads"](2)
    rows = np.repeat(np.arange(len(lengths)), lengths).astype(np.int32)
    limit = hub_rows if hub_rows > 0 else min(max(len(rows) // 64, 1024), 4096)
    own = np.array(lengths, np.int64)
    for tile in EXTREMES:
        visits, hubs = np.zeros(len(lengths), np.int64), np.zeros(len(lengths), np.int64)
        call(kernels["visit_rows"], rows, len(rows), len(lengths), tile, hub_rows, visits, hubs)
        np.testing.assert_array_equal(hubs, np.where(own > limit, own + 1, 0))
        np.testing.assert_array_equal(visits, np.where(own > limit, 0, own + 1))


def ends(kernels: ctypes.CDLL, name: str, n: int, *arguments: object) -> Array:
    """Where the ranges end that cover 0..n, in order."""
    found = np.zeros(n, np.int64)
    call(kernels[f"ends_of_{name}"], *arguments, found)
    starts = found.nonzero()[0]
    np.testing.assert_array_equal(starts, [0, *found[starts[:-1]]])
    assert found[starts[-1]] == n
    return found[starts]


def test_schedules_say_how_many_tiles_and_blocks_there_are(kernels: ctypes.CDLL) -> None:
    n = 100_000
    ptr = np.arange(n + 1) * 3
    kernels["set_threads"](2)
    for chunks, blocks in ((1, 2), (4, 8), (16, 32), (0, 2), (-7, 2)):
        assert len(ends(kernels, "tiles", n, ptr, n, 10, 1 << 40, chunks)) == blocks
        assert len(ends(kernels, "ranges", n, n, 10, chunks)) == blocks
        assert len(ends(kernels, "slots", n, n, 3, 10, 1 << 40, chunks)) == blocks
    most = 4 * 3 * n * 10 // 16384  # each worth handing out
    assert 32 < len(ends(kernels, "tiles", n, ptr, n, 10, 1 << 40, 1 << 62)) <= 2 * most
    for tile, groups in ((9, 3), (1, 1), (0, 1), (-5, 1)):
        found = np.diff(ends(kernels, "tiles", n, ptr, n, 10, tile, 1))
        assert found.max() == groups
        found = np.diff(ends(kernels, "slots", n, n, 3, 10, tile, 1))
        assert found.max() == groups


def test_threads_take_blocks_with_long_groups_first(kernels: ctypes.CDLL) -> None:
    lengths = np.full(40_000, 5)
    lengths[[17_000, 33_000]] = 30_000, 20_000
    ptr, blocks = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64), 100
    for threads, row_work in ((1, 1), (2, 4)):
        kernels["set_threads"](threads)
        order = np.zeros(blocks, np.int64)
        call(kernels["order_of_blocks"], ptr, len(lengths), blocks, row_work, order)
        work = np.cumsum(lengths * row_work + 1)
        first = [int(work[g - 1] * blocks // work[-1]) for g in (17_000, 33_000)]
        np.testing.assert_array_equal(order, [*first, *(b for b in range(blocks) if b not in first)])


@pytest.mark.parametrize("rows", [0, 1, 128, 129, 30_000, 100_000])
def test_split_rows_adds_chunks_in_order(kernels: ctypes.CDLL, rows: int) -> None:
    x = np.random.default_rng(0).standard_normal(rows + 3).astype(np.float32)
    expected = np.float32(0)
    size = min(max(-(-rows // 64), 128), 1024)
    for start in range(3, rows + 3, size):
        expected += np.cumsum(x[start : min(start + size, rows + 3)])[-1]
    for threads in (1, 2, 3):
        kernels["set_threads"](threads)
        out = np.zeros(1, np.float32)
        call(kernels["split_sum"], 3, rows + 3, x, out)
        assert out[0] == expected


@pytest.mark.parametrize("size", REDUCE_SIZES)
@pytest.mark.parametrize(
    "lengths",
    [[], [0], [10], [20_000], [0, 300, 5, 9000, 0], [2] * 700],
    ids=lambda x: "-".join(map(str, x[:5])),
)
def test_reduce_segments(kernels: ctypes.CDLL, size: int, lengths: list[int]) -> None:
    ptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    x = np.random.default_rng(0).standard_normal((int(ptr[-1]), size)).astype(np.float32)
    sums = [x[a:b].astype(np.float64).sum(0) for a, b in pairwise(ptr)]
    expected = np.array(sums).reshape(len(lengths), size)
    results: list[Array] = []
    for threads in (1, 2, 3):
        kernels["set_threads"](threads)
        out = np.full((len(lengths), size), np.nan, np.float32)
        call(kernels[f"reduce_{size}"], ptr, len(lengths), size, x, out)
        assert_close(out, expected)
        results.append(out)
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])
