"""Calls like a captured one run its program at once; whatever may change what the original computes is noticed."""

from __future__ import annotations

import gc
import types
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import dacergnn
from tests.capture.calls import Counter, K, N, arguments, captured, compiled, repeated

pytest.importorskip("torch_geometric")
from torch_geometric.nn import MessagePassing

__all__ = ["captured"]
SLOPE = 0.25
OPTIONS = {"shift": 0.5}


def doubled(x: Tensor, *, factor: float = 2.0) -> Tensor:
    return x * factor


def make(factor: float) -> Any:
    """A layer that depends on whatever a layer may depend on."""

    class Layer(MessagePassing):
        gain = 1.5

        def __init__(self) -> None:
            super().__init__(aggr="sum")
            self.linear, self.gate = nn.Linear(K, K, bias=False), nn.Linear(K, 1)
            self.weight = nn.Parameter(torch.randn(K))
            self.sizes = [3.0]
            self.scale = 2.0
            self.activation: Any = nn.Tanh()

        def forward(self, x: Tensor, edge_index: Tensor, power: float = 1.0) -> Tensor:
            out = self.propagate(edge_index, x=self.linear(x)) * self.scale * self.gain + OPTIONS["shift"]
            if self.training:
                out = out * self.weight
            return self.activation(out) * (factor * self.sizes[0] * power)

        def message(self, x_j: Tensor) -> Tensor:
            return F.leaky_relu(doubled(x_j), SLOPE) * self.gate(x_j).sigmoid()

    torch.manual_seed(1)
    return Layer().double()


def test_the_second_call_is_not_captured(captured: list[int]) -> None:
    layer, (x, index) = make(1.0), arguments()
    found = compiled(layer)
    for _ in range(3):
        x = x.sin()
        torch.testing.assert_close(found(x, index), layer(x, index))
        assert len(captured) == 1
    assert "captured as 1 graph: 1 runs of programs" in str(dacergnn.explain(found))


def test_gradients_of_repeated_calls(captured: list[int]) -> None:
    layer, (x, index) = make(1.0), arguments(requires_grad=True)
    found = repeated(layer, (x, index))
    leaves = [x, *layer.parameters()]
    weights = torch.randn(N, K, dtype=torch.float64)
    both = [torch.autograd.grad(f(x, index), leaves, weights) for f in (found, layer)]
    torch.testing.assert_close(*both)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        found(x, index).square().sum().backward()
        optimizer.step()
        torch.testing.assert_close(found(x, index), layer(x, index))
    assert len(captured) == 1


def test_training_and_evaluation_in_turn(captured: list[int]) -> None:
    layer, (x, index) = make(1.0), arguments()
    found = compiled(layer)
    for _ in range(3):
        for mode in (True, False):
            found.train(mode)
            with torch.set_grad_enabled(mode):
                for _ in range(2):
                    torch.testing.assert_close(found(x, index), layer(x, index))
        assert len(captured) == 2


def set_cell(layer: Any) -> None:
    (cell,) = type(layer).forward.__closure__
    cell.cell_contents = 4.0


def hook(module: Any, args: Any, output: Tensor) -> Tensor:
    return output * 3.0


def new_message(self: Any, x_j: Tensor) -> Tensor:
    return x_j - 1.0


def other_code(x: Tensor, *, factor: float = 2.0) -> Tensor:
    return x * 5.0


