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

# A mode or more of each kind of kernel: typed products, blocks, heads, maxima, softmax by destination and by pair.
VECTORIZED = (
    *("pyg-rgcn-x-mean", "pyg-rgcn-x-max", "pyg-rgcn-x-bases", "pyg-rgcn-x-blocks", "pyg-rgcn-none-mean"),
    *("pyg-rgcn-pair-mean", "pyg-rgcn-ids_pair-min", "pyg-fast_rgcn-x-mean", "pyg-fast_rgcn-none-mean"),
    *("pyg-rgat-plain", "pyg-rgat-heads", "pyg-rgat-within-additive-None", "pyg-rgat-blocks-heads"),
    *("pyg-rgat-edges-heads", "pyg-rgat-dim-scaled", "pyg-rgat-across-multiplicative-f-additive"),
    *("pyg-hgt-skip", "pyg-hgt-no_skip-heads", "pyg-hgt-widths", "pyg-gcn-plain", "pyg-sage-max"),
    *("dgl-relgraph-plain", "dgl-relgraph-norm", "dgl-relgraph-bdd", "dgl-relgraph-layer_norm"),
    *("pyg-gat-heads", "pyg-gatv2-residual"),
    *("dgl-hgt-plain", "dgl-hgt-residual", "dgl-hgt-heads-block"),
)
# Modes that run again on graphs of other seeds, and on one without edges.
ANY_GRAPH = (
    *("pyg-rgcn-x-mean", "pyg-rgcn-x-max", "pyg-rgcn-none-mean", "pyg-rgat-heads", "pyg-rgat-within-additive-None"),
    *("pyg-hgt-skip-heads", "pyg-gat-heads", "dgl-relgraph-bdd", "dgl-hgt-residual"),
    *("pyg-gcn-weights", "pyg-sage-mean", "pyg-gin-narrow-eps", "dgl-sage-gcn"),
)


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


@pytest.mark.compiled
@pytest.mark.filterwarnings("ignore:The input graph for the user-defined edge function")  # DGL's, without edges
@pytest.mark.parametrize("case", named(*ANY_GRAPH), ids=lambda case: case.name)
def test_other_graphs(case: Case) -> None:
    for count, seed in ((0, 1), (1, 2), (25, 4), (300, 6)):
        compare(case, typed_edges(count, seed), torch.float64)
