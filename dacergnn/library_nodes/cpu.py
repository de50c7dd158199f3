"""What the CPU expansions share: the headers, type aliases, and the tasklet around generated calls."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import dace
import dace.library
from dace import dtypes
from dace.sdfg import nodes

from dacergnn.graph.spaces import ENCODING_KINDS
from dacergnn.native.build import INCLUDE_FOLDER

HEADERS = (
    "dacergnn/scalar.h",
    "dacergnn/parallel.h",
    "dacergnn/formats.h",
    "dacergnn/segment_gemm.h",
    "dacergnn/segment_outer.h",
    "dacergnn/weight_product.h",
)


@dace.library.environment
class CPUHeaders:
    """Makes the kernel headers visible to generated code."""

    cmake_minimum_version = None
    cmake_packages: list[str] = []
    cmake_variables: dict[str, str] = {}
    cmake_includes: list[str] = [str(INCLUDE_FOLDER)]
    cmake_libraries: list[str] = []
    cmake_compile_flags: list[str] = []
    cmake_link_flags: list[str] = []
    cmake_files: list[str] = []
    headers = {"frame": [f"include/{h}" for h in HEADERS]}
    state_fields: list[str] = []
    init_code = ""
    finalize_code = ""
    dependencies: list[Any] = []


def extent(space: str) -> str:
    """Number of rows of a space as a C++ expression."""
    return "int64_t(1)" if space == "ONE" else f"int64_t({space})"


def is_encoding(name: str) -> bool:
    """Returns whether an array is a graph encoding, by its name."""
    return name.split("_")[0] in ENCODING_KINDS and name.count("_") >= 2


def index_alias(arrays: dict[str, Any]) -> str:
    """``using Value = ...; using Index = ...;`` for the arrays of a node."""
    values: set[Any] = {d.dtype for n, d in arrays.items() if not is_encoding(n)}
    indices: set[Any] = {d.dtype for n, d in arrays.items() if is_encoding(n)}
    index: Any = indices.pop() if indices else dace.int64
    return f"using Value = {values.pop().ctype};\nusing Index = {index.ctype};\n"


def cpp_tasklet(operators: Sequence[Any], arrays: dict[str, Any], code: str) -> nodes.Tasklet:
    """A C++ tasklet with the connectors of library nodes as pointers."""

    def pointers(connectors: Iterable[str]) -> dict[str, Any]:
        return {c: dace.pointer(arrays[c[1:]].dtype) for c in connectors}

    return nodes.Tasklet(
        operators[0].label,
        pointers(c for o in operators for c in o.in_connectors),
        pointers(c for o in operators for c in o.out_connectors),
        code,
        language=dtypes.Language.CPP,
    )
