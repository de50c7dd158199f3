"""The schemes of Cached Operator Reordering, table 3, by the names that the arrays of GAT and GATv2 have."""

from __future__ import annotations

from typing import Any

import dace
import numpy as np
import pytest
import torch

from dacergnn import Config, HeteroGraph, interpret, parse
from dacergnn.frontends.attention import attention_program, gat, gatv2
from dacergnn.graph.profile import Profile
from dacergnn.library_nodes import Traversal
from dacergnn.library_nodes.form import Ref
from dacergnn.program import Program
from dacergnn.sdfg_passes import Compilation, compile_program

HEADS, CHANNELS, K, NODES = 2, 3, 4, 6
EDGES = torch.randint(0, NODES, (2, 20), generator=torch.Generator().manual_seed(0))
GRAPH = HeteroGraph.from_arrays(EDGES, None, num_nodes=NODES)
SHAPES: dict[str, tuple[int, ...]] = {
    "x": (NODES, K), "W": (HEADS * CHANNELS, K), "W_dst": (HEADS * CHANNELS, K), "q": (HEADS, CHANNELS),
    "k": (HEADS, CHANNELS), "W_bias": (HEADS, CHANNELS), "W_dst_bias": (HEADS, CHANNELS),
    "bias": (HEADS, CHANNELS),
}  # fmt: skip
ARRAYS = {gat: ("x", "W", "q", "k", "bias"), gatv2: ("x", "W", "W_bias", "W_dst", "W_dst_bias", "q", "bias")}
NODE = ("score_src", "score_dst")


def nothing_but(*names: str) -> dict[str, Any]:
    return {"caching": "recompute_all", "cache": names}


def plan(source: Any, **options: Any) -> Compilation:
    values = {n: torch.zeros(SHAPES[n]) for n in ARRAYS[source]}
    program = attention_program(
        source, values, heads=HEADS, channels=CHANNELS, slope=0.2, residual=False, attention=False
    )
    sdfg = parse(program.source, dtype=dace.float64, **dict(program.bindings))
    profile = Profile(tuple(GRAPH.sizes.items()), single_typed=True)
    return compile_program(sdfg, list(values), Config(**options), dace.int32, profile, keep=False)


def gradients(found: Compilation, source: Any) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(1)
    values = {n: generator.standard_normal(SHAPES[n]) for n in ARRAYS[source]}
    forward = interpret(found.forward, GRAPH, **values)
    assert found.backward is not None
    backward = Program(found.backward)
    seed = generator.standard_normal((NODES, HEADS, CHANNELS))
    inputs = {n: seed if n.startswith("grad_") else {**values, **forward}[n] for n in backward.inputs}
    results = interpret(found.backward, GRAPH, **inputs)
    return {n: results[name] for n, name in zip(found.wrt, backward.outputs, strict=True)}


@pytest.mark.parametrize(
    ("source", "options", "saved"),
    [
        (gat, nothing_but(), ()),
        (gat, nothing_but("features"), ("features",)),
        (gat, nothing_but("features", *NODE), ("features", *NODE)),
        (gat, nothing_but("features", "att", "score"), ("features", "att", "score")),
        (gat, {}, ("features", "att", *NODE)),
        (gat, {"caching": "papers"}, ("features", *NODE, "largest", "total")),
        (gatv2, nothing_but(), ()),
        (gatv2, nothing_but("features", "features_dst"), ("features", "features_dst")),
        (gatv2, nothing_but("features", "features_dst", "att"), ("features", "features_dst", "att")),
        (gatv2, {}, ("features", "features_dst", "att")),
        (gatv2, {"caching": "papers"}, ("tmp", "tmp_1", "score", "largest", "total")),
    ],
)
def test_what_is_saved(source: Any, options: dict[str, Any], saved: tuple[str, ...]) -> None:
    """And that gradients are those of all that is saved."""
    found = plan(source, **options)
    assert sorted(found.saved) == sorted(saved)
    expected = gradients(plan(source), source)
    for name, gradient in gradients(found, source).items():
        np.testing.assert_allclose(gradient, expected[name], rtol=1e-10, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("source", [gat, gatv2])
def test_no_array_of_edges_is_as_wide_as_features(source: Any) -> None:
    found = plan(source)
    assert found.backward is not None
    for sdfg in (found.forward, found.backward):
        program = Program(sdfg)
        kept = {name for operator in program.operators for name in operator.locals}
        wide = [n for n in sdfg.arrays if n not in kept and program.space(n) == "E" and len(program.shape(n)) > 1]
        assert not wide


def over_edges(sdfg: dace.SDFG) -> list[str]:
    """What the traversals that visit edges run over."""
    operators: list[Any] = Program(sdfg).operators
    visiting = [o for o in operators if isinstance(o, Traversal) and "E" in {s.space for s in o.statements}]
    return [o.space for o in visiting]


@pytest.mark.parametrize("options", [{}, nothing_but(), {"caching": "papers"}, nothing_but("features")], ids=str)
@pytest.mark.parametrize(("source", "backward"), [(gat, ["ND", "NS"]), (gatv2, ["ND", "E", "E"])])
def test_attention_visits_the_edges_once(source: Any, backward: list[str], options: dict[str, Any]) -> None:
    """Scores, softmax and sums of all heads in one loop over destinations, also where the backward does it again.

    Gradients then flow to the sources in a second one; those of a vector that GATv2 has on edges take another.
    """
    found = plan(source, **options)
    assert found.backward is not None
    assert over_edges(found.forward) == ["ND"]
    assert over_edges(found.backward) == backward
    statements = [s for sdfg in (found.forward, found.backward) for o in Program(sdfg).operators for s in o.statements]
    copies = [s.target.name for s in statements if s.op == "=" and isinstance(s.expr, Ref)]
    assert not copies, "an array is another, or that transposed"
