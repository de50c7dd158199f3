"""Writes C++ that targets share: sizes of row spaces, aliases of types, and the tasklet around generated calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import dace
from dace import dtypes
from dace.sdfg import nodes

from dacergnn.graph.spaces import is_encoding
from dacergnn.library_nodes.node import PREFIX
from dacergnn.library_nodes.segment_gemm.plan import GemmPlan
from dacergnn.library_nodes.shapes import shape_of
from dacergnn.native.build import INCLUDE_FOLDER


class Headers:
    """Holds the attributes that DaCe needs of an environment; targets name their headers."""

    cmake_minimum_version = None
    cmake_packages: list[str] = []
    cmake_variables: dict[str, str] = {}
    cmake_includes: list[str] = [str(INCLUDE_FOLDER.parent)]  # names of headers start from this folder
    cmake_libraries: list[str] = []
    cmake_compile_flags: list[str] = []
    cmake_link_flags: list[str] = []
    cmake_files: list[str] = []
    headers: dict[str, list[str]] = {}
    state_fields: list[str] = []
    init_code = ""
    finalize_code = ""
    dependencies: list[Any] = []


def extent(space: str) -> str:
    """Returns the number of rows of a space as a C++ expression."""
    return "int64_t(1)" if space == "ONE" else f"int64_t({space})"


def index_alias(arrays: Mapping[str, Any]) -> str:
    """Returns ``using Index = ...;`` for the encodings among the arrays of a node."""
    indices: set[Any] = {d.dtype for n, d in arrays.items() if is_encoding(n)}
    index: Any = indices.pop() if indices else dace.int64
    return f"using Index = {index.ctype};\n"


def element_types(arrays: Mapping[str, Any]) -> set[Any]:
    """Returns the element types of the arrays of a node, without those of encodings."""
    return {d.dtype for n, d in arrays.items() if not is_encoding(n)}


def cpp_tasklet(operators: Sequence[Any], arrays: Mapping[str, Any], code: str) -> nodes.Tasklet:
    """Returns a C++ tasklet with the connectors of library nodes as pointers."""

    def pointers(connectors: Iterable[str]) -> dict[str, Any]:
        return {c: dace.pointer(arrays[c[1:]].dtype) for c in connectors}

    return nodes.Tasklet(
        operators[0].name,
        pointers(c for o in operators for c in o.in_connectors),
        pointers(c for o in operators for c in o.out_connectors),
        code,
        language=dtypes.Language.CPP,
    )


def pointer(array: str | None) -> str:
    """Returns an array as an argument, which may be missing."""
    return PREFIX + array if array else "nullptr"


def weight_product_arguments(plan: GemmPlan) -> str:
    """Returns the template arguments of a product of weights: H, K, D, M, and which operands are transposed."""
    gemm, shapes = plan.gemm, plan.arrays.shapes
    w = shape_of(gemm.w, shapes)
    m = w[-1] if gemm.kind == "compose" else w[1] // plan.heads
    flags = [str(ref.transposed).lower() for ref in (gemm.x, gemm.w)]
    return ", ".join(map(str, (plan.heads, plan.k, plan.m, m, *flags)))
