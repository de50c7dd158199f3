"""Gradients of a compiled layer are those of its original: what they add up to, their memory, which of them exist."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import dacergnn
from tests.compatibility.comparing import (
    assert_same,
    assert_same_calls,
    every_kind,
    every_original,
    gradients,
    losses,
)
from tests.compatibility.kinds import F, Kind, M, N, edges, outputs, pyg


@every_original
def test_backwards_add_up_and_are_clipped(kind: Kind) -> None:
    original, fast = kind.pair()
    for module in (original, fast):
        for _ in range(2):
            torch.stack(losses(kind, module)).sum().backward()
    assert_same(gradients(fast), gradients(original))
    norms = [nn.utils.clip_grad_norm_(module.parameters(), 0.1) for module in (fast, original)]
    assert_same(norms[0], norms[1])
    assert_same(gradients(fast), gradients(original))


@every_kind
def test_gradients_have_memory_of_their_own(kind: Kind) -> None:
    module = kind.compiled()
    torch.stack(losses(kind, module)).sum().backward()
    places = [(g.data_ptr(), g.data_ptr() + g.nbytes) for g in gradients(module) if g is not None and g.nbytes]
    places.sort()
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(places))


@every_original
def test_a_backward_from_one_result_leaves_other_parameters_alone(kind: Kind) -> None:
    original, fast = kind.pair()
    for position in range(len(losses(kind, original))):
        for module in (original, fast):
            module.zero_grad(set_to_none=True)
            losses(kind, module)[position].backward()
        assert_same(gradients(fast), gradients(original))


WRITES: list[Callable[[Tensor], Tensor]] = [torch.relu_, torch.sigmoid_, Tensor.zero_, lambda y: y.mul_(2)]


@every_original
def test_results_are_written_to_in_place(kind: Kind) -> None:
    for write in WRITES:
        original, fast = kind.pair()
        found, expected = (gradients_after(write, kind, module) for module in (fast, original))
        if expected is not None:
            assert found is not None
            assert_same(found, expected)
        assert_same_calls(kind, fast, original)


def gradients_after(write: Callable[[Tensor], Tensor], kind: Kind, module: nn.Module) -> list[Tensor | None] | None:
    """Gradients of results that were written to; None if they are read by their own gradients, so that torch raises."""
    for _ in range(2):
        with torch.no_grad():
            for part in outputs(module(*kind.arguments())):
                write(part)
        written = [write(part) for part in outputs(module(*kind.arguments()))]
        loss = torch.stack([(part + part.square()).sum() for part in written]).sum()
        try:
            loss.backward()
        except RuntimeError as error:
            if "modified by an inplace operation" not in str(error):
                raise
            return None
    return gradients(module)


def test_cached_coefficients_keep_their_gradient() -> None:
    """Those of edges that a layer has kept in a call before lead to the weights of that call."""
    index, found = edges()[0], []
    for optimized in (False, True):
        torch.manual_seed(0)
        layer: Any = pyg.GCNConv(F, M, cached=True)
        layer = dacergnn.optimize(layer, on_unsupported="error") if optimized else layer
        weight = torch.rand(index.size(1), generator=torch.Generator().manual_seed(3)).requires_grad_()
        x = torch.randn(N, F, generator=torch.Generator().manual_seed(1))
        (layer(x, index, weight) + layer(x, index, weight)).square().sum().backward()
        found.append(weight.grad)
    assert_same(found[1], found[0], 1e-5)
