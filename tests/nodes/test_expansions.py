"""Every expansion of every kind of statement against the interpreter, on small, empty, one-sided and larger graphs."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from dataclasses import dataclass

import dace
import numpy as np
import pytest
import torch

from dacergnn import HeteroGraph
from dacergnn.library_nodes import Traversal
from dacergnn.library_nodes.node import Typeclass
from dacergnn.program import Program, interpret, parse
from dacergnn.runtime.executable import Executable
from dacergnn.sdfg_passes import Context, GemmScaleFusion, SelectAdjacency, differentiate
from dacergnn.target import find
from tests.nodes.statements import products, traversals
from tests.support.aarch64 import emulated_arm
from tests.support.compilers import built_by
from tests.support.random_graphs import RawGraph, random_graph
from tests.support.random_programs import large_case

TOLERANCE = {dace.float32: 2e-5, dace.float64: 1e-12, dace.bfloat16: 2**-6, dace.float16: 2**-10}
TORCH = {
    dace.float32: torch.float32,
    dace.float64: torch.float64,
    dace.bfloat16: torch.bfloat16,
    dace.float16: torch.float16,
    dace.int32: torch.int32,
    dace.int64: torch.int64,
}


def hub_graph(rng: random.Random, num_src: int, num_dst: int, num_edges: int) -> RawGraph:
    """A third of the edges ends in one node; the second of four relations is empty; node 5 is isolated."""

    def other() -> int:
        return rng.choice([n for n in range(num_dst) if n != 5])

    src = [rng.choice([n for n in range(num_src) if n != 5]) for _ in range(num_edges)]
    dst = [3 if rng.random() < 0.3 else other() for _ in range(num_edges)]
    types = [rng.choice([0, 0, 0, 2, 3]) for _ in range(num_edges)]
    node_type = np.array([rng.randrange(3) for _ in range(num_src)])
    return RawGraph(np.array(src), np.array(dst), np.array(types), node_type, node_type[:num_dst], 4, 3)


def graphs() -> list[RawGraph]:
    rng = random.Random(5)
    empty = np.zeros(0, dtype=np.int64)
    return [
        *(random_graph(rng, bipartite=False) for _ in range(8)),
        RawGraph(empty, empty, empty, empty, empty, 0, 0),
        RawGraph(empty, empty, empty, np.zeros(4, dtype=np.int64), np.zeros(2, dtype=np.int64), 0, 1),
        hub_graph(rng, 60, 60, 500),
        hub_graph(rng, 300, 120, 4000),
    ]


def with_index(graph: HeteroGraph, index: torch.dtype) -> HeteroGraph:
    """The graph with indices of another width, as a graph of more than 2**31 rows would have them."""
    edges = graph._edges
    if edges.src.dtype == index:
        return graph
    names = ("src", "dst", "edge_type", "src_type", "dst_type")
    vectors = {n: getattr(edges, n) for n in names}
    made = HeteroGraph(edges)
    made._edges = edges._replace(**{n: None if v is None else v.to(index) for n, v in vectors.items()})
    made._encodings = type(made._encodings)(made._edges)
    return made


@dataclass
class Compiled:
    """A program for the interpreter, and compiled."""

    plain: dace.SDFG
    executable: Executable
    dtype: Typeclass
    index: Typeclass

    def check(self, raw: RawGraph, seed: int = 0) -> None:
        """Compare all results on a graph with random inputs."""
        graph = with_index(raw.hetero(), TORCH[self.index])
        assert graph.encoding("idx_E_src").dtype == TORCH[self.index]
        generator = torch.Generator().manual_seed(seed)
        program = Program(self.plain)
        inputs = {
            n: torch.randn(graph.size(program.space(n)), *program.shape(n), generator=generator).to(TORCH[self.dtype])
            for n in program.inputs
        }
        self.compare(graph, inputs)

    def compare(self, graph: HeteroGraph, inputs: dict[str, torch.Tensor]) -> None:
        expected = interpret(self.plain, graph, **{name: value.double() for name, value in inputs.items()})
        lowered = self.executable.lowered
        results = self.executable(self.executable.prepare(graph), [inputs[n] for n in lowered.inputs])
        for buffer, result in zip(lowered.outputs, results, strict=True):
            reference = expected[buffer.name]
            assert result.shape == reference.shape, buffer.name
            if reference.size:
                error = np.abs(result.double().numpy() - reference).max() / max(1.0, np.abs(reference).max())
                assert error <= TOLERANCE[self.dtype], (buffer.name, error, self.line(buffer.name))

    def line(self, name: str) -> str:
        operator = Program(self.plain).producer(name)
        return "" if operator is None else f"{operator.space}: {operator.body}"


def compiled(
    sdfg: dace.SDFG, implementation: str, dtype: Typeclass, index: Typeclass, adjacency: str = "csr"
) -> Compiled:
    plain = copy.deepcopy(sdfg)
    for operator in Program(sdfg).operators:
        if isinstance(operator, Traversal):
            operator.tile_rows = 256  # so that the larger graphs have several tiles
    SelectAdjacency(adjacency, index).run(sdfg, Context(implementation=implementation))
    sdfg.validate()
    return Compiled(plain, find(implementation).executable_class()(sdfg), dtype, index)


Statements = Callable[[], str]
CASES: dict[str, tuple[Statements, str, Typeclass, Typeclass]] = {
    "traversals-cpu-float32-int32": (traversals, "cpu", dace.float32, dace.int32),
    "traversals-cpu-float64-int64": (lambda: traversals(every=4), "cpu", dace.float64, dace.int64),
    "products-cpu-float32-int32": (lambda: products(["odd", "heads"]), "cpu", dace.float32, dace.int32),
    "products-cpu-float64-int64": (lambda: products(["full", "thin"], 3), "cpu", dace.float64, dace.int64),
    "traversals-cpu-bfloat16-int32": (lambda: traversals(every=7), "cpu", dace.bfloat16, dace.int32),
    "traversals-cpu-float16-int64": (lambda: traversals(every=5), "cpu", dace.float16, dace.int64),
    "products-cpu-bfloat16-int64": (lambda: products(["odd", "full", "heads"], 5), "cpu", dace.bfloat16, dace.int64),
    "products-cpu-float16-int32": (lambda: products(["heads", "thin"], 3), "cpu", dace.float16, dace.int32),
    "products-scalar-bfloat16-int32": (lambda: products(["odd", "heads"], 7), "cpu-scalar", dace.bfloat16, dace.int32),
    "traversals-scalar-float32-int32": (lambda: traversals(every=7), "cpu-scalar", dace.float32, dace.int32),
    "products-scalar-float64-int64": (lambda: products(["odd", "heads"], 5), "cpu-scalar", dace.float64, dace.int64),
    "traversals-pure-float32-int64": (lambda: traversals(every=11), "pure", dace.float32, dace.int64),
    "products-pure-float64-int32": (lambda: products(every=11), "pure", dace.float64, dace.int32),
}


def check(case: str, implementation: str | None = None) -> None:
    """Runs a case on all graphs, perhaps on another target."""
    text, own, dtype, index = CASES[case]
    program = compiled(parse(text(), dtype=dtype), implementation or own, dtype, index)
    for number, raw in enumerate(graphs()):
        program.check(raw, number)


@pytest.mark.parametrize("case", CASES)
def test_statements(case: str) -> None:
    check(case)


@pytest.mark.check
@pytest.mark.parametrize("case", [case for case in CASES if "pure" not in case])
def test_statements_by_clang(case: str) -> None:
    with built_by("clang++"):
        check(case)


@pytest.mark.check
@pytest.mark.parametrize("case", [case for case in CASES if "cpu" in case])
def test_statements_on_arm(case: str) -> None:
    with emulated_arm() as implementation:
        check(case, implementation)


@pytest.mark.no_cover
def test_large_random_program() -> None:
    """Intermediates in the shared workspace, forward and backward, fused."""
    case = large_case(0)
    sdfg = parse(case.text, dtype=dace.float64)
    GemmScaleFusion().run(sdfg, Context())
    gradient = differentiate(sdfg, case.wrt)
    GemmScaleFusion().run(gradient.backward, Context())
    graph = case.graph.hetero()
    forward = compiled(gradient.forward, "cpu", dace.float64, dace.int32)
    forward.compare(graph, case.inputs)
    values = {n: torch.from_numpy(v) for n, v in interpret(forward.plain, graph, **case.inputs).items()}
    backward = compiled(gradient.backward, "cpu", dace.float64, dace.int32)
    program = Program(backward.plain)
    generator = torch.Generator().manual_seed(0)
    for name in program.inputs:
        if name not in values:
            rows = graph.size(program.space(name))
            values[name] = torch.randn(rows, *program.shape(name), generator=generator, dtype=torch.float64)
    backward.compare(graph, values)
