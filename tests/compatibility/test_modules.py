"""What torch, PyG and their users do to a module has the effect that it has on the original, in every kind of layer."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable
from itertools import cycle
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize, prune

import dacergnn
from dacergnn.modules import CompiledLayer
from tests.compatibility.comparing import (
    ORIGINALS,
    assert_same,
    assert_same_calls,
    every_kind,
    every_original,
    gradients,
    losses,
)
from tests.compatibility.kinds import KINDS, F, Kind, M, N, edges, named, outputs, pyg

PYG = [k for k in ORIGINALS if k.name.startswith("pyg")]


# Options and parameters ----------------------------------------------------------------------------------------------

OPTIONS: dict[str, tuple[str, object]] = {
    "pyg.RGCNConv": ("aggr", "add"),
    "pyg.RGATConv": ("negative_slope", 0.9),
    "pyg.GCNConv": ("normalize", False),
    "pyg.SAGEConv": ("normalize", True),
    "pyg.GATConv": ("negative_slope", 0.9),
    "pyg.GATv2Conv": ("negative_slope", 0.9),
    "pyg.traced-UserLayer": ("scale", -3.0),
    "dgl.GraphConv": ("_norm", "right"),
    "dgl.GATConv": ("activation", torch.tanh),
    "dgl.SAGEConv": ("activation", torch.tanh),
}


@pytest.mark.parametrize("where", ["compiled", "original"])
@pytest.mark.parametrize("kind", [k for k in ORIGINALS if k.name in OPTIONS], ids=named)
def test_options_count_at_every_call(kind: Kind, where: str) -> None:
    reference, original = kind.original(), kind.original()
    fast = dacergnn.optimize(original, on_unsupported="error")
    for _ in range(3):  # so that calls are repeated
        fast(*kind.arguments())
    name, value = OPTIONS[kind.name]
    before = getattr(reference, name)
    for new in (value, before):
        setattr(fast if where == "compiled" else original, name, new)
        setattr(reference, name, new)
        assert getattr(fast, name) == new
        for _ in range(3):
            assert_same_calls(kind, fast, reference)


@pytest.mark.parametrize("kind", [k for k in PYG if hasattr(k.original(), "flow")], ids=named)
def test_flow_is_that_of_the_moment(kind: Kind) -> None:
    pair: tuple[Any, Any] = kind.pair(strict=False)
    reference, fast = pair
    with torch.no_grad():
        fast(*kind.arguments())
        for module in pair:
            module.flow = "target_to_source"
        assert_same_calls(kind, fast, reference)


def _largest(module: nn.Module) -> str:
    """The largest matrix among the parameters that belong to the layer itself, or else to a part of it."""
    named_matrices = [(n, p) for n, p in module.named_parameters() if p.dim() > 1]
    return max(named_matrices, key=lambda pair: ("." not in pair[0], pair[1].numel()))[0]


def _weight_norm(part: nn.Module, name: str) -> None:
    parametrizations.weight_norm(part, name)


def _spectral_norm(part: nn.Module, name: str) -> None:
    torch.manual_seed(0)
    parametrizations.spectral_norm(part, name)


def _pruned(part: nn.Module, name: str) -> None:
    prune.l1_unstructured(part, name, amount=0.5)


def _replaced(part: nn.Module, name: str) -> None:
    setattr(part, name, nn.Parameter(2 * getattr(part, name).detach()))


def _written(part: nn.Module, name: str) -> None:
    with torch.no_grad():
        getattr(part, name).mul_(2)


CHANGES = [_weight_norm, _spectral_norm, _pruned, _replaced, _written]
CHANGED = [
    *((kind, change, "after") for kind in ORIGINALS for change in CHANGES),
    *((kind, change, "before") for kind, change in zip(ORIGINALS, cycle(CHANGES), strict=False)),
]


@pytest.mark.parametrize(("kind", "change", "when"), CHANGED, ids=lambda v: getattr(v, "name", None))
def test_parameters_are_attributes(kind: Kind, change: Callable[[nn.Module, str], None], when: str) -> None:
    reference, original = kind.original().eval(), kind.original().eval()
    path, _, name = _largest(reference).rpartition(".")
    change(reference.get_submodule(path), name)
    if when == "before":
        change(original.get_submodule(path), name)
        fast = dacergnn.optimize(original, on_unsupported="ignore")
    else:
        fast = dacergnn.optimize(original, on_unsupported="ignore")
        fast(*kind.arguments())
        change(fast.get_submodule(path), name)
    for _ in range(2):
        assert_same_calls(kind, fast, reference)
    for module in (reference, fast):
        torch.stack(losses(kind, module)).sum().backward()
    assert_same(gradients(fast), gradients(reference))


@every_original
def test_parametrizations_may_go(kind: Kind) -> None:
    reference, fast = kind.pair(strict=False)
    path, _, name = _largest(reference).rpartition(".")
    for module in (reference, fast):
        part = module.get_submodule(path)
        parametrize.register_parametrization(part, name, nn.Tanh())
        module(*kind.arguments())
        parametrize.remove_parametrizations(part, name)
    assert_same_calls(kind, fast, reference)


@pytest.mark.filterwarnings("ignore:.* runs uncompiled")
@every_original
def test_biases_may_go(kind: Kind) -> None:
    """Each by itself, of the layer and of its parts; DGL's GATConv cannot do without its own."""
    places = [name for name, _ in kind.original().named_parameters() if name.rpartition(".")[2] == "bias"]
    for place in places:
        path, _, name = place.rpartition(".")
        reference, fast = kind.original(), dacergnn.optimize(kind.original())
        fast(*kind.arguments())
        for module in (reference, fast):
            setattr(module.get_submodule(path), name, None)
        if (kind.name, place) == ("dgl.GATConv", "bias"):
            for module in (reference, fast):
                with pytest.raises(AttributeError):
                    module(*kind.arguments())
        else:
            assert_same_calls(kind, fast, reference)


