"""Traversals of a program as functions on arrays: CUDA in emulation, compared with the interpreter, one by one."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import dace
import numpy as np

from dacergnn import HeteroGraph
from dacergnn.graph.spaces import GRAPH_SPACES
from dacergnn.library_nodes import Traversal
from dacergnn.library_nodes.node import PREFIX, Typeclass
from dacergnn.library_nodes.targets.cuda import launches
from dacergnn.library_nodes.targets.cuda.launches import started
from dacergnn.program import Program, interpret
from tests.nodes.test_expansions import TOLERANCE as COMPUTED
from tests.nodes.test_expansions import TORCH, with_index
from tests.support.emulated import Array, EmulatedLibrary, compile_emulated, device
from tests.support.random_graphs import RawGraph

HEAD = """#include "dacergnn/cuda/traversal.cuh"
using Storage = {value};
using Value = dacergnn::cuda::Accumulator<Storage>;
using Index = {index};
"""
TOLERANCE = {**COMPUTED, dace.bfloat16: 2.0**-7, dace.float16: 2.0**-10}
"""16 bits are rounded once, relative to the largest element."""
NOTHING: Mapping[str, Array] = {}
SIZES = [s for s in GRAPH_SPACES if s != "ONE"]


@dataclass
class Kernels:
    """The traversals of a program, built for emulation."""

    sdfg: dace.SDFG
    operators: list[Traversal]
    library: EmulatedLibrary
    dtype: Typeclass
    index: Typeclass

    def values(self, graph: HeteroGraph, seed: int, known: Mapping[str, Array]) -> dict[str, Array]:
        """Inputs, random where they are not known, and all that the interpreter makes of them."""
        program, generator = Program(self.sdfg), np.random.default_rng(seed)
        inputs = {
            name: generator.uniform(-1, 1, (graph.size(program.space(name)), *program.shape(name)))
            for name in program.inputs
        }
        inputs = {name: values.astype(self.dtype.type).astype(np.float64) for name, values in inputs.items()}
        return interpret(self.sdfg, graph, **inputs | {n: known[n] for n in inputs if n in known})

    def check(self, raw: RawGraph, seed: int = 0, known: Mapping[str, Array] = NOTHING) -> dict[str, Array]:
        """Compare every operator on what the interpreter gives it; returns the interpreter's values."""
        graph = with_index(raw.hetero(), TORCH[self.index])
        values = self.values(graph, seed, known)
        self.library.seed(seed)
        for name, found in self.run(graph, values).items():
            expected = values[name]
            error = np.abs(found - expected).max(initial=0) / max(1.0, np.abs(expected).max(initial=0))
            body = next(o.body for o in self.operators if name in o.written_arrays)
            assert error <= TOLERANCE[self.dtype], (name, error, body)
        return values

    def run(self, graph: HeteroGraph, values: dict[str, Array]) -> dict[str, Array]:
        """What each operator makes of the values of the arrays that it reads."""
        found: dict[str, Array] = {}
        for number in range(len(self.operators)):
            found |= self._run(number, graph, values)
        return found

    @cached_property
    def _needs(self) -> list[tuple[list[str], list[str], list[str], dict[str, int]]]:
        """What each operator reads, writes, reads of the graph, and needs as scratch memory."""
        plans = [o.plan("cuda", o.arrays(self.sdfg, Program(self.sdfg).state)) for o in self.operators]
        return [
            (o.read_arrays, o.written_arrays, list(plan.encodings), dict(plan.scratch))
            for o, plan in zip(self.operators, plans, strict=True)
        ]

    def _run(self, number: int, graph: HeteroGraph, values: dict[str, Array]) -> dict[str, Array]:
        dtype = np.dtype(self.dtype.type)
        reads, writes, scheme, needs = self._needs[number]
        read = [device(values[n].astype(dtype)) for n in reads]
        written = [device(np.full_like(values[n], np.nan, dtype=dtype)) for n in writes]
        encodings = [device(graph.encoding(n).numpy()) for n in scheme]
        sizes = graph.sizes
        scratch = sum(bytes_a_row * sizes[space] for space, bytes_a_row in needs.items())
        workspace = device(np.full(scratch, 0xFF, dtype=np.uint8))
        self.library.set_call(workspace)
        pointers = [ctypes.c_void_p(a.ctypes.data) for a in (*read, *written, *encodings)]
        getattr(self.library, f"op{number}")(*pointers, *(ctypes.c_int64(sizes[s]) for s in SIZES))
        return dict(zip(writes, written, strict=True))


def source_of(
    sdfg: dace.SDFG,
    dtype: Typeclass,
    index: Typeclass,
    prefix: str = "op",
    *,
    split_hubs: bool = False,
    without: Sequence[str] = (),
) -> tuple[list[Traversal], str]:
    """The traversals of a program, but for those of some results, and CUDA with a function op0, op1, ... for each."""
    program = Program(sdfg)
    operators = [o for o in program.operators if isinstance(o, Traversal)]
    operators = [o for o in operators if not any(name in without for name in o.written_arrays)]
    text = HEAD.format(value=dtype.ctype, index=index.ctype)
    for operator in operators:
        operator.split_hubs |= split_hubs
    for number, operator in enumerate(operators):
        arrays = operator.arrays(sdfg, program.state)
        arguments = [f"Storage* {PREFIX}{n}" for n in (*operator.read_arrays, *operator.written_arrays)]
        arguments += [f"const Index* {PREFIX}{n}" for n in operator.plan("cuda", arrays).encodings]
        arguments += [f"[[maybe_unused]] int64_t {s}" for s in SIZES]
        body = started([launches(operator, arrays)])
        text += f'\nextern "C" void {prefix}{number}({", ".join(arguments)}) {{\n{body}\n}}\n'
    return operators, text


def emulated(
    sdfg: dace.SDFG,
    dtype: Typeclass = dace.float64,
    index: Typeclass = dace.int32,
    *,
    hub_rows: int = 0,
    without: Sequence[str] = (),
) -> Kernels:
    """With ``hub_rows``, several blocks share the rows of each group of more."""
    operators, source = source_of(sdfg, dtype, index, split_hubs=hub_rows > 0, without=without)
    library = compile_emulated(source)
    library.set_least_chunk(hub_rows)
    return Kernels(sdfg, operators, library, dtype, index)
