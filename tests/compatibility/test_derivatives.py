"""Derivatives of every order and kind are those of the original, for every kind of layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

import dacergnn
from dacergnn import Config
from dacergnn.errors import UnsupportedCallError
from tests.compatibility.comparing import every_kind
from tests.compatibility.kinds import KINDS, Kind, named, outputs

pyg = pytest.importorskip("torch_geometric.nn")
Function = Callable[..., Tensor]
PLAIN = Config(level="O0")
"""Transforms nest programs of gradients, for which passes search for many seconds; they do not depend on the passes."""


TRANSFORMED = [k for k in KINDS if k.name not in ("dgl.traced-DotGatConv", "compile-DGL-forward")]
"""Kinds that know transforms: those without the operators of DGL itself, which run within a transform."""
every_transformed = pytest.mark.parametrize("kind", TRANSFORMED, ids=named)
SEARCHED = ("pyg.RGCNConv", "pyg.GATConv", "pyg.EdgeConv", "dgl.SAGEConv")
"""Kinds whose second derivatives are of programs after all passes."""


def _of_features(kind: Kind, module: nn.Module) -> Function:
    """The numbers in a layer's results, as a function of its features."""

    def function(*features: Tensor) -> Tensor:
        parts = outputs(module(*kind.call(*features)))
        return torch.cat([part.flatten() for part in parts])

    return function


def _squares(kind: Kind, module: nn.Module) -> Function:
    """The sum of weighted squares of these."""
    function = _of_features(kind, module)

    def total(*features: Tensor) -> Tensor:
        found = function(*features)
        return (found.square() * torch.linspace(0.5, 1.5, len(found), dtype=found.dtype)).sum()

    return total


def _vanishes(gradient: Tensor | None) -> bool:
    return gradient is None or bool((gradient.abs() < 1e-12).all())


def _close(found: Any, expected: Any) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-9)


@every_kind
def test_second_derivatives(kind: Kind) -> None:
    """By features and by parameters, against differences of first derivatives."""
    module = kind.compiled(config=None if kind.name in SEARCHED else PLAIN)
    leaves = [*kind.features(), *[p.detach() for p in module.parameters()]]
    names = [name for name, _ in module.named_parameters()]

    def function(together: Tensor) -> Tensor:
        split = together.split([x.numel() for x in leaves])
        parts = [part.view(x.shape) for part, x in zip(split, leaves, strict=True)]
        features, parameters = parts[: -len(names)], dict(zip(names, parts[-len(names) :], strict=True))
        found = outputs(torch.func.functional_call(module, parameters, kind.call(*features)))
        return torch.cat([part.flatten() for part in found])

    together = torch.cat([x.flatten() for x in leaves]).requires_grad_()
    assert torch.autograd.gradgradcheck(function, together, fast_mode=True, atol=1e-6)


@pytest.mark.parametrize("kind", [k for k in KINDS if k.name.startswith("pyg")], ids=named)
def test_penalty_of_a_gradient(kind: Kind) -> None:
    """As in a training step with a gradient penalty: parameters get the gradients of the original.

    DGL's attention is no measure here: its own second derivatives differ from differences of first ones.
    """
    found: list[list[Tensor | None]] = []
    for module in kind.pair(config=None if kind.name in SEARCHED else PLAIN):
        features = [x.requires_grad_() for x in kind.features()]
        first = torch.autograd.grad(_squares(kind, module)(*features), features, create_graph=True)
        torch.stack([g.square().sum() for g in first]).sum().backward()
        found.append([x.grad for x in features] + [p.grad for p in module.parameters()])
    for a, b in zip(*found, strict=True):
        assert _vanishes(a) == _vanishes(b)
        if a is not None and b is not None:
            _close(b, a)


BY_TYPE = [k for k in KINDS if not k.own and len(outputs(k.original()(*k.arguments()))) > 1]


@pytest.mark.parametrize("kind", BY_TYPE, ids=named)
def test_penalty_of_a_gradient_beside_another_result(kind: Kind) -> None:
    """Parameters that lead to the one result only, and by its gradient to the loss, have a gradient."""
    for one, other in ((0, 1), (1, 0)):
        found: list[list[Tensor | None]] = []
        for module in kind.pair(config=PLAIN):
            features = [x.requires_grad_() for x in kind.features()]
            results = outputs(module(*kind.call(*features)))
            first: Any = torch.autograd.grad(results[one].sum(), features, create_graph=True, allow_unused=True)
            results[other].square().sum().backward(retain_graph=True)
            (sum(g.square().sum() for g in first if g is not None) + results[other].sum()).backward()
            found.append([p.grad for p in module.parameters()])
        for expected, own in zip(*found, strict=True):
            assert _vanishes(expected) == _vanishes(own)
            if expected is not None and own is not None:
                _close(own, expected)


@every_transformed
def test_tangents(kind: Kind) -> None:
    """Forward mode gives the products of the Jacobian, which the backward knows as well."""
    module = kind.compiled(config=PLAIN)
    function, features = _of_features(kind, module), kind.features()
    tangents = [torch.linspace(-1, 1, x.numel(), dtype=x.dtype).view(x.shape) for x in features]
    with forward_ad.dual_level():
        duals = [forward_ad.make_dual(x, t) for x, t in zip(features, tangents, strict=True)]
        found = forward_ad.unpack_dual(function(*duals)).tangent
    _, expected = torch.autograd.functional.jvp(function, features, tuple(tangents))
    _close(found, expected)


