"""Forwards that do more than compute do it at every call."""

from __future__ import annotations

import copy
import math
import random
import time
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import dacergnn
from tests.capture.calls import Counter, K, arguments, captured, compiled

pytest.importorskip("torch_geometric")
from torch_geometric.nn import MessagePassing

__all__ = ["captured"]
SLOPE = 0.25
LOG: list[Any] = []


class Plain(MessagePassing):
    """Parts that do more than compute are added to this."""

    def __init__(self) -> None:
        super().__init__(aggr="sum")
        self.weight = nn.Parameter(torch.ones(K, dtype=torch.float64))
        self.register_buffer("count", torch.zeros(1, dtype=torch.float64))
        self.calls = 0
        self.more: Any = None

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.effect(self.propagate(edge_index, x=x) * self.weight)

    def effect(self, x: Tensor) -> Tensor:
        return x


def prints(self: Any, x: Tensor) -> Tensor:
    print("called")  # noqa: T201
    return x


def draws(self: Any, x: Tensor) -> Tensor:
    return x * random.random()


def draws_in_torch(self: Any, x: Tensor) -> Tensor:
    return x * torch.rand(K, dtype=torch.float64)


def draws_unused(self: Any, x: Tensor) -> Tensor:
    F.dropout(x, 0.5)
    return x


def looks(self: Any, x: Tensor) -> Tensor:
    return x * self.weight.sum().item()


def decides(self: Any, x: Tensor) -> Tensor:
    return x * 2.0 if self.weight[0] > 0 else x


def counts_rows(self: Any, x: Tensor) -> Tensor:
    return x * float(self.weight.nonzero().shape[0])


def counts(self: Any, x: Tensor) -> Tensor:
    self.calls += 1
    return x * self.calls


def appends(self: Any, x: Tensor) -> Tensor:
    LOG.append(1)
    return x * len(LOG)


def tells_time(self: Any, x: Tensor) -> Tensor:
    return x * math.ceil(time.time() * 1e3)


def imports(self: Any, x: Tensor) -> Tensor:
    import time as clock

    return x * clock.time()


def finds(self: Any, x: Tensor) -> Tensor:
    return getattr(self, "eff" + "ects", lambda y: y)(x) * self.more.value


def writes(self: Any, x: Tensor) -> Tensor:
    self.count += 1
    return x * self.count.clone()


def writes_past(self: Any, x: Tensor) -> Tensor:
    self.count.data.add_(1)
    return x


def sorts(self: Any, x: Tensor) -> Tensor:
    return torch.sort(x, 0).values


def multiplies(self: Any, x: Tensor) -> Tensor:
    return x * (self.weight * 2)


def names_globals(self: Any, x: Tensor) -> Tensor:
    global SLOPE
    SLOPE = SLOPE + 0.0
    return x * SLOPE


def frames(self: Any, x: Tensor) -> Tensor:
    return x * tells_time.__globals__["time"].time()


EFFECTS = (prints, draws, looks, decides, counts, appends, tells_time, imports, finds, writes, names_globals, frames)


@pytest.mark.parametrize("effect", EFFECTS, ids=lambda e: e.__name__)
def test_calls_that_do_more_than_compute(effect: Any, capsys: pytest.CaptureFixture[str]) -> None:
    layer, args = type("Plain", (Plain,), {"effect": effect, "__module__": __name__})(), arguments()
    layer.more = Counter() if effect is finds else None
    LOG.clear()
    found = dacergnn.optimize(layer, on_unsupported="ignore")  # torch may fail on a dictionary of globals
    with torch.no_grad():
        for _ in range(5):
            found(*args)
    assert capsys.readouterr().out.count("called") == (5 if effect is prints else 0)
    assert len(LOG) == (5 if effect is appends else 0)
    assert (layer.calls, layer.more and layer.more.calls) == (5 if effect is counts else 0, layer.more and 5)
    assert effect is frames or "captured as " in str(dacergnn.explain(found))