# Hooks and masks -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["before", "after"])
@every_original
def test_hooks_of_torch(kind: Kind, when: str) -> None:
    def doubled(_: nn.Module, __: Any, output: Any) -> Any:
        return {k: 2 * v for k, v in output.items()} if isinstance(output, dict) else 2 * output

    reference, original = kind.original(), kind.original()
    if when == "before":
        original.register_forward_hook(doubled)
    fast = dacergnn.optimize(original, on_unsupported="error")
    fast(*kind.arguments())
    if when == "after":
        fast.register_forward_hook(doubled)
    reference.register_forward_hook(doubled)
    assert_same_calls(kind, fast, reference)


def _linear(module: nn.Module) -> str | None:
    """The path of a Linear inside of a layer."""
    return next((n for n, m in module.named_modules() if n and type(m).__name__ == "Linear"), None)


@pytest.mark.parametrize("kind", [k for k in ORIGINALS if _linear(k.original())], ids=named)
def test_hooks_on_parts(kind: Kind) -> None:
    """A program would compute a Linear inside of the layer without calling it."""
    reference, fast = kind.pair(strict=False)
    fast(*kind.arguments())
    seen: list[Any] = []

    def tripled(_: nn.Module, given: Any, output: Any) -> Any:
        seen.extend((*given, output.detach()))
        return 3 * output

    for module in (reference, fast):
        module.get_submodule(_linear(reference) or "").register_forward_hook(tripled)
    assert_same_calls(kind, fast, reference)
    assert all(isinstance(value, Tensor) for value in seen)


MESSAGE_HOOKS = ["propagate", "message", "aggregate"]


@pytest.mark.parametrize("function", MESSAGE_HOOKS)
@pytest.mark.parametrize("kind", PYG, ids=named)
def test_hooks_of_message_passing(kind: Kind, function: str) -> None:
    reference, fast = kind.pair(strict=False)
    fast(*kind.arguments())
    for module in (reference, fast):
        for part in module.modules():
            if hasattr(part, f"register_{function}_forward_hook"):
                getattr(part, f"register_{function}_forward_hook")(lambda _, __, output: 3 * output)
    assert_same_calls(kind, fast, reference)


@pytest.mark.filterwarnings("ignore:.* runs uncompiled")
def test_masks_of_pruning_are_left_alone_by_calls_that_turn_out_to_run_the_original() -> None:
    """A backward needs them as they were before the call."""
    original = pyg.GMMConv(F, M, 2, 2).double()
    fast: Any = dacergnn.optimize(original)
    arguments = torch.rand(N, F).double(), edges()[0], torch.rand(edges()[0].size(1), 2).double()
    prune.l1_unstructured(fast, "mu", amount=0.5)
    fast.register_message_forward_hook(lambda *_: None)
    fast(*arguments).sum().backward()
    assert fast.mu_orig.grad is not None