Change = Callable[[Any, pytest.MonkeyPatch], object]
CHANGES: dict[str, Change] = {
    "an attribute": lambda layer, _: setattr(layer, "scale", 3.0),
    "an attribute that is added again": lambda layer, _: (delattr(layer, "scale"), setattr(layer, "scale", 3.0)),
    "an item of a list": lambda layer, _: layer.sizes.__setitem__(0, 2.0),
    "a parameter": lambda layer, _: setattr(layer, "weight", nn.Parameter(layer.weight.detach() + 1)),
    "a submodule": lambda layer, _: setattr(layer, "activation", nn.ReLU()),
    "all submodules": lambda layer, _: setattr(layer, "_modules", {**layer._modules, "activation": nn.ELU()}),
    "a parameter of a submodule": lambda layer, _: setattr(
        layer.linear, "weight", nn.Parameter(layer.linear.weight + 1)
    ),
    "a hook for all modules": lambda _, patch: patch.setitem(nn.modules.module._global_forward_hooks, 0, hook),
    "the class of a submodule": lambda layer, _: setattr(layer.activation, "__class__", nn.Sigmoid),
    "a method of the class": lambda layer, patch: patch.setattr(type(layer), "message", new_message),
    "a method of the instance": lambda layer, _: setattr(layer, "message", types.MethodType(new_message, layer)),
    "a method of PyG": lambda _, patch: patch.setattr(MessagePassing, "update", new_message),
    "an attribute of the class": lambda layer, patch: patch.setattr(type(layer), "gain", 2.5),
    "a variable of the surroundings": lambda layer, _: set_cell(layer),
    "a global number": lambda _, patch: patch.setitem(globals(), "SLOPE", 0.5),
    "an item of a global dictionary": lambda _, patch: patch.setitem(OPTIONS, "shift", 0.75),
    "a global function": lambda _, patch: patch.setitem(globals(), "doubled", other_code),
    "the code of a function": lambda _, patch: patch.setattr(doubled, "__code__", other_code.__code__),
    "a default of a keyword": lambda _, patch: patch.setitem(doubled.__kwdefaults__, "factor", 3.0),
    "a function of torch": lambda _, patch: patch.setattr(F, "leaky_relu", torch.nn.functional.elu),
    "the training flag": lambda layer, _: layer.eval(),
    "whether a parameter needs a gradient": lambda layer, _: layer.weight.requires_grad_(False),
    "what a parameter is made of": lambda layer, _: setattr(layer.weight, "data", torch.ones(1, dtype=torch.float64)),
}


NOT_CAPTURED = ("a parameter", "a parameter of a submodule", "a hook for all modules")
"""Changes that need no other capture."""


