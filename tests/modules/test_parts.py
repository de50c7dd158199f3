"""Layers whose weights and features are tensors by type: read at every call, without and with gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dacergnn.errors import ArrayError
from tests.modules.layers import assert_close, compiled, gradients, hgt, hgt_arguments
from tests.support.bindings import arrays_of, result_of


def without_gradients(layer: nn.Module, args: Any) -> dict[str, Tensor]:
    with torch.no_grad():
        return layer(*args)


def parameter(layer: nn.Module, name: str) -> nn.Parameter:
    return dict(layer.named_parameters())[name]


@pytest.mark.parametrize("heads", [1, 2])
def test_bit_by_bit_what_concatenated_arrays_give(heads: int) -> None:
    layer, args = compiled(hgt(heads)), hgt_arguments()
    found = without_gradients(layer, args)
    assert layer.last_call is not None
    program, graph = layer.last_call
    binding = layer.frontend.bind(graph, *args)
    assert binding.stacks is not None
    with torch.no_grad():
        arrays = arrays_of(binding)
        expected = result_of(binding, program(graph, [arrays[name] for name in program.inputs]))
    assert list(found) == list(expected)
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_writes_to_any_parameter_are_seen() -> None:
    original, args = hgt(1), hgt_arguments()
    layer = compiled(original)
    before = without_gradients(layer, args)
    for changed in original.parameters():
        changed.data.mul_(1.5).add_(0.25)  # counts no version
        assert_close(without_gradients(layer, args), without_gradients(original, args))
    after = without_gradients(layer, args)
    assert not any(torch.allclose(after[name], before[name]) for name in after)


def test_parameters_and_data_that_are_replaced() -> None:
    original, args = hgt(), hgt_arguments()
    layer = compiled(original)
    without_gradients(layer, args)
    weight = parameter(original, "kqv_lin.lins.t9.weight")
    weight.data = weight.data * 2
    assert_close(without_gradients(layer, args), without_gradients(original, args))
    weight.data = weight.data.T.contiguous().T
    assert not weight.is_contiguous()
    assert_close(without_gradients(layer, args), without_gradients(original, args))
    out = original.out_lin.lins["t9"]
    out.weight = nn.Parameter(out.weight.detach() + 1)
    assert_close(without_gradients(layer, args), without_gradients(original, args))
    assert_close(gradients(layer, args), gradients(original, args))


def test_results_without_gradients_may_be_written_to() -> None:
    original, args = hgt(), hgt_arguments()
    factor = torch.tensor(2.0, requires_grad=True)
    found, expected = (without_gradients(m, args) for m in (compiled(original), original))
    for results in (found, expected):
        for result in results.values():
            result.mul_(factor)
    assert_close(found, expected)
    assert all(result.requires_grad for result in found.values())


def test_features_that_are_not_contiguous() -> None:
    layer, (x, edges) = compiled(hgt()), hgt_arguments()
    odd = {name: torch.stack([v, v * 0 + 7], dim=2)[..., 0] for name, v in x.items()}
    expected, found = without_gradients(layer, (x, edges)), without_gradients(layer, (odd, edges))
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_a_node_type_without_nodes() -> None:
    original, (x, edges) = hgt(), hgt_arguments()
    layer = compiled(original)
    without_gradients(layer, (x, edges))
    empty = next(iter(x))
    args = x | {empty: x[empty][:0]}, {k: e if empty not in (k[0], k[2]) else e[:, :0] for k, e in edges.items()}
    expected, found = without_gradients(original, args), without_gradients(layer, args)
    assert found[empty].shape == expected[empty].shape == (0, 8)
    assert_close(found, expected)
    assert_close(gradients(layer, args), gradients(original, args))


def test_types_in_another_order() -> None:
    original, (x, edges) = hgt(), hgt_arguments()
    layer = compiled(original)
    expected = without_gradients(layer, (x, edges))
    turned = dict(reversed(x.items())), dict(reversed(edges.items()))
    assert_close(without_gradients(layer, turned), expected)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.double(), "part 3 of W_k, W_q, W_v has dtype torch.float64, but the layer has"),
        (lambda t: t[:12], r"part 3 of W_k, W_q, W_v has shape \(12, 8\), but the graph and the layer ask for 192 num"),
        (lambda t: t.to("meta"), "part 3 of W_k, W_q, W_v is on meta, but the graph is on cpu"),
    ],
)
def test_a_weight_that_does_not_fit(change: Any, message: str) -> None:
    original, args = hgt(), hgt_arguments()
    layer = compiled(original)
    without_gradients(layer, args)
    last = list(original.kqv_lin.lins.values())[3]
    kept = last.weight
    last.weight = nn.Parameter(change(kept.data))
    with pytest.raises(ArrayError, match=message):
        without_gradients(layer, args)
    with pytest.raises(ArrayError, match=message):
        layer(*args)
    last.weight = kept
    assert_close(without_gradients(layer, args), without_gradients(original, args))
