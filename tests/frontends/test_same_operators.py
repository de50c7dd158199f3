"""RGCN, RGAT and HGT compile to the same listings and the same kernels, whichever front end they are written for.

Listings are compared up to names (`tests/support/up_to_names.py`): the program as it is after `canonical_form`, which
is where all front ends meet, and what all passes make of it, forward and backward, with schedules and encodings.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import dacergnn
from dacergnn import HeteroGraph
from dacergnn.modules import HGT, RGAT, RGCN
from dacergnn.sdfg_passes import Plan
from examples import dace_style
from examples import hgt as hgt_program
from examples import rgat as rgat_program
from examples import rgcn as rgcn_program
from tests.support.up_to_names import forward_listing, plan_listing

dgl: Any = pytest.importorskip("dgl", reason="dgl 1.1.3 needs Python 3.11")
pytest.importorskip("torch_geometric")
from dacergnn.modules.graph_forward import compiled_forwards  # noqa: E402
from examples import dgl_style, pyg_style  # noqa: E402

NODES, EDGES, TYPES, RELATIONS, HEADS, WIDTH = 30, 120, 2, 3, 2, 8
CHANNELS = HEADS * WIDTH
MODELS = ("rgcn", "rgat", "hgt")


@pytest.fixture(scope="module")
def of_dgl() -> Any:
    torch.manual_seed(3)
    return dgl_style.typed_graph(NODES, EDGES, TYPES, RELATIONS)


def plan_of(layer: Any) -> Plan:
    """How the only program of a layer's last call was compiled."""
    assert getattr(layer, "refusal", None) is None
    return layer.last_call[0].variants[-1].plan


def plans(model: str, of_dgl: Any) -> dict[str, Plan]:
    """The plan of a model by the front end that it is written for."""
    graph = HeteroGraph.from_dgl(of_dgl)
    index, types = torch.stack(of_dgl.edges()), (of_dgl.ndata[dgl.NTYPE], of_dgl.edata[dgl.ETYPE])
    x, norm = torch.randn(NODES, CHANNELS, requires_grad=True), torch.rand(EDGES)
    built_in: Any
    if model == "rgcn":
        built_in, rest = RGCN(CHANNELS, CHANNELS, RELATIONS), [norm]
        written: Any = dgl_style.RGCN(CHANNELS, CHANNELS, RELATIONS)
        of_pyg: Any = pyg_style.RGCN(CHANNELS, CHANNELS, RELATIONS)
        given = (types[1], norm)
        program, arrays = rgcn_program.layer, built_in.arrays(graph)
    elif model == "rgat":
        built_in, rest = RGAT(CHANNELS, WIDTH, RELATIONS, heads=HEADS), []
        written = dgl_style.RGAT(CHANNELS, WIDTH, RELATIONS, heads=HEADS)
        of_pyg = pyg_style.RGAT(CHANNELS, WIDTH, RELATIONS, heads=HEADS)
        given = (types[1],)
        program, arrays = rgat_program.rgat(HEADS, WIDTH), built_in.arrays(graph)
    else:
        built_in, rest = HGT(CHANNELS, TYPES, RELATIONS, heads=HEADS), []
        written = dgl_style.HGT(CHANNELS, TYPES, RELATIONS, heads=HEADS)
        of_pyg = pyg_style.HGT(CHANNELS, TYPES, RELATIONS, heads=HEADS)
        given = types
        program, arrays = hgt_program.hgt(HEADS, WIDTH), built_in.arrays(graph)
    built_in(x, graph)
    program(graph, x=x, **arrays)
    written(of_dgl, x, *rest)
    of_pyg = dacergnn.optimize(of_pyg, on_unsupported="error")
    of_pyg(x, index, *given)
    of_dace = getattr(dace_style, model)
    of_dace(graph, x=x.double(), **{n: _double(a) for n, a in arrays.items()})
    layers = {
        "built in": built_in, "program form": program, "DGL": compiled_forwards(written)[0], "PyG": of_pyg,
        "DaCe": of_dace,
    }  # fmt: skip
    return {name: plan_of(layer) for name, layer in layers.items()}


def _double(array: Tensor) -> Tensor:
    return array.detach().double().requires_grad_(array.requires_grad)


@pytest.mark.parametrize("model", MODELS)
def test_listings(model: str, of_dgl: Any) -> None:
    found = plans(model, of_dgl)
    expected = found.pop("built in")
    (step,) = [s for s in expected.steps if s.name == "canonical_form"]
    first, last = forward_listing(step.sdfgs["forward"]), plan_listing(expected)
    assert len(first) > 5
    assert len(found) == 4
    for name, plan in found.items():
        (step,) = [s for s in plan.steps if s.name == "canonical_form"]
        assert forward_listing(step.sdfgs["forward"]) == first, name
        assert plan_listing(plan) == last, name
