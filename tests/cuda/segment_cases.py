"""Rows of several types, operands and calls for tests of the products of segments in emulation."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from tests.cuda.segment_gemm_source import HEAD, Config, WeightConfig
from tests.support.emulated import Array, EmulatedLibrary, compile_emulated, device

NUMPY = {
    "float": np.float32,
    "double": np.float64,
    "__nv_bfloat16": ml_dtypes.bfloat16,
    "__half": np.float16,
    "int32_t": np.int32,
    "int64_t": np.int64,
}


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
    target = rng.choice([t for t in range(targets) if t != 5], n)  # no rows for one target
    target[: n // 3] = 0  # many for another
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
    """Arrays for one instantiation."""

    def __init__(self, config: Config | WeightConfig, *, seed: int = 1) -> None:
        self.rng = np.random.default_rng(seed)
        self.dtype = NUMPY[config.dtype]
        self.tf32 = config.tf32
        self.small = np.dtype(self.dtype).itemsize == 2

    def array(self, shape: tuple[int, ...], fill: float | None = None) -> Array:
        """Random, or filled: with NaN to show what is not written."""
        size = int(np.prod(shape))
        values = self.rng.standard_normal(size) if fill is None else np.full(size, fill)
        return device(values.astype(self.dtype)).reshape(shape)

    def factor(self, x: Array) -> Array:
        """What a product makes of a factor, in float64."""
        if self.tf32:
            x = ((x.view(np.uint32) + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)
        return x.astype(np.float64)

    def check(self, actual: Array, expected: Array, *, of_sums: bool = False) -> None:
        """Equal up to the rounding of the dtype of `actual`, relative to the largest expected value.

        Results of 16 bits have been rounded once. ``of_sums``: factors that are sums, or rows that are stored twice,
        may round to the next number of their type.
        """
        twice = of_sums and (self.small or self.tf32)
        ulps = (1.0 if twice else 0.51) if self.small else 100
        eps = 2.0**-11 if twice and self.tf32 else ulps * float(ml_dtypes.finfo(actual.dtype).eps)
        actual = actual.astype(np.float64)
        np.testing.assert_allclose(actual, expected, rtol=0, atol=eps * float(np.abs(expected).max(initial=1.0)))

    def check_turned(self, actual: Array, sums: Array, expected: Array, *, of_sums: bool = False) -> None:
        """Rows as the tests finish them: backwards, with their number added; and the sums that they had."""
        of_sums = of_sums or self.small
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
        _built[config] = compile_emulated(config.limit + HEAD + config.functions())
    workspace = device(np.full(workspace_bytes, 0xFF, np.uint8))
    _built[config].set_call(workspace, multiprocessors=1)
    _built[config].workspace = workspace
    _built[config].limit_shared(config.shared)
    _built[config].seed(1 + workspace_bytes // 64 % 8)
    return _built[config]
