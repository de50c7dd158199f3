"""Programs of 16 bits that DaCe builds by itself, with element types of its own."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import dace
import pytest
import torch

from dacergnn import HeteroGraph, parse
from dacergnn.graph.spaces import is_encoding
from dacergnn.sdfg_passes import Context, SelectAdjacency

TEXT = """def messages(g, x: NS[32], W: R[32, 16]):
    for e in g.edges():
        e["m"] = linear(e.src.x, W[e.etype])
    for n in g.dst_nodes():
        n["out"] = sum(e["m"] for e in n.incoming_edges())
    return out
"""


def test_dace_builds_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))  # of cmake
    generator = torch.Generator().manual_seed(0)
    edges, types = (torch.randint(limit, shape, generator=generator) for limit, shape in ((20, (2, 90)), (3, (90,))))
    graph = HeteroGraph.from_arrays(edges, types, num_nodes=21, num_edge_types=4)
    sdfg: Any = parse(TEXT, dtype=dace.bfloat16)
    SelectAdjacency("csr", dace.int32).run(sdfg, Context())
    x, w = (torch.randn(shape, generator=generator).bfloat16() for shape in ((21, 32), (4, 32, 16)))
    out = torch.zeros(21, 16, dtype=torch.bfloat16)
    encodings = {name: graph.encoding(name) for name in sdfg.arrays if is_encoding(name)}
    sdfg(x=x, W=w, out=out, **encodings, **{size: graph.size(size) for size in map(str, sdfg.free_symbols)})
    messages = torch.einsum("ek,ekm->em", x.double()[edges[0]], w.double()[types])
    expected = torch.zeros(21, 16, dtype=torch.float64).index_add_(0, edges[1], messages)
    assert (out.double() - expected).abs().max() <= 2**-8 * expected.abs().max()
