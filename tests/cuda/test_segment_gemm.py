"""CUDA products of segments in emulation against numpy in float64: every form, sizes, lists, scales, empty types."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tests.cuda.segment_gemm_source import HEAD, Config, WeightConfig
from tests.support.emulated import Array, EmulatedLibrary, compile_emulated, device
from tests.support.nvcc import compile_nvcc

NUMPY = {"float": np.float32, "double": np.float64, "int32_t": np.int32, "int64_t": np.int64}
# Whole tiles, padded sizes, heads in one panel and in several, several chunks, weights that are read piece by piece.
CONFIGS = [
    Config("float", "int32_t", 1, 64, 64, 1),
    Config("double", "int64_t", 3, 5, 3, 3),
    Config("float", "int32_t", 4, 16, 8, 4),
    Config("float", "int32_t", 2, 130, 10, 0),
    Config("double", "int32_t", 1, 70, 140, 1),
    Config("float", "int32_t", 1, 64, 64, 0, tf32=True),
    Config("float", "int32_t", 8, 8, 8, 8, tf32=True),
    Config("float", "int64_t", 2, 33, 17, 2, tf32=True),
]
WEIGHT_CONFIGS = [
    WeightConfig("float", "int64_t", 2, 70, 17, 9),
    WeightConfig("double", "int32_t", 3, 7, 5, 1),
    WeightConfig("float", "int32_t", 4, 20, 16, 16, tf32=True),
]
LENGTHS = {
    "mixed": [0, 1, 17, 0, 5, 73, 2, 0],
    "tiny": [3, 1, 2],
    "many": [i % 4 for i in range(60)],
    "long": [1, 1033, 40],
    "no rows": [0, 0],
    "no types": [],
}


def cases(configs: list[Config]) -> list[Any]:
    """Configurations and lengths; few rows where there is much to compute: emulation is slow."""
    return [
        pytest.param(config, lengths, id=f"{config.name}-{name}")
        for config in configs
        for name, lengths in LENGTHS.items()
        if config.heads * config.k * config.m * sum(-(-n // 16) for n in lengths) < (1 << 16)
    ]


@dataclass
class Case:
    """Rows of several types over one set of nodes. `rows` orders the row numbers by (type, target)."""

    type_of: Array
    gather: Array
    target: Array
    rows: Array
    ptr: Array
    nodes: int
    targets: int
    y_rows: int


def make_case(lengths: list[int], index: str, *, sorted_rows: bool, targets: int = 13) -> Case:
    rng = np.random.default_rng(0)
    n, nodes = sum(lengths), 29
    type_of = np.repeat(np.arange(len(lengths)), lengths)
    target = rng.integers(0, targets, n)
    target[: n // 3] = 0  # a hub
    if sorted_rows:
        target = target[np.lexsort((target, type_of))]
    else:
        order = rng.permutation(n)
        type_of, target = type_of[order], target[order]
    dtype = NUMPY[index]
    return Case(
        type_of=type_of,
        gather=device(rng.integers(0, nodes, n).astype(dtype)),
        target=target,
        rows=device(np.lexsort((target, type_of)).astype(dtype)),
        ptr=pointer_of(type_of, len(lengths), dtype),
        nodes=nodes,
        targets=targets,
        y_rows=targets + 4,
    )


def pointer_of(groups: Array, count: int, dtype: type) -> Array:
    """Where the rows of each group begin, of rows in the order of their groups."""
    return device(np.concatenate([[0], np.cumsum(np.bincount(groups, minlength=count)[:count])]).astype(dtype))


class Operands:
    """Arrays for one instantiation, aligned to 16 bytes or to their elements only."""

    def __init__(self, config: Config | WeightConfig, *, aligned: bool = True, seed: int = 1) -> None:
        self.rng = np.random.default_rng(seed)
        self.dtype = NUMPY[config.dtype]
        self.tf32 = config.tf32
        self.shift = 0 if aligned else 1

    def array(self, shape: tuple[int, ...], fill: float | None = None) -> Array:
        """Random, or filled: with NaN to show what is not written."""
        size = int(np.prod(shape))
        values = self.rng.standard_normal(size + self.shift) if fill is None else np.full(size + self.shift, fill)
        return device(values.astype(self.dtype))[self.shift :].reshape(shape)

    def factor(self, x: Array) -> Array:
        """What a product makes of a factor, in float64."""
        if self.tf32:
            x = ((x.view(np.uint32) + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)
        return x.astype(np.float64)

    def check(self, actual: Array, expected: Array, *, of_sums: bool = False) -> None:
        """Equal up to the rounding of the dtype of `actual`, relative to the largest expected value.

        ``of_sums``: factors that are sums may round to the next number of TF32.
        """
        eps = 2.0**-11 if self.tf32 and of_sums else 100 * float(np.finfo(actual.dtype).eps)
        np.testing.assert_allclose(actual, expected, rtol=0, atol=eps * float(np.abs(expected).max(initial=1.0)))

    def check_turned(self, actual: Array, sums: Array, expected: Array, *, of_sums: bool = False) -> None:
        """Rows as the tests finish them: backwards, with their number added; and the sums that they had."""
        self.check(actual, expected[:, ::-1] + np.arange(len(actual))[:, None], of_sums=of_sums)
        self.check(sums, expected.sum(1), of_sums=of_sums)


def call(function: ctypes._NamedFuncPointer, *arguments: Array | int | None) -> None:
    """Arrays as pointers, integers as int64, None as a null pointer."""
    converted: list[ctypes.c_void_p | ctypes.c_int64] = []
    for argument in arguments:
        if argument is None or isinstance(argument, np.ndarray):
            converted.append(ctypes.c_void_p(None if argument is None else argument.ctypes.data))
        else:
            converted.append(ctypes.c_int64(argument))
    function(*converted)


_built: dict[Config | WeightConfig, EmulatedLibrary] = {}


def library(config: Config | WeightConfig, workspace_bytes: int = 0) -> EmulatedLibrary:
    if config not in _built:
        _built[config] = compile_emulated(HEAD + config.functions())
    workspace = device(np.full(workspace_bytes, 0xFF, np.uint8))
    _built[config].set_call(workspace, multiprocessors=1)
    _built[config].workspace = workspace
    _built[config].seed(1 + workspace_bytes % 8)
    return _built[config]


@pytest.mark.parametrize("listed", [False, True], ids=["identity", "rows"])
@pytest.mark.parametrize(("config", "lengths"), cases(CONFIGS))
def test_products(config: Config, listed: bool, lengths: list[int]) -> None:
    case = make_case(lengths, config.index, sorted_rows=not listed)
    n, types, h = len(case.rows), len(lengths), config.heads
    o = Operands(config, aligned=not listed)
    for transpose in (0, 1):
        k, m = (config.m, config.k) if transpose else (config.k, config.m)
        lib = library(config, max(n, 1) * h * m * 8)
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

        added = np.zeros((case.y_rows, h * m))
        np.add.at(added, case.target, expected)
        index = NUMPY[config.index]
        target_rows = device(np.argsort(case.target, kind="stable").astype(index))
        target_ptr = pointer_of(case.target, case.targets, index)
        y, sums = o.array(added.shape, np.nan), o.array((case.y_rows,), np.nan)
        targets = (target_ptr, target_rows, case.targets, case.y_rows)
        call(getattr(lib, f"scatter{transpose}_{config.name}"), *arguments, *targets, y, sums)
        o.check_turned(y, sums, added)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: c.name)
def test_products_of_sums(config: Config) -> None:
    """Rows of a (type, target) pair, or of a target, are added before they are multiplied; some are long."""
    lengths = [40, 0, 831, 5] if config.k * config.m < 2000 else [20, 0, 31, 5]
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
    o = Operands(config, aligned=False)
    for transpose in (0, 1):
        k, m = (config.m, config.k) if transpose else (config.k, config.m)
        lib = library(config, count * h * m * 8)
        weight = o.array((types, h, config.k, config.m))
        w = o.factor(np.swapaxes(weight, 2, 3) if transpose else weight)
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
            case.gather,
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
        call(getattr(lib, f"pairs{transpose}_{config.name}"), *arguments, case.targets, case.y_rows, y)
        o.check(y, expected, of_sums=True)

        x, target = o.array((n, h, k)), np.sort(case.target)
        sums = np.zeros((case.y_rows, h, k))
        np.add.at(sums, target, x.astype(np.float64) * factor[:, :, None])
        expected = np.einsum("nhd,hdc->nhc", o.factor(sums.astype(o.dtype)), w[0]).reshape(-1, h * m)
        y, row_sums = o.array(expected.shape, np.nan), o.array((case.y_rows,), np.nan)
        arguments = (x, weight, scale, pointer_of(target, case.targets, index), case.targets, case.y_rows)
        call(getattr(lib, f"sums{transpose}_{config.name}"), *arguments, y, row_sums)
        o.check_turned(y, row_sums, expected, of_sums=True)


@pytest.mark.parametrize("listed", [False, True], ids=["identity", "rows"])
@pytest.mark.parametrize(("config", "lengths"), cases(CONFIGS))
def test_weight_gradient(config: Config, listed: bool, lengths: list[int]) -> None:
    case = make_case(lengths, config.index, sorted_rows=not listed)
    h, k, m = config.heads, config.k, config.m
    n, types = len(case.rows), len(lengths)
    o = Operands(config, aligned=not listed, seed=2)
    lib = library(config, (types + 512) * h * k * m * 8)
    scale = o.array((n, config.scale_size)) if config.scale_size else None
    factor = np.ones((n, h)) if scale is None else np.broadcast_to(scale.astype(np.float64), (n, h))
    gx, gy, rows = (case.gather, device(case.target.astype(NUMPY[config.index])), case.rows) if listed else (None,) * 3
    x = o.array((n if gx is None else case.nodes, h, k))
    y = o.array((n if gy is None else case.y_rows, h, m))
    left, right = (x if gx is None else x[gx]).astype(np.float64), (y if gy is None else y[gy])
    if config.tf32:
        left = o.factor((left * factor[:, :, None]).astype(np.float32))
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
    o, lib = Operands(config, aligned=not listed, seed=3), library(config)
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
        for flags in ((0, 0), (0, 1), (1, 0), (1, 1)):
            operands = [
                device(np.ascontiguousarray(np.swapaxes(v, -1, -2))) if flag else v
                for v, flag in zip((x, y), flags, strict=True)
            ]
            z = o.array((rows, *result), np.nan)
            call(getattr(lib, f"{kind}{flags[0]}{flags[1]}_{config.name}"), operands[0], a, operands[1], b, rows, z)
            o.check(z, expected)


@pytest.mark.parametrize("config", [CONFIGS[0], CONFIGS[6], WEIGHT_CONFIGS[0]], ids=lambda c: type(c).__name__ + c.name)
def test_nvcc(config: Config | WeightConfig) -> None:
    """For sm_80 and sm_90 without warnings; registers hold what kernels need."""
    usages = compile_nvcc(HEAD + config.functions())
    assert {u.arch for u in usages} == {"sm_80", "sm_90"}
    spilled = [f"{u.name} ({u.arch}): {u.registers} registers, {u.spilled} bytes spilled" for u in usages if u.spilled]
    assert not spilled, "\n".join(spilled)
