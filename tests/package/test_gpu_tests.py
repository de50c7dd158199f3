"""What tests/gpu asks of a device, asked of the processor: that the tests themselves are right."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.frontends.cases import CASES
from tests.frontends.graphs import typed_edges
from tests.gpu import layers, test_encodings, test_layers
from tests.gpu.layers import PYG, assert_close, check, differentiated, hub_edges, native, typed_graph

PROCESSOR = torch.device("cpu")


def original(layer: Any, on_unsupported: str) -> Any:
    """In place of `dacergnn.optimize`."""
    return layer


@pytest.mark.parametrize("name", PYG)
def test_the_libraries_own_layers_pass(name: str) -> None:
    pytest.importorskip("torch_geometric")
    for edges in (typed_edges(400, 5), typed_edges(0, 1)):
        check(PYG[name], edges, "float64", PROCESSOR, original)
    check(PYG[name], typed_edges(100, 5), "bfloat16", PROCESSOR, original)


def test_wrong_values_do_not_pass() -> None:
    pytest.importorskip("torch_geometric")
    case, edges = PYG["rgcn"], hub_edges(1000)
    layer = layers.filled(case.make(edges), PROCESSOR, torch.bfloat16)
    arguments = layers.moved(case.inputs(edges, torch.float64), PROCESSOR, torch.bfloat16)
    wanted = layers.expected(case, layer, arguments)
    found = differentiated(layer, layer, arguments)
    assert_close(found, wanted, "bfloat16")
    assert_close([t.bfloat16() for t in wanted], wanted, "bfloat16")
    for number, tensor in enumerate(found):
        wrong = [t.clone() for t in found]
        wrong[number].view(-1)[tensor.abs().argmax()] *= 1.25
        with pytest.raises(AssertionError, match=f"tensor {number} of shape"):
            assert_close(wrong, wanted, "bfloat16", lambda: found)
        wrong[number].view(-1)[0] = torch.nan
        with pytest.raises(AssertionError, match=f"tensor {number} of shape"):
            assert_close(wrong, wanted, "bfloat16")


def test_hubs_are_hubs() -> None:
    edges = hub_edges()
    src, dst = (torch.bincount(end, minlength=edges.num_src) for end in edges.edge_index)
    assert src.max() > 100_000
    assert dst.max() > 100_000
    assert (src + dst == 0).any(), "isolated nodes"
    assert set(range(5)) - set(edges.edge_type.tolist()) == {1, 4}, "empty relations"
    pairs = torch.stack([edges.edge_type, *edges.edge_index])
    assert pairs.unique(dim=1).shape[1] < pairs.shape[1], "edges that occur several times"
    for relation, (s, d) in enumerate(edges.ends):
        kinds = edges.node_type()[edges.edge_index[:, edges.edge_type == relation]]
        assert set(kinds[0].tolist()) <= {s}
        assert set(kinds[1].tolist()) <= {d}


def test_arguments_are_moved() -> None:
    x = torch.ones(2, requires_grad=True)
    moved = layers.moved(({"a": x}, [torch.arange(3)], None), PROCESSOR, torch.float64)
    assert moved[0]["a"].dtype == torch.float64
    assert moved[0]["a"].requires_grad
    assert moved[1][0].dtype == torch.int64
    assert moved[2] is None


def test_every_number_is_one_of_bfloat16() -> None:
    layer, x, _ = native("hgt", typed_edges(40, 5), PROCESSOR, torch.float64)
    for tensor in (x, *layer.parameters()):
        assert torch.equal(tensor, tensor.bfloat16().double())


def test_named_cases_exist() -> None:
    known = [case.name for case in CASES]
    assert [known.count(name) for name in test_layers.MODES] == [1] * len(test_layers.MODES)
    precisions = list(test_layers.TOLERANCE)
    assert all(n in PYG and g in layers.GRAPHS and p in precisions for n, g, p in test_layers.SANITIZED)


def test_encodings_exist() -> None:
    graph = typed_graph(typed_edges(), PROCESSOR)
    for name in test_encodings.NAMES:
        assert graph.encoding(name).dim() == 1, name
