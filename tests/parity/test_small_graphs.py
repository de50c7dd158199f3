"""Compiled layers against the originals, mode by mode, on small graphs with everything that breaks layers.

Every mode runs in float64, where the tolerance leaves no room for a wrong formula. The modes of `VECTORIZED` run in
float32 as well, through the kernels as they are optimized for users.
"""

from __future__ import annotations

import pytest
import torch

import dacergnn
from tests.frontends.cases import CASES, Case
from tests.frontends.check import assert_same, run, skip_without_library
from tests.frontends.graphs import Edges, typed_edges
from tests.parity.flags import NO_COPIES, flags

# A mode of each kind of kernel: maxima, blocks, pairs, heads, softmax by destination and by pair, values of edges.
# Others run in float32 on real graphs.
VECTORIZED = (
    *("pyg-rgcn-x-max", "pyg-rgcn-x-blocks", "pyg-rgcn-ids_pair-min", "pyg-rgat-plain", "pyg-rgat-edges-heads"),
    *("pyg-rgat-within-additive-None", "pyg-sage-max", "dgl-relgraph-norm", "dgl-hgt-heads-block"),
)
OTHER_GRAPHS = {
    (0, 1): ("pyg-rgcn-x-max", "pyg-rgat-within-additive-None", "pyg-hgt-skip-heads", "pyg-gat-heads", "pyg-sage-mean"),
    (1, 2): ("pyg-rgcn-x-mean", "pyg-gcn-weights"),
    (25, 4): ("pyg-rgcn-none-mean", "dgl-relgraph-bdd"),
    (300, 6): ("pyg-rgat-heads", "pyg-gin-narrow-eps", "dgl-sage-gcn"),
}
"""Modes by the edges and the seed of a graph that they run on compiled."""


def named(*names: str) -> list[Case]:
    found = [case for case in CASES if case.name in names]
    assert len(found) == len(names)
    return found


def compare(case: Case, edges: Edges, dtype: torch.dtype) -> None:
    """Output and gradients of the compiled layer and of the original, for the same inputs and parameters."""
    skip_without_library(case)
    layer, arguments = case.layer(edges, dtype), case.inputs(edges, dtype)
    compiled = dacergnn.optimize(layer, on_unsupported="error")
    expected, found = run(layer, layer, arguments), run(compiled, compiled, arguments)
    assert_same(found[0], expected[0], dtype)
    assert_same(found[1], expected[1], dtype)


@pytest.mark.filterwarnings("ignore:Sparse ")  # torch, of adjacencies
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_layer_in_double_precision(case: Case) -> None:
    compare(case, case.edges(), torch.float64)


@pytest.mark.compiled
@pytest.mark.parametrize("case", named(*VECTORIZED), ids=lambda case: case.name)
def test_layer_in_single_precision(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXXFLAGS", flags(case, NO_COPIES))
    compare(case, case.edges(), torch.float32)


COMPILED = [(case, *graph) for graph, names in OTHER_GRAPHS.items() for case in named(*names)]
ANY_GRAPH = [*(case for case, _, _ in COMPILED), *named("dgl-hgt-residual")]
"""Modes that run on all of these graphs in NumPy."""


@pytest.mark.filterwarnings("ignore:The input graph for the user-defined edge function")  # DGL's, without edges
@pytest.mark.parametrize("case", ANY_GRAPH, ids=lambda case: case.name)
def test_other_graphs(case: Case) -> None:
    for count, seed in OTHER_GRAPHS:
        compare(case, typed_edges(count, seed), torch.float64)


@pytest.mark.compiled
@pytest.mark.parametrize(("case", "count", "seed"), COMPILED, ids=lambda value: getattr(value, "name", str(value)))
def test_other_graphs_compiled(case: Case, count: int, seed: int) -> None:
    compare(case, typed_edges(count, seed), torch.float64)
