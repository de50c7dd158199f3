"""Methods that users replace: on a layer, in its class or in a base, before the layer is optimized or afterwards."""

from __future__ import annotations

import copy
import functools
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import dacergnn

pyg = pytest.importorskip("torch_geometric.nn")
dglnn = pytest.importorskip("dgl").nn
N, F, R = 12, 5, 3
EDGES = torch.randint(N, (2, 40), generator=torch.Generator().manual_seed(0))
TYPES = torch.randint(R, (40,), generator=torch.Generator().manual_seed(1))


class Traced(pyg.MessagePassing):
    def __init__(self) -> None:
        super().__init__(aggr="mean")
        self.lin = nn.Linear(F, 4)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=self.prepared(x))

    def prepared(self, x: Tensor) -> Tensor:
        return self.lin(x)

    def message(self, x_j: Tensor) -> Tensor:
        return x_j


class Derived(pyg.GCNConv):
    """A class of users that changes nothing."""


def _graph() -> Any:
    dgl = pytest.importorskip("dgl")
    return dgl.add_self_loop(dgl.graph((EDGES[0], EDGES[1]), num_nodes=N))


LAYERS: dict[str, tuple[Callable[[], Any], Callable[[Tensor], tuple[Any, ...]]]] = {
    "SAGEConv": (lambda: pyg.SAGEConv(F, 4), lambda x: (x, EDGES)),
    "GATConv": (lambda: pyg.GATConv(F, 4), lambda x: (x, EDGES)),
    "RGCNConv": (lambda: pyg.RGCNConv(F, 4, R), lambda x: (x, EDGES, TYPES)),
    "Derived": (lambda: Derived(F, 4), lambda x: (x, EDGES)),
    "Traced": (Traced, lambda x: (x, EDGES)),
    "GraphConv of DGL": (lambda: dglnn.GraphConv(F, 4), lambda x: (_graph(), x)),
}
METHODS = {
    "SAGEConv": ("forward", "propagate", "message", "aggregate", "update"),
    "GATConv": ("forward", "propagate", "message", "edge_update", "update"),
    "RGCNConv": ("forward", "propagate", "message", "aggregate"),
    "Derived": ("forward", "propagate", "message"),
    "Traced": ("forward", "propagate", "message", "aggregate", "prepared"),
    "GraphConv of DGL": ("forward",),
}
CASES = [(layer, method) for layer, methods in METHODS.items() for method in methods]


def _scaled(result: Any) -> Any:
    return {k: 3 * v for k, v in result.items()} if isinstance(result, dict) else 3 * result


def _on_the_layer(layer: Any, method: str) -> None:
    inner = getattr(layer, method)
    setattr(layer, method, functools.wraps(inner)(lambda *args, **kwargs: _scaled(inner(*args, **kwargs))))


def _in(cls: Any, method: str, patch: pytest.MonkeyPatch) -> None:
    """Replaces a method of a class; `functools.wraps` leaves it the name and the module of the library."""
    inner = getattr(cls, method)
    patch.setattr(cls, method, functools.wraps(inner)(lambda *args, **kwargs: _scaled(inner(*args, **kwargs))))


def _home(cls: type, method: str) -> type:
    """Returns the class that defines a method, for its own or for a derived one."""
    return next(c for c in cls.__mro__ if method in vars(c))


def _compare(original: Any, fast: Any, layer: str) -> None:
    found: list[Any] = []
    for module in (original, fast):
        x = torch.randn(N, F, dtype=torch.float64, generator=torch.Generator().manual_seed(2)).requires_grad_()
        out = module(*LAYERS[layer][1](x))
        found.append((out, torch.autograd.grad(out.square().sum(), [x, *module.parameters()], allow_unused=True)))
    torch.testing.assert_close(*found)


@pytest.mark.filterwarnings("ignore:.* runs uncompiled", "ignore:optimize found nothing to replace")
@pytest.mark.parametrize(("layer", "method"), CASES)
def test_methods_of_the_layer(layer: str, method: str) -> None:
    torch.manual_seed(0)
    original = LAYERS[layer][0]().double()
    before, after = copy.deepcopy(original), dacergnn.optimize(copy.deepcopy(original))
    _on_the_layer(before, method)
    before = dacergnn.optimize(before)
    _compare(original, after, layer)
    _on_the_layer(after, method)
    _on_the_layer(original, method)
    for _ in range(2):
        _compare(original, before, layer)
        _compare(original, after, layer)


