"""`HeteroConv`: one program for all relations, equal to a loop over them."""

from __future__ import annotations

from itertools import cycle

import pytest
from torch import Tensor, nn

import dacergnn
from dacergnn.modules import CompiledLayer
from tests.modules.hetero_cases import CASES
from tests.modules.hetero_layers import MIXED, K, Key, draw, edge_index_dict, hetero, outcome, x_dict
from tests.modules.layers import assert_close, compiled, pyg

pytestmark = pytest.mark.filterwarnings("ignore:There exist node types:UserWarning")


COVERED = ("averaged", "averaged beside others", "shared")
"""Cases whose options others have together with more."""
NAMES = [name for name in CASES if name not in COVERED]


@pytest.mark.parametrize(("name", "aggr"), [*zip(NAMES, cycle(["sum", "mean"]), strict=False)])
def test_outputs_and_gradients(name: str, aggr: str) -> None:
    layer = CASES[name].layer(aggr)
    args = CASES[name].arguments(layer)
    optimized = compiled(layer)
    expected = outcome(layer, *args)
    for _ in range(2):
        names, values = outcome(optimized, *args)
        assert names == expected[0]
        assert_close(values, expected[1], 1e-9)
    assert optimized.graphs.encoded == 1  # by the first call
    assert optimized.refusal is None


@pytest.mark.parametrize(
    ("name", "aggr"),
    [
        ("SAGEConv", "mean"),
        ("different layers", "sum"),
        ("GATv2Conv", "sum"),
        ("TransformerConv beside others", "mean"),
    ],
)
def test_calls_with_some_of_the_relations(name: str, aggr: str) -> None:
    """The mean is over the relations of a call; other types and relations are ignored."""
    layer = CASES[name].layer(aggr)
    optimized = compiled(layer)
    x, edges = x_dict(), edge_index_dict(MIXED)
    for keys in (MIXED[:2], [MIXED[2]], MIXED[1:], MIXED[2:4]):
        part = {key: edges[key] for key in reversed(keys)} | {("a", "other", "d"): edges[MIXED[0]]}
        names, values = outcome(optimized, x | {"d": draw(2, 1)}, part, {})
        expected = outcome(layer, x | {"d": draw(2, 1)}, part, {})
        assert names == expected[0]
        assert_close(values, expected[1], 1e-9)
    assert optimized.refusal is None


def test_replaced_inside_a_model() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = (hetero(lambda lib, _: lib.SAGEConv((K, K), K), MIXED) for _ in range(2))

        def forward(self, x: dict[str, Tensor], edges: dict[Key, Tensor]) -> dict[str, Tensor]:
            hidden = {name: v.relu() for name, v in self.first(x, edges).items()}
            return self.second(x | hidden, edges)

    model = Model()
    optimized = dacergnn.optimize(model, on_unsupported="error")
    assert [name for name, m in optimized.named_modules() if isinstance(m, CompiledLayer)] == ["first", "second"]
    args = x_dict(), edge_index_dict(MIXED)
    assert_close(optimized(*args), model(*args), 1e-9)
    assert optimized.get_submodule("first").graphs.encoded == 1
    assert list(optimized.state_dict()) == list(model.state_dict())
    assert all(a is b for a, b in zip(optimized.parameters(), model.parameters(), strict=True))
    assert type(dacergnn.revert(optimized).get_submodule("first")) is pyg().HeteroConv
