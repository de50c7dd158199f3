"""Features that are written to between a call and its backward, as by `x += layer(x)`, where the original allows it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tests.compatibility.comparing import assert_same, every_original
from tests.compatibility.kinds import KINDS, Kind, outputs


def step(kind: Kind, module: nn.Module, *, writes: bool) -> list[Tensor]:
    """Gradients of the features and of the parameters after one step."""
    leaves = [x.requires_grad_() for x in kind.features()]
    features = [x * 1 for x in leaves]
    found = outputs(module(*kind.call(*features)))
    if writes:
        for x in features:
            x += 1
    loss = torch.stack([part.square().sum() for part in (*found, *features)]).sum()
    gradients = torch.autograd.grad(loss, [*leaves, *module.parameters()], allow_unused=True)
    return [g for g in gradients if g is not None]


@every_original
def test_features_that_are_written_to(kind: Kind) -> None:
    original, fast = kind.pair()
    try:
        expected = [step(kind, original, writes=writes) for writes in (True, True, False)]
    except RuntimeError as error:
        if "modified by an inplace operation" in str(error):
            return
        raise
    for writes, gradients in zip((True, True, False), expected, strict=True):
        assert_same(step(kind, fast, writes=writes), gradients, 1e-9)


def test_features_are_copied_again_after_a_write_that_nobody_expected() -> None:
    kind = next(k for k in KINDS if k.name == "dgl.GraphConv")
    original, fast = kind.pair()
    step(kind, fast, writes=False)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        step(kind, fast, writes=True)
    for _ in range(2):
        assert_same(step(kind, fast, writes=True), step(kind, original, writes=True), 1e-9)
