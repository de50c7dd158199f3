"""CUDA products of segments in emulation against numpy in float64: every form, sizes, lists, scales, empty types."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dacergnn.library_nodes.segment_gemm.device_plan import MOST_CHUNKS
from tests.cuda.segment_cases import NUMPY, Operands, call, library, make_case, pointer_of
from tests.cuda.segment_gemm_source import PARTS, Config, WeightConfig
from tests.support.emulated import EmulationError, device

# Whole tiles, padded sizes, heads in one panel and in several, several chunks, weights that are read piece by piece.
CONFIGS = [
    Config("float", "int32_t", 1, 64, 64, 1, parts=("product",)),
    Config("double", "int64_t", 3, 5, 3, 3, parts=("transposed", "sums", "outer")),
    Config("float", "int32_t", 2, 130, 10, 0, parts=("transposed", "sums")),
    Config("double", "int32_t", 1, 70, 140, 1, parts=("product", "outer")),
    Config("float", "int64_t", 2, 6, 40, 2, tile_rows=128, least_blocks=2, parts=("product",)),
    Config("float", "int64_t", 2, 33, 17, 2, tf32=True),
    Config("__half", "int64_t", 3, 33, 17, 3, parts=("product", "transposed", "outer")),
    # On devices with less shared memory, where 64 rows and the whole weight have no room.
    Config("float", "int32_t", 1, 128, 128, 1, shared=99, parts=("transposed",)),
    Config("__nv_bfloat16", "int32_t", 1, 192, 192, 0, shared=99, parts=("sums",)),
]
WEIGHT_CONFIGS = [
    WeightConfig("float", "int64_t", 2, 70, 17, 9),
    WeightConfig("float", "int32_t", 4, 20, 16, 16, tf32=True, transposed=((0, 1), (1, 0))),
]
LENGTHS = {
    "mixed": [0, 1, 17, 0, 5, 73, 2, 0],
    "tiny": [3, 1, 2],
    "many": [i % 4 for i in range(30)],
    "long": [1, 1033, 40],
    "no rows": [0, 0],
    "no types": [],
}


def with_parts(*parts: str) -> list[Config]:
    return [config for config in CONFIGS if any(part in config.parts for part in parts)]


def cases(*parts: str) -> list[Any]:
    """Configurations and lengths, in turns with lists; few rows where there is much to compute: emulation is slow."""
    return [
        pytest.param(config, lengths, listed, id=f"{config.name}-{name}-{'rows' if listed else 'identity'}")
        for n, config in enumerate(with_parts(*parts))
        for m, (name, lengths) in enumerate(LENGTHS.items())
        for listed in (False, True)
        if listed == bool((n + m) % 2) or name == "tiny"
        if config.heads * config.k * config.m * sum(-(-n // 16) for n in lengths) < (1 << 16)
    ]


@pytest.mark.parametrize(("config", "lengths", "listed"), cases(*PARTS))
def test_products(config: Config, lengths: list[int], listed: bool) -> None:
    case = make_case(lengths, config.index, sorted_rows=not listed)
    n, types, h = len(case.rows), len(lengths), config.heads
    o = Operands(config)
    for transpose in (n for n, part in enumerate(PARTS) if part in config.parts):
        k, m = (config.m, config.k) if transpose else (config.k, config.m)
        lib = library(config, (max(n, 1) + MOST_CHUNKS) * h * m * 8 + 256)
        weight = o.array((types, h, config.k, config.m))
        w = o.factor(np.swapaxes(weight, 2, 3) if transpose else weight)
        scale = o.array((n, config.scale_size)) if config.scale_size else None
        factor = np.ones((n, h)) if scale is None else np.broadcast_to(scale.astype(np.float64), (n, h))
        gather, rows = (case.gather, case.rows) if listed else (None, None)
        x = o.array((n if gather is None else case.nodes, h, k))
        taken = o.factor(x if gather is None else x[gather])
        expected = (np.einsum("nhd,nhdc->nhc", taken, w[case.type_of]) * factor[:, :, None]).reshape(n, h * m)

        arguments = (x, gather, weight, case.ptr, types, n, rows, scale)
        y, sums = o.array((n, h * m), np.nan), o.array((n,), np.nan)
        call(getattr(lib, f"gemm{transpose}_{config.name}"), *arguments, y, sums)
        if listed:
            o.check(y, expected)
        else:
            o.check_turned(y, sums, expected)

        if transpose != config.sums_transposed:
            continue
        lib.set_least_chunk(260 if listed else 1 << 20)
        added = np.zeros((case.y_rows, h * m))
        np.add.at(added, case.target, expected)
        index = NUMPY[config.index]
        target_rows = device(np.argsort(case.target, kind="stable").astype(index))
        target_ptr = pointer_of(case.target, case.targets, index)
        y, sums = o.array(added.shape, np.nan), o.array((case.y_rows,), np.nan)
        targets = (target_ptr, target_rows, case.targets, case.y_rows)
        call(getattr(lib, f"scatter_{config.name}"), *arguments, *targets, y, sums)
        o.check_turned(y, sums, added)


@pytest.mark.parametrize("least_chunk", [260, 664, 1 << 20], ids=["hubs", "as long as a chunk", "no hubs"])
@pytest.mark.parametrize("config", with_parts("sums"), ids=lambda c: c.name)
def test_products_of_sums(config: Config, least_chunk: int) -> None:
    """Rows of a (type, target) pair, or of a target, are added before they are multiplied; some are 664 and 705."""
    lengths = [40, 0, 1831, 5] if config.k * config.m < 2000 else [20, 0, 31, 5]
    case = make_case(lengths, config.index, sorted_rows=False)
    n, types, h, index = len(case.rows), len(lengths), config.heads, NUMPY[config.index]
    pairs, pair_of = np.unique(np.stack([case.type_of, case.target]), axis=1, return_inverse=True)
    count = pairs.shape[1]
    pair_ptr, pair_rows = pointer_of(pair_of, count, index), device(np.argsort(pair_of, kind="stable").astype(index))
    type_ptr, target_pairs = (
        pointer_of(pairs[0], types, index),
        device(np.argsort(pairs[1], kind="stable").astype(index)),
    )
    target_ptr = pointer_of(pairs[1], case.targets, index)
    o = Operands(config)
    k, m = (config.m, config.k) if config.sums_transposed else (config.k, config.m)
    lib = library(config, (count * h * m + MOST_CHUNKS * h * max(k, m)) * 8 + 256)
    lib.set_least_chunk(least_chunk)
    weight = o.array((types, h, config.k, config.m))
    w = o.factor(np.swapaxes(weight, 2, 3) if config.sums_transposed else weight)
    scale = o.array((n, config.scale_size)) if config.scale_size else None
    factor = np.ones((n, h)) if scale is None else np.broadcast_to(scale.astype(np.float64), (n, h))

    x = o.array((case.nodes, h, k))
    sums = np.zeros((count, h, k))
    np.add.at(sums, pair_of, x[case.gather].astype(np.float64) * factor[:, :, None])
    products = np.einsum("nhd,nhdc->nhc", o.factor(sums.astype(o.dtype)), w[pairs[0]]).reshape(count, h * m)
    expected = np.zeros((case.y_rows, h * m))
    np.add.at(expected, pairs[1], products)
    y = o.array(expected.shape, np.nan)
    arguments = (
        x,
        device(case.gather[pair_rows]),
        weight,
        type_ptr,
        types,
        count,
        scale,
        pair_ptr,
        pair_rows,
        target_ptr,
        target_pairs,
    )
    call(getattr(lib, f"pairs_{config.name}"), *arguments, case.targets, case.y_rows, n, y)
    o.check(y, expected, of_sums=True)

    x, target = o.array((n, h, k)), np.sort(case.target)
    sums = np.zeros((case.y_rows, h, k))
    np.add.at(sums, target, x.astype(np.float64) * factor[:, :, None])
    expected = np.einsum("nhd,hdc->nhc", o.factor(sums.astype(o.dtype)), w[0]).reshape(-1, h * m)
    y, row_sums = o.array(expected.shape, np.nan), o.array((case.y_rows,), np.nan)
    arguments = (x, weight, scale, pointer_of(target, case.targets, index), case.targets, case.y_rows, n)
    call(getattr(lib, f"sums_{config.name}"), *arguments, y, row_sums)
    o.check_turned(y, row_sums, expected, of_sums=True)


@pytest.mark.parametrize(("config", "lengths", "listed"), cases("outer"))
def test_weight_gradient(config: Config, lengths: list[int], listed: bool) -> None:
    case = make_case(lengths, config.index, sorted_rows=not listed)
    h, k, m = config.heads, config.k, config.m
    n, types = len(case.rows), len(lengths)
    o = Operands(config, seed=2)
    lib = library(config, (types + 512) * h * k * m * 8)
    scale = o.array((n, config.scale_size)) if config.scale_size else None
    factor = np.ones((n, h)) if scale is None else np.broadcast_to(scale.astype(np.float64), (n, h))
    gx, gy, rows = (case.gather, device(case.target.astype(NUMPY[config.index])), case.rows) if listed else (None,) * 3
    x = o.array((n if gx is None else case.nodes, h, k))
    y = o.array((n if gy is None else case.y_rows, h, m))
    left, right = (x if gx is None else x[gx]).astype(np.float64), (y if gy is None else y[gy])
    if config.tf32 or o.small:
        left = o.factor((left * factor[:, :, None]).astype(np.float32).astype(o.dtype))
    else:
        left *= factor[:, :, None]
    right = o.factor(np.ascontiguousarray(right))
    expected = np.zeros((types, h, k, m))
    for t in range(types):
        expected[t] = np.einsum("nhk,nhm->hkm", left[case.type_of == t], right[case.type_of == t])
    for one_type in (False, True):
        dw = o.array((types if not one_type else 1, h, k, m), np.nan)
        call(
            getattr(lib, f"outer_{config.name}"),
            x,
            gx,
            y,
            gy,
            None if one_type else case.ptr,
            types,
            n,
            rows,
            scale,
            dw,
        )
        o.check(dw, expected.sum(0, keepdims=True) if one_type else expected, of_sums=True)


@pytest.mark.parametrize("rows", [0, 3])
@pytest.mark.parametrize("listed", [False, True], ids=["identity", "rows"])
@pytest.mark.parametrize("config", WEIGHT_CONFIGS, ids=lambda c: c.name)
def test_products_of_weights(config: WeightConfig, listed: bool, rows: int) -> None:
    o, lib = Operands(config, seed=3), library(config)
    h, k, d, m = config.heads, config.k, config.d, config.m
    nodes = 5 if listed else rows
    index = NUMPY[config.index]
    a, b = (device(o.rng.integers(0, nodes, rows).astype(index)) if listed else None for _ in range(2))
    left, right = ((k, h * d), (h, d, m)), ((k, h * d), (k, h * m))
    for kind, shapes, result in (("compose", left, (k, h * m)), ("inner", right, (h, d, m))):
        x, y = (o.array((nodes, *shape)) for shape in shapes)
        xs = o.factor(x if a is None else x[a]).reshape(rows, k, h, d)
        ys = o.factor(y if b is None else y[b])
        if kind == "compose":
            expected = np.einsum("rkhd,rhdm->rkhm", xs, ys).reshape(rows, *result)
        else:
            expected = np.einsum("rkhd,rkhm->rhdm", xs, ys.reshape(rows, k, h, m))
        for flags in config.transposed:
            operands = [
                device(np.ascontiguousarray(np.swapaxes(v, -1, -2))) if flag else v
                for v, flag in zip((x, y), flags, strict=True)
            ]
            z = o.array((rows, *result), np.nan)
            call(getattr(lib, f"{kind}{flags[0]}{flags[1]}_{config.name}"), operands[0], a, operands[1], b, rows, z)
            o.check(z, expected)


@pytest.mark.parametrize("operand", [0, 2])
def test_operands_that_are_not_aligned(operand: int) -> None:
    """Loads of several elements are not checked one by one; calls of layers copy such tensors."""
    config = CONFIGS[0]
    case, o = make_case([5], config.index, sorted_rows=True), Operands(config)
    n, lib = len(case.rows), library(config, 1 << 16)
    arrays = [o.array((n, config.heads, config.k)), None, o.array((1, config.heads, config.k, config.m))]
    given = arrays[operand]
    assert given is not None
    arrays[operand] = device(np.zeros(given.size + 1, given.dtype))[1:].reshape(given.shape)
    scale = o.array((n, config.scale_size)) if config.scale_size else None
    y, sums = o.array((n, config.heads * config.m)), o.array((n,))
    with pytest.raises(EmulationError, match="An array does not start at a multiple of 16 bytes"):
        call(getattr(lib, f"gemm0_{config.name}"), *arrays, case.ptr, 1, n, None, scale, y, sums)
