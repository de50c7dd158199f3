"""RGCN, RGAT and HGT compile to the same listings and the same kernels, whichever front end they are written for.

Listings are compared up to names (`tests/support/up_to_names.py`): the program as it is after `canonical_form`, which
is where all front ends meet, and what all passes make of it, forward and backward, with schedules and encodings.
"""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("dgl", reason="dgl 1.1.3 needs Python 3.11")
pytest.importorskip("torch_geometric")

from dacergnn.sdfg_passes import Compilation
from examples.dgl_style import typed_graph
from examples.front_ends import CHANNELS, MODELS, Way, ways
from tests.support.up_to_names import forward_listing, plan_listing

NODES, EDGES, TYPES, RELATIONS = 30, 120, 2, 3


def plan_of(way: Way) -> Compilation:
    """How the only program of the last call was compiled."""
    layer = way.layer()
    layer = getattr(layer, "core", layer)
    assert getattr(layer, "refusal", None) is None
    return layer.last_call[0].variants[-1].compilation


@pytest.mark.no_cover
@pytest.mark.parametrize("model", MODELS)
def test_listings(model: str) -> None:
    torch.manual_seed(3)
    x = torch.randn(NODES, CHANNELS, requires_grad=True)
    found, _ = ways(model, typed_graph(NODES, EDGES, TYPES, RELATIONS), x)
    assert len(found) == 5
    listings: dict[str, tuple[list[str], list[str]]] = {}
    values = [way.call() for way in found.values()]
    for name, way in found.items():
        plan = plan_of(way)
        (step,) = [s for s in plan.steps if s.name == "canonical_form"]
        listings[name] = forward_listing(step.sdfgs["forward"]), plan_listing(plan)
    expected = listings["built in"]
    assert len(expected[0]) > 5
    for name, listing in listings.items():
        assert listing[0] == expected[0], name
        assert listing[1] == expected[1], name
    for value in values[1:]:
        torch.testing.assert_close(value, values[0])