@pytest.mark.filterwarnings("ignore:.* runs uncompiled", "ignore:optimize found nothing to replace")
@pytest.mark.parametrize(("layer", "method"), CASES)
def test_methods_of_the_class(layer: str, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    original = LAYERS[layer][0]().double()
    before = dacergnn.optimize(copy.deepcopy(original))
    _compare(original, before, layer)
    _in(_home(type(original), method), method, monkeypatch)
    for fast in (before, dacergnn.optimize(copy.deepcopy(original))):
        _compare(original, fast, layer)
    monkeypatch.undo()
    _compare(original, before, layer)


@pytest.mark.parametrize("layer", ["SAGEConv", "GATConv", "RGCNConv", "Derived"])
def test_untouched_layers_have_front_ends(layer: str) -> None:
    assert dacergnn.optimize(LAYERS[layer][0]())._dacergnn.frontend is not None


PARTS = {
    "SAGEConv": "lin_l", "GATConv": "lin", "Derived": "lin", "Traced": "lin", "HGTConv": "kqv_lin", "EdgeConv": "nn.0",
}  # fmt: skip
MORE: dict[str, Callable[[], Any]] = {
    "HGTConv": lambda: pyg.HGTConv(F, 4, (["a"], [("a", "r", "a")])),
    "EdgeConv": lambda: pyg.EdgeConv(nn.Sequential(nn.Linear(2 * F, 4), nn.ReLU())),
}


def _called(layer: str) -> tuple[Any, Any, Any]:
    """A layer, its compiled copy, and the arguments of the call that both have had."""
    torch.manual_seed(0)
    original = (LAYERS[layer][0] if layer in LAYERS else MORE[layer])().double()
    fast = dacergnn.optimize(copy.deepcopy(original))
    x = torch.randn(N, F, dtype=torch.float64)
    args = ({"a": x}, {("a", "r", "a"): EDGES}) if layer == "HGTConv" else (x, EDGES)
    torch.testing.assert_close(fast(*args), original(*args))
    return original, fast, args


@pytest.mark.filterwarnings("ignore:.* runs uncompiled")
@pytest.mark.parametrize("layer", PARTS)
def test_forwards_of_parts(layer: str) -> None:
    """Profilers and quantizers set them, on the layer's Linear for example."""
    original, fast, args = _called(layer)
    for module in (fast, original):
        _on_the_layer(module.get_submodule(PARTS[layer]), "forward")
    torch.testing.assert_close(fast(*args), original(*args))


@pytest.mark.filterwarnings("ignore:.* runs uncompiled")
@pytest.mark.parametrize("layer", ["SAGEConv", "GATConv", "HGTConv", "EdgeConv"])
def test_forwards_of_classes_of_parts(layer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    original, fast, args = _called(layer)
    _in(type(original.get_submodule(PARTS[layer])), "forward", monkeypatch)
    torch.testing.assert_close(fast(*args), original(*args))
    monkeypatch.undo()
    torch.testing.assert_close(fast(*args), original(*args))


class CallableObject:
    """Calls a function."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


HELPERS = {"SAGEConv": "spmm", "GATConv": "softmax", "Derived": "gcn_norm", "GraphConv of DGL": "expand_as_pair"}


@pytest.mark.filterwarnings("ignore:.* runs uncompiled", "ignore:optimize found nothing to replace")
@pytest.mark.parametrize(
    "form", [lambda f: f, functools.partial, CallableObject], ids=["function", "partial", "object"]
)
@pytest.mark.parametrize("layer", HELPERS)
def test_functions_of_the_library(layer: str, form: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions that methods find in their module, replaced there before the layer is optimized or afterwards."""
    torch.manual_seed(0)
    original = LAYERS[layer][0]().double()
    before = dacergnn.optimize(copy.deepcopy(original))
    _compare(original, before, layer)
    home = sys.modules[next(c for c in type(original).__mro__ if not c.__module__.startswith("tests")).__module__]
    inner = getattr(home, HELPERS[layer])

    def replaced(*args: Any, **kwargs: Any) -> Any:
        result = inner(*args, **kwargs)
        return (result[0], 3 * result[1]) if isinstance(result, tuple) else 3 * result

    monkeypatch.setattr(home, HELPERS[layer], form(replaced))
    for fast in (before, dacergnn.optimize(copy.deepcopy(original))):
        _compare(original, fast, layer)
    monkeypatch.undo()
    _compare(original, before, layer)


@pytest.mark.filterwarnings("ignore:.* runs uncompiled")
def test_a_function_of_torch_in_place_of_the_librarys(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's softmax over the features of an edge is no softmax over the edges of a node."""
    torch.manual_seed(0)
    original = pyg.GATConv(F, 4, heads=3, add_self_loops=False).double()
    fast = dacergnn.optimize(copy.deepcopy(original))
    x = torch.randn(N, F, dtype=torch.float64)
    torch.testing.assert_close(fast(x, EDGES), original(x, EDGES))
    home = sys.modules[pyg.GATConv.__module__]
    monkeypatch.setattr(home, "softmax", nn.functional.softmax)
    with pytest.raises(TypeError) as expected:
        original(x, EDGES)
    with pytest.raises(TypeError) as found:
        fast(x, EDGES)
    assert str(found.value) == str(expected.value)
