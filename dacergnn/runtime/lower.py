"""Lowering: an SDFG whose access schemes are fixed becomes C++ through DaCe's code generator."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod

import dace
from dace import Memlet
from dace.codegen import codegen

from dacergnn.library_nodes.cpu import is_encoding
from dacergnn.library_nodes.node import GraphOperator, copied, ordered_operators, row_shape, row_space

# All that the frame around our kernels takes from dace.h, which takes longer to compile than most programs.
_PRELUDE = '#include <cstdint>\n#define DACE_EXPORTED extern "C"'
_CALL = """
#include "include/dacergnn/packed_call.h"
#include "include/dacergnn/read_tensors.h"
extern "C" void call_{name}(const std::int64_t *packed) {{ dacergnn::packed_call(__program_{name}, packed); }}
extern "C" void *read_and_call_{name}(void *, void *const *arguments, std::ptrdiff_t) {{
  return dacergnn::read_and_call(arguments, call_{name});
}}
"""
_CUDA_CALL = """
#include "include/dacergnn/cuda/packed_call.cuh"
extern "C" const char *call_{name}(const std::int64_t *packed) {{
  return dacergnn::cuda::packed_call(__program_{name}, packed);
}}
"""


@dataclass(frozen=True)
class Buffer:
    """An array of a lowered program: ``rows`` is its row space, ``elements`` the size of one row."""

    name: str
    rows: str
    shape: tuple[int, ...]
    elements: int
    first: int  # index of the operator that writes it
    last: int  # index of the last operator that reads it
    over: tuple[str, ...] = ()  # arrays in whose place its operator may write it, where it is their last reader


@dataclass(frozen=True)
class Lowered:
    """C++ of a program, and what the caller has to know about its function."""

    name: str
    code: str
    signature: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[Buffer, ...]
    intermediates: tuple[Buffer, ...]
    encodings: tuple[str, ...]
    spaces: dict[str, tuple[str, tuple[int, ...]]]  # of the inputs: row space and row shape
    dtype: str
    implementation: str
    scratch: tuple[dict[str, int], ...]  # bytes per row of each row space, for each operator that needs some
    last_reads: dict[str, int]  # of the inputs: index of the last operator that reads it

    @property
    def has_tf32(self) -> bool:
        """Whether there is another build whose products take TF32 factors."""
        return self.implementation == "cuda" and self.dtype == "float32"

    def source(self, *, tf32: bool = False) -> str:
        """The code of a build."""
        return f"#define DACERGNN_TF32\n{self.code}" if tf32 else self.code


def lower(sdfg: dace.SDFG) -> Lowered:
    """Generate the code of ``sdfg`` (left as it is); intermediates become arguments that the caller allocates."""
    state = next(iter(sdfg.states()))
    operators = ordered_operators(state)
    pairs = {pair for o in operators for pair in o.in_place(o.implementation, o.arrays(sdfg, state))}
    written = {name: k for k, o in enumerate(operators) for name in o.written_arrays}
    read = {name: k for k, o in enumerate(operators) for name in o.read_arrays}
    inputs = [n for n in sdfg.arg_names if n not in written]

    def buffer(name: str) -> Buffer:
        desc = sdfg.arrays[name]
        shape = row_shape(desc)
        over = tuple(sorted(other for other, own in pairs if own == name))
        return Buffer(name, row_space(desc), shape, prod(shape), written[name], read.get(name, written[name]), over)

    code, signature = _generate(sdfg, {name for pair in pairs for name in pair})
    return Lowered(
        name=sdfg.name,
        code=code,
        signature=signature,
        inputs=tuple(inputs),
        outputs=tuple(buffer(n) for n in sdfg.arg_names if n in written),
        intermediates=tuple(buffer(n) for n, d in sdfg.arrays.items() if d.transient and n in written),
        encodings=tuple(n for n in sdfg.arrays if is_encoding(n)),
        spaces={n: (row_space(sdfg.arrays[n]), row_shape(sdfg.arrays[n])) for n in inputs},
        dtype=str(next(iter(sdfg.arrays.values())).dtype.to_string()),
        implementation=operators[0].implementation if operators else "cpu",
        scratch=_scratch(sdfg, operators),
        last_reads={n: read[n] for n in inputs if n in read},
    )


def _scratch(sdfg: dace.SDFG, operators: Sequence[GraphOperator]) -> tuple[dict[str, int], ...]:
    state = next(iter(sdfg.states()))
    needs = (o.scratch(o.implementation, o.arrays(sdfg, state)) for o in operators)
    return tuple(need for need in needs if need)


def _generate(sdfg: dace.SDFG, sharing: Collection[str]) -> tuple[str, tuple[str, ...]]:
    sdfg = copied(sdfg)
    state: dace.SDFGState = next(iter(sdfg.states()))
    operators = ordered_operators(state)
    local_arrays = [name for o in operators for name in o.locals]
    light = all(o.implementation in ("cpu", "cuda") for o in operators)
    on_device = any(o.implementation == "cuda" for o in operators)
    for before, after in pairwise(operators):
        state.add_nedge(before, after, Memlet())  # one order, the one that memory is planned for
    for name, desc in sdfg.arrays.items():
        desc.transient = False
        if name in sharing:
            desc.may_alias = True
    with (
        dace.config.set_temporary("compiler", "cpu", "openmp_sections", value=False),
        dace.config.set_temporary("store_history", value=False),  # of expansions, with a copy of the whole
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", "Using sets for connectors")  # DaCe does so when it expands to an SDFG
        sdfg.expand_library_nodes()
        for name in local_arrays:
            sdfg.remove_data(name)
        signature = tuple(sdfg.arglist())
        frame = next(c for c in codegen.generate_code(sdfg) if c.language == "cpp" and c.title == "Frame")
    # DaCe's build folder holds a header with the hash of the program; the cache keys by content instead.
    code = "\n".join(line for line in frame.clean_code.splitlines() if "hash.h" not in line)
    code = code.replace("#include <dace/dace.h>", _PRELUDE) if light else code
    return code + (_CUDA_CALL if on_device else _CALL).format(name=sdfg.name), signature
