"""Wide results of more than 64 MiB are written past the caches, with the values that smaller ones get."""

from __future__ import annotations

import dace
import numpy as np
import pytest
import torch

from dacergnn import Config, HeteroGraph, parse
from dacergnn.program import Program
from dacergnn.runtime.executable import Executable
from dacergnn.sdfg_passes import compile_program

WIDTH, NODES, EDGES, HUB = 32, (70 << 20) // 128, 400_000, 9_000
PROGRAM = f"""
def layer(g, x: NS[{WIDTH}], s: E, b: ONE[{WIDTH}]):
    for n in g.dst_nodes():
        for e in n.incoming_edges():
            n["sum"] += e["s"] * e.src.x
    for n in g.dst_nodes():
        n["out"] = n["sum"] * 2.0 + b
    return sum, out
"""
CONFIGS = {
    "operators apart": Config("O0"),
    **{name: Config(adjacency=name) for name in ("csr", "csc", "coo", "ell:99999", "hybrid")},
}


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())
def test_values(config: Config) -> None:
    """A hub, nodes without edges, and rows that are written where nothing else reads them."""
    rng = np.random.default_rng(0)
    hub = 3 if "ell" in config.adjacency else HUB  # its matrix is as wide as the longest group
    ends = np.unique(np.stack([rng.choice(NODES, EDGES), rng.choice(NODES, EDGES)]), axis=1)
    ends[0, :hub] = 5
    dst, src = ends[:, np.lexsort((ends[1], ends[0]))]  # the order of edges in programs
    edges = torch.from_numpy(np.stack([src, dst]))
    graph = HeteroGraph.from_arrays(edges, torch.zeros(len(dst), dtype=torch.long), num_nodes=NODES)
    plan = compile_program(parse(PROGRAM), [], config, dace.int32)
    executable = Executable(plan.forward)
    x, s, b = torch.randn(NODES, WIDTH), torch.randn(len(dst)), torch.randn(1, WIDTH)
    arrays = {"x": x, "s": s, "b": b}
    found = executable(executable.prepare(graph), [arrays[n] for n in executable.lowered.inputs])

    matrix = torch.sparse_coo_tensor(torch.from_numpy(np.stack([dst, src])), s.double(), (NODES, NODES))
    total = torch.sparse.mm(matrix, x.double())
    torch.testing.assert_close(found[0].double(), total, rtol=1e-5, atol=1e-3)
    torch.testing.assert_close(found[1].double(), total * 2.0 + b.double(), rtol=1e-5, atol=2e-3)


@pytest.mark.parametrize("results", ["z", "y, z"])
def test_products_with_an_epilogue(results: str) -> None:
    """Rows are finished in the cache, whether those of the product are stored or not."""
    program = f"""
def layer(g, x: NS[5], W: ONE[5, {WIDTH}], b: NS):
    for n in g.src_nodes():
        n["y"] = linear(n.x, W)
        n["z"] = n["y"] * 2.0 + n.b
    return {results}
"""
    graph = HeteroGraph.from_arrays(torch.zeros(2, 0, dtype=torch.long), None, num_nodes=NODES)
    sdfg = compile_program(parse(program), [], Config(), dace.int32).forward
    assert len(Program(sdfg).operators) == 1
    executable = Executable(sdfg)
    arrays = {"x": torch.randn(NODES, 5), "W": torch.randn(1, 5, WIDTH), "b": torch.randn(NODES)}
    found = executable(executable.prepare(graph), [arrays[n] for n in executable.lowered.inputs])
    y = arrays["x"].double() @ arrays["W"][0].double()
    expected = {"y": y, "z": y * 2.0 + arrays["b"].double()[:, None]}
    for tensor, buffer in zip(found, executable.lowered.outputs, strict=True):
        torch.testing.assert_close(tensor.double(), expected[buffer.name], rtol=1e-5, atol=1e-4)
