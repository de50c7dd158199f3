"""Missing values, which are NaN, at a node that no edge reads: they reach nothing else than in the original."""

from __future__ import annotations

import pytest
import torch

from tests.compatibility.comparing import gradients
from tests.compatibility.kinds import KINDS, F, Kind, named, outputs

FURTHER_NODES = [k for k in KINDS if k.name.startswith("pyg") and "to_hetero" not in k.name]
"""Kinds whose calls tell the number of nodes by the features."""


@pytest.mark.parametrize("missing", [torch.nan, torch.inf], ids=["nan", "inf"])
@pytest.mark.parametrize("kind", FURTHER_NODES, ids=named)
def test_a_node_that_no_edge_reads(kind: Kind, missing: float) -> None:
    further = torch.full((1, F), missing, dtype=torch.float64)
    original, fast = kind.pair()
    for module in (original, fast):
        results = outputs(module(*kind.call(*[torch.cat([x, further]) for x in kind.features()])))
        torch.stack([part[:-1].square().sum() for part in results]).sum().backward()
    for found, expected in zip(gradients(fast), gradients(original), strict=True):
        assert (found is None) == (expected is None)
        if found is None or expected is None:
            continue
        finite = expected.isfinite()  # torch's products are over all nodes, also where nobody reads them
        torch.testing.assert_close(found[finite], expected[finite])