def writes_to_a_part(self: Any, x: Tensor) -> Tensor:
    factors = self.weight.detach().clone().view(2, -1)
    factors[0].mul_(2.0)
    F.relu(factors[1].sub_(5.0), True)
    F.relu(factors.t()[0], True)
    return x * factors.view(-1)


REPEATED = (writes_to_a_part, draws_in_torch, draws_unused, counts_rows, writes_past, sorts, multiplies)


@pytest.mark.parametrize("effect", REPEATED, ids=lambda e: e.__name__)
def test_functions_of_torch_are_run_again(effect: Any, captured: list[int]) -> None:
    layer, args = type("Plain", (Plain,), {"effect": effect, "__module__": __name__})(), arguments()
    found, original = compiled(layer), copy.deepcopy(layer)
    for seed in range(5):
        with torch.no_grad():
            original.weight.copy_(layer.weight.mul_(1.5 - (seed == 3)))
        torch.manual_seed(seed)
        mine = found(*args)
        state = torch.get_rng_state()
        torch.manual_seed(seed)
        torch.testing.assert_close(mine, original(*args))
        assert torch.equal(state, torch.get_rng_state())
        torch.testing.assert_close(layer.count, original.count)
    assert len(captured) == 1


def test_parts_without_gradients_stay_without_them(captured: list[int]) -> None:
    class Scaled(Plain):
        def effect(self, x: Tensor) -> Tensor:
            with torch.no_grad():
                factors = torch.sort(self.weight.mul(3.0)).values
            return x * factors

    layer, args = Scaled(), arguments()
    found = compiled(layer)
    for _ in range(4):
        torch.testing.assert_close(*[torch.autograd.grad(f(*args).sum(), layer.weight) for f in (found, layer)])
    assert len(captured) == 1


def test_a_count_of_rows_that_differs_is_noticed(captured: list[int]) -> None:
    layer, args = type("Plain", (Plain,), {"effect": counts_rows, "__module__": __name__})(), arguments()
    found = compiled(layer)
    for zeros in (0, 0, 0, 2, 2, 0):
        with torch.no_grad():
            layer.weight.fill_(1.0)[:zeros] = 0.0
        torch.testing.assert_close(found(*args), layer(*args))
    assert len(captured) == 1


def test_edges_made_in_a_call(captured: list[int]) -> None:
    class Looped(Plain):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.propagate(edge_index.flip(0), x=x) * self.weight

    layer, args = Looped(), arguments()
    found = compiled(layer)
    for _ in range(4):
        torch.testing.assert_close(found(*args), layer(*args))
    assert len(captured) == 1


class Listing(Plain):
    """Returns a list, and numbers in containers, beside its result."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return self.propagate(edge_index, x=x), ([1], {"a": [2]}, (3, [4]))


def test_containers_that_are_returned_are_those_of_the_call(captured: list[int]) -> None:
    layer, args = compiled(Listing().double()), arguments()
    for _ in range(5):
        _, (first, second, third) = layer(*args)
        assert (first, second, third) == ([1], {"a": [2]}, (3, [4]))
        first.append(5), second["a"].append(5), third[1].append(5)  # pyright: ignore[reportUnusedExpression]
    assert len(captured) < 5


class Differentiating(Plain):
    def effect(self, x: Tensor) -> Tensor:
        return x + torch.autograd.grad(x.sin().sum(), [x], create_graph=True)[0]


@pytest.mark.skipif(not hasattr(torch._dynamo.config, "trace_autograd_ops"), reason="torch captures no gradients")
def test_gradients_that_torch_captures() -> None:
    original = Differentiating()
    given = torch.ones(3, K, dtype=torch.float64), torch.tensor([[0, 1, 2], [1, 2, 2]])
    fast = dacergnn.optimize(copy.deepcopy(original))
    with torch._dynamo.config.patch(trace_autograd_ops=True), pytest.warns(UserWarning, match="within the forward"):
        found = fast(*given)
    torch.testing.assert_close(found, original(*given))