@pytest.mark.filterwarnings("ignore:.* runs uncompiled")
@pytest.mark.parametrize("function", MESSAGE_HOOKS)
def test_hooks_of_message_passing_are_given_the_layer(function: str) -> None:
    kind = next(k for k in KINDS if k.name == "pyg.traced-UserLayer")
    fast: Any = dacergnn.optimize(kind.original())
    given: list[object] = []
    seen: list[Tensor] = []
    getattr(fast, f"register_{function}_forward_hook")(lambda module, *_: given.append(module))
    getattr(fast, f"register_{function}_forward_pre_hook")(lambda module, *_: given.append(module))
    getattr(fast, f"register_{function}_forward_hook")(lambda _, __, output: seen.append(output.detach()))
    fast(*kind.arguments())
    assert len(given) >= 2
    assert all(module is fast for module in given)
    assert [type(value) for value in seen] == [Tensor]


@pytest.mark.parametrize("kind", [k for k in PYG if isinstance(k.arguments()[0], Tensor)], ids=named)
def test_edge_masks_of_explainers(kind: Kind) -> None:
    from torch_geometric.explain.algorithm.utils import clear_masks, set_masks

    reference, fast = kind.pair(strict=False)
    arguments = kind.arguments()
    fast(*arguments)
    mask = nn.Parameter(torch.linspace(-2, 2, arguments[1].size(1), dtype=torch.float64))
    for module in (reference, fast):
        set_masks(nn.ModuleList([module]), mask, arguments[1])
    assert_same_calls(kind, fast, reference)
    if "RGCN" not in kind.name and kind.name != "pyg.HGTConv":  # which PyG cannot explain
        found, expected = (torch.autograd.grad(torch.stack(losses(kind, m)).sum(), mask)[0] for m in (fast, reference))
        assert_same(found, expected)
        assert fast.refusal is None
    assert_same_calls(kind, copy.deepcopy(fast), reference)  # whose attributes lead back to the layer
    for module in (reference, fast):
        clear_masks(nn.ModuleList([module]))
    assert_same_calls(kind, fast, reference)


# What a module is ----------------------------------------------------------------------------------------------------


@every_original
def test_a_layer_goes_when_nobody_holds_it(kind: Kind) -> None:
    """As early as the original does: no cycle of references keeps it until memory is collected."""
    alive: list[bool] = []
    for module in (kind.original(), kind.compiled()):
        torch.stack(losses(kind, module)).sum().backward()
        gc.disable()
        try:
            references = [weakref.ref(module), *map(weakref.ref, module.parameters())]
            del module
            alive.append(any(reference() is not None for reference in references))
        finally:
            gc.enable()
    assert alive[1] <= alive[0]


@every_original
def test_train_and_eval_change_nothing_here(kind: Kind) -> None:
    reference, original = kind.original(), kind.original()
    fast = dacergnn.optimize(original, on_unsupported="error")
    for mode in (True, False, True):
        for module in (reference, fast):
            module.train(mode)
        assert {part.training for part in fast.modules()} == {mode}
        assert original.training is mode or not isinstance(fast, CompiledLayer)
        assert_same_calls(kind, fast, reference)
    assert not dacergnn.optimize(original.eval()).training


# Ways to run ------------------------------------------------------------------------------------------------------


@every_original
def test_checkpoints(kind: Kind) -> None:
    from torch.utils.checkpoint import checkpoint

    original, fast = kind.pair()
    for module in (original, fast):
        for _ in range(2):

            def total(*x: Tensor, module: nn.Module = module) -> Tensor:
                return torch.stack([p.square().sum() for p in outputs(module(*kind.call(*x)))]).sum()

            checkpoint(total, *kind.features(), use_reentrant=False).backward()
    assert_same(gradients(fast), gradients(original))


def encoded(module: nn.Module) -> list[int]:
    """Returns how many graphs each compiled layer of a module has encoded."""
    return [part.graphs.encoded for part in module.modules() if isinstance(part, CompiledLayer)]


@every_kind
def test_inference_first_and_training_after(kind: Kind) -> None:
    module, other = kind.compiled(), kind.compiled()
    with torch.inference_mode():
        module(*kind.arguments())
    for trained in (module, other):
        torch.stack(losses(kind, trained)).sum().backward()
    assert_same(gradients(module), gradients(other))
    assert encoded(module) == encoded(other)