@pytest.mark.parametrize("change", CHANGES)
def test_changes_are_noticed(change: str, captured: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    layer, args = make(1.0), arguments()
    found = repeated(layer, args)
    assert len(captured) == 1
    CHANGES[change](layer, monkeypatch)
    mine, theirs = found(*args), layer(*args)
    torch.testing.assert_close(mine, theirs)
    assert len(captured) == (1 if change in NOT_CAPTURED else 2)
    assert mine.requires_grad == theirs.requires_grad


def test_a_hook_of_a_submodule_is_noticed(captured: list[int]) -> None:
    layer, args = make(1.0), arguments()
    found = repeated(layer, args)
    layer.linear.register_forward_hook(hook)
    torch.testing.assert_close(found(*args), layer(*args))
    assert len(captured) == 2


def test_numbers_of_parameters_are_those_of_the_moment(captured: list[int]) -> None:
    layer, args = make(1.0), arguments()
    found = repeated(layer, args)
    before = found(*args)
    with torch.no_grad():
        layer.weight.mul_(2.0)
        layer.linear.weight.data = layer.linear.weight + 1.0
    after = found(*args)
    torch.testing.assert_close(after, layer(*args))
    assert not torch.equal(before, after)
    assert len(captured) == 1


def written(x: Tensor, index: Tensor) -> tuple[Any, ...]:
    index[0, 0] = (index[0, 0] + 1) % N
    return x, index


def noted(x: Tensor, index: Tensor) -> tuple[Any, ...]:
    vars(index)["note"] = 1
    return x, index


OTHERS: dict[str, tuple[Callable[[Tensor, Tensor], tuple[Any, ...]], int]] = {
    "more nodes": (lambda x, index: (torch.cat([x, x]), index), 0),
    "edges with an attribute": (noted, 0),
    "a number": (lambda x, index: (x, index, 2.0), 1),
    "an integer": (lambda x, index: (x, index, 1), 1),
    "features with gradient": (lambda x, index: (x.clone().requires_grad_(), index), 1),
    "a parameter": (lambda x, index: (nn.Parameter(x), index), 1),
    "another graph": (lambda x, index: (x, index.flip(1).clone()), 0),
    "edges written to": (written, 0),
    "columns": (lambda x, index: (x.t().contiguous().t(), index), 1),
    "edges that have gaps": (lambda x, index: (x, index.repeat_interleave(2, 1)[:, ::2]), 1),
}
"""Other arguments, and how many captures they need."""


@pytest.mark.parametrize("other", OTHERS)
def test_other_arguments(other: str, captured: list[int]) -> None:
    layer, args = make(1.0), arguments()
    found = repeated(layer, args)
    change, more = OTHERS[other]
    args = change(*args)
    torch.testing.assert_close(found(*args), layer(*args))
    assert len(captured) == 1 + more


def test_a_parameter_that_was_the_features(captured: list[int]) -> None:
    layer, (x, index) = make(1.0), arguments()
    own, index = layer.linear.weight, index % K
    found = repeated(layer, (own, index))
    other = nn.Parameter(x[:K].clone())
    torch.testing.assert_close(found(other, index), layer(other, index))
    torch.testing.assert_close(found(own, index), layer(own, index))
    assert len(captured) == 2


def test_modes_of_torch_are_noticed(captured: list[int]) -> None:
    layer, args = make(1.0), arguments()
    found = repeated(layer, args)
    with torch.no_grad():
        assert not found(*args).requires_grad
    with torch.inference_mode():
        assert found(*args).is_inference()
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    found(*args)
    torch.set_default_dtype(default)
    with torch.device("cpu"):
        found(*args)
    assert len(captured) == 5
    low = args[0].float()
    found.float().eval()
    for _ in range(3):
        found(low, args[1])
    with torch.autocast("cpu"):  # the original's result is in bfloat16
        for _ in range(3):
            torch.testing.assert_close(found(low, args[1]), layer(low, args[1]), rtol=0.02, atol=0.05)


def test_parameters_of_another_type(captured: list[int]) -> None:
    layer, (x, index) = make(1.0), arguments()
    found = repeated(layer, (x, index))
    found.float()
    assert found(x.float(), index).dtype == torch.float32
    assert len(captured) == 2


def test_dictionaries_that_have_been_larger_are_the_same(captured: list[int]) -> None:
    layer, args = make(1.0), arguments()
    found = repeated(layer, args)
    for table in (vars(layer), OPTIONS, layer.linear._parameters):
        names = [f"name {i}" for i in range(500)]
        table.update(dict.fromkeys(names))
        for name in names:
            del table[name]
        torch.testing.assert_close(found(*args), layer(*args))
    assert len(captured) == 1


def test_attributes_that_no_code_mentions_may_be_anything(captured: list[int]) -> None:
    layer = make(1.0)
    layer.notes = Counter()
    repeated(layer, arguments())
    assert len(captured) == 1


def test_what_was_replaced_is_not_kept() -> None:
    layer, (x, index) = make(1.0), arguments()
    found = repeated(layer, (x, index))
    old = [weakref.ref(t) for t in (layer.weight, x, index)]
    layer.weight = nn.Parameter(layer.weight.detach() + 1)
    x, index = arguments()
    for _ in range(3):
        found(x, index)
    gc.collect()  # of what was captured
    assert [r() for r in old] == [None] * 3


def test_graphs_in_turn(captured: list[int]) -> None:
    layer, (x, index) = make(1.0), arguments()
    other = index.flip(0).clone()
    found = compiled(layer)
    for edges in (index, index, other, other, index, other, index, other):
        torch.testing.assert_close(found(x, edges), layer(x, edges))
    assert len(captured) == 1