HESSIANS = ("pyg.GCNConv", "pyg.GATConv", "pyg.HeteroConv-SAGEConv", "pyg.traced-UserLayer", "dgl.EdgeConv", "own.RGCN")
"""Kinds whose Hessian is compared, which takes a backward of a backward for each feature."""


@every_transformed
def test_functional_transforms(kind: Kind) -> None:
    """`torch.func` gives what autograd gives without it."""
    module = kind.compiled(config=PLAIN)
    total, function, features = _squares(kind, module), _of_features(kind, module), kind.features()
    x, others = features[0], features[1:]
    _close(torch.func.grad(total)(*features), torch.autograd.functional.jacobian(total, features)[0])
    jacobian: Any = torch.autograd.functional.jacobian(lambda x: function(x, *others), x)
    _close(torch.func.jacrev(function)(*features), jacobian)
    _close(torch.func.jacfwd(function)(*features), jacobian)
    _close(torch.autograd.functional.jacobian(lambda x: function(x, *others), x, vectorize=True), jacobian)
    if kind.name not in HESSIANS:
        return
    hessian = torch.autograd.functional.hessian(lambda x: total(x, *others), x)
    _close(torch.func.hessian(total)(*features), hessian)


@every_transformed
def test_batches_of_calls(kind: Kind) -> None:
    """`torch.func.vmap` over features gives the results of one call after the other."""
    module = kind.compiled(config=PLAIN)
    function, features = _of_features(kind, module), kind.features()
    batch = [torch.stack([x, -x, 2 * x]).requires_grad_() for x in features]
    expected = torch.stack([function(*[x[i] for x in batch]) for i in range(3)])
    _close(torch.func.vmap(function)(*batch), expected)


@every_transformed
def test_gradients_over_batches_of_calls(kind: Kind) -> None:
    """A backward, `torch.func.grad` and the function that `torch.func.vjp` returns, around `torch.func.vmap`."""
    module = kind.compiled(config=PLAIN)
    total, features = _squares(kind, module), kind.features()
    batch = [torch.stack([x, -x]).requires_grad_() for x in features]
    by_batches: list[Any] = [
        torch.autograd.grad(results.sum(), [*batch, *module.parameters()], allow_unused=True)
        for results in (
            torch.func.vmap(total)(*batch),
            torch.stack([total(*[x[i] for x in batch]) for i in range(2)]),
        )
    ]
    found, expected = by_batches
    for a, b in zip(found, expected, strict=True):
        assert _vanishes(a) == _vanishes(b)
        if a is not None and b is not None:
            _close(a, b)
    plain = [x.detach() for x in batch]
    (by_first,) = torch.func.grad(lambda *xs: torch.func.vmap(total)(*xs).sum(), (0,))(*plain)
    _close(by_first, torch.zeros_like(plain[0]) if expected[0] is None else expected[0])
    result, pull, *_ = torch.func.vjp(lambda *xs: torch.func.vmap(total)(*xs), *plain)
    _close(pull(torch.ones_like(result))[0], by_first)


PARAMETRIC = [k for k in KINDS if k.name in ("pyg.SAGEConv", "pyg.GATConv", "pyg.traced-UserLayer")]


@pytest.mark.parametrize("kind", PARAMETRIC, ids=named)
def test_ensembles_of_parameters(kind: Kind) -> None:
    found: list[dict[str, Tensor | None]] = []
    arguments = kind.arguments()
    for module in kind.pair(config=PLAIN):
        stacks = {n: torch.stack([p.detach(), 2 * p.detach()]).requires_grad_() for n, p in module.named_parameters()}

        def call(parameters: dict[str, Tensor], module: nn.Module = module) -> Tensor:
            return outputs(torch.func.functional_call(module, parameters, arguments))[0]

        torch.func.vmap(call)(stacks).square().sum().backward()
        found.append({name: stack.grad for name, stack in stacks.items()})
    _close(*found[::-1])


@pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node")
@pytest.mark.parametrize("kind", PARAMETRIC, ids=named)
def test_linear_functions_of_tangents(kind: Kind) -> None:
    """`torch.func.linearize` records torch's operations, which a compiled layer runs for it."""
    functions = [_of_features(kind, module) for module in kind.pair(config=PLAIN)]
    linear = [torch.func.linearize(function, *kind.features())[1] for function in functions]
    for factor in (1.0, -0.5):
        _close(*[function(*[factor * x for x in kind.features()]) for function in linear[::-1]])


def test_edges_that_are_made_within_a_transform() -> None:
    edges = torch.tensor([[0, 1, 2, 2, 3], [1, 2, 0, 3, 3]])
    original = pyg.SAGEConv(5, 4).double()
    compiled, x = dacergnn.optimize(original, on_unsupported="error"), torch.randn(2, 4, 5, dtype=torch.float64)
    found, expected = (
        torch.func.grad(lambda x, m=m: m(x, edges.flip(0)).square().sum())(x[0]) for m in (compiled, original)
    )
    _close(found, expected)
    with pytest.raises(UnsupportedCallError, match="items of the batch of a vmap have edges or types of their own"):
        torch.func.vmap(compiled)(x, torch.stack([edges, edges.flip(0)]))
