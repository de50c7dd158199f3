"""GCN on a graph of the sizes of ogbn-arxiv: which of the schemes of Cached Operator Reordering, Table 2, is chosen.

With m features in and k out, sums of transformed features are cheaper while k < m, or while k < m / 2 where features
need no gradient, since the gradient of the weights takes one more pass over the edges then.
"""

from __future__ import annotations

import re

import dace
import numpy as np
import pytest

from dacergnn import interpret, parse, print_program
from dacergnn.config import Config
from dacergnn.frontends.convolution_programs import gcn
from dacergnn.graph.profile import Profile
from dacergnn.sdfg_passes import Compilation, compile_program
from dacergnn.tuning.graphs import random_graph

NODES, EDGES = 169_343, 1_166_243
ROWS = {"NS": NODES, "ND": NODES, "E": EDGES + NODES, "U": NODES, "V": NODES, "R": 1, "T": 1, "ONE": 1, "RNS": NODES}
ARXIV = Profile(tuple(ROWS.items()), single_typed=True)
IN = 128
WRT = {"inference": [], "weights": ["W", "bias"], "features": ["x", "W", "bias"]}


def plan(
    out: int, wrt: list[str], features: int = IN, profile: Profile = ARXIV, caching: str = "cache_all"
) -> Compilation:
    arrays: dict[str, str | None] = {"x": f"NS[{features}]", "W": f"ONE[{out}, {features}]", "bias": f"ONE[{out}]"}
    arrays |= {"norm": None, "left": "NS", "right": "ND"}
    sdfg = parse(gcn, dtype=dace.float32, transposed=True, features="h", **arrays)
    return compile_program(sdfg, wrt, Config(caching=caching), dace.int32, profile, keep=False)


def edge_sums(sdfg: dace.SDFG) -> list[str]:
    """What is summed over the edges of each end point."""
    return re.findall(r'for e in .*\n\s+[np]\["\w+"\] \+= (.*)', print_program(sdfg))


@pytest.mark.parametrize(
    ("mode", "first", "out"),
    [
        *(("inference", "transform", IN - 8), ("inference", "propagate", IN + 8)),
        *(("features", "transform", IN - 8), ("features", "propagate", IN + 8)),
        *(("weights", "transform", IN // 2 - 16), ("weights", "propagate", IN // 2 + 24)),
    ],
)
def test_order(mode: str, first: str, out: int) -> None:
    found = plan(out, WRT[mode])
    (summed,) = edge_sums(found.forward)
    assert ('e.src["x"]' in summed) == (first == "propagate")
    if found.backward is None:
        assert mode == "inference"
        return
    saved = set(found.forward.arglist()) & set(found.backward.arglist()) - {"x", "W", "norm", "bias"}
    sums = edge_sums(found.backward)
    if first == "propagate":
        assert any(name.startswith("sum") for name in saved), "A X is cached"
        assert len(sums) == (mode == "features")
    else:
        assert not any(name.startswith("sum") for name in saved)
        assert len(sums) == 1, "the gradient of the sums goes back over the edges once, for weights and features"
        assert 'e.dst["grad_out' in sums[0]


@pytest.mark.parametrize(
    ("mode", "first", "out", "backward"),
    [
        ("weights", "transform", IN - 16, "fused"),
        ("weights", "propagate", IN + 16, "split"),
        ("features", "transform", IN - 16, "fused"),
        ("features", "propagate", IN + 24, "fused"),
        ("features", "propagate", IN + 64, "fused"),
        ("features", "propagate", 2 * IN + 24, "split"),
    ],
)
def test_order_where_sums_are_computed_again(mode: str, first: str, out: int, backward: str) -> None:
    """Table 1: the forward sums the narrower rows; the backward sums its gradients once, or A X again."""
    found = plan(out, WRT[mode], caching="recompute_all")
    assert found.backward is not None
    assert not found.saved
    (summed,) = edge_sums(found.forward)
    assert ('e.src["x"]' in summed) == (first == "propagate")
    sums = edge_sums(found.backward)
    if backward == "fused":
        assert len(sums) == 1
        assert 'e.dst["grad_out' in sums[0]
    else:
        assert [row for row in sums if 'e.src["x"]' in row]
        assert len(sums) == (2 if mode == "features" else 1)


@pytest.mark.parametrize("mode", ["weights", "features"])
def test_gradients_are_equal_in_all_orders(mode: str) -> None:
    graph, size = random_graph(3), IN + 24
    rng = np.random.default_rng(0)
    rows = {"x": (graph.size("NS"), IN), "W": (size, IN), "bias": (size,), "left": (graph.size("NS"),)}
    rows |= {"right": (graph.size("ND"),), "grad_out_2": (graph.size("ND"), size)}
    arrays = {name: rng.standard_normal(shape) for name, shape in rows.items()}
    results: list[dict[str, np.ndarray]] = []
    for caching in ("cache_all", "recompute_all"):
        found = plan(size, WRT[mode], caching=caching)
        assert found.backward is not None
        forward = interpret(found.forward, graph, **arrays)
        results.append(interpret(found.backward, graph, **{**forward, **arrays}))
    for name in WRT[mode]:
        np.testing.assert_allclose(results[0][f"grad_{name}"], results[1][f"grad_{name}"], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    ("nodes", "edges", "out", "first"),
    [
        (19_717, 88_648, 16, "transform"),
        (19_717, 88_648, 32, "propagate"),
        (2_708, 10_556, 32, "transform"),  # what saving the sums takes decides on small graphs
    ],
)
def test_two_sums_of_narrow_rows_against_one_of_wide_rows(nodes: int, edges: int, out: int, first: str) -> None:
    """PubMed and Cora, 64 features: two passes over rows of 32 elements move the bytes of one over 64."""
    rows = {**ROWS, **dict.fromkeys(("NS", "ND", "U", "V", "RNS"), nodes), "E": edges}
    found = plan(out, WRT["weights"], 64, Profile(tuple(rows.items()), single_typed=True))
    (summed,) = edge_sums(found.forward)
    assert ('e.src["x"]' in summed) == (first == "propagate")
