"""What torch, PyG and their users do to a module has the effect that it has on the original, in every kind of layer."""

from __future__ import annotations

import copy
import gc
import itertools
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, prune

import dacergnn
from tests.compatibility.kinds import KINDS, Kind, named, outputs

ORIGINALS = [k for k in KINDS if not k.own]
every_original = pytest.mark.parametrize("kind", ORIGINALS, ids=named)
every_kind = pytest.mark.parametrize("kind", KINDS, ids=named)
PYG = [k for k in ORIGINALS if k.name.startswith("pyg")]


def losses(kind: Kind, module: nn.Module, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """One number for each result of a call."""
    return [part.square().sum() for part in outputs(module(*kind.arguments(dtype)))]


def gradients(module: nn.Module) -> list[Tensor | None]:
    return [p.grad for p in module.parameters()]


def assert_same(found: Any, expected: Any, tolerance: float = 1e-9) -> None:
    found, expected = ([*v] if isinstance(v, (list, tuple)) else [v] for v in (found, expected))
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def assert_same_calls(kind: Kind, fast: nn.Module, original: nn.Module) -> None:
    assert_same(outputs(fast(*kind.arguments())), outputs(original(*kind.arguments())))


# Gradients ---------------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("kind", PYG, ids=named)
def test_flow_is_that_of_the_moment(kind: Kind) -> None:
    reference, fast = kind.pair()
    if not hasattr(reference, "flow"):
        pytest.skip("edges have no other direction here")
    fast(*kind.arguments())
    for module in (reference, fast):
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


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("change", [_weight_norm, _spectral_norm, _pruned, _replaced, _written])
@every_original
def test_parameters_are_attributes(kind: Kind, change: Callable[[nn.Module, str], None], when: str) -> None:
    reference, original = kind.original().eval(), kind.original().eval()
    path, _, name = _largest(reference).rpartition(".")
    change(reference.get_submodule(path), name)
    if when == "before":
        change(original.get_submodule(path), name)
        fast = dacergnn.optimize(original)
    else:
        fast = dacergnn.optimize(original)
        fast(*kind.arguments())
        change(fast.get_submodule(path), name)
    for _ in range(2):
        assert_same_calls(kind, fast, reference)
    for module in (reference, fast):
        torch.stack(losses(kind, module)).sum().backward()
    assert_same(gradients(fast), gradients(reference))


@every_original
def test_a_bias_may_go(kind: Kind) -> None:
    reference, fast = kind.pair()
    if getattr(reference, "bias", None) is None or not isinstance(reference.bias, nn.Parameter):
        pytest.skip("the layer has no bias of its own")
    fast(*kind.arguments())
    reference.bias = fast.bias = None
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


@every_original
def test_hooks_on_parts(kind: Kind) -> None:
    """A Linear inside of the layer, which a program would compute without calling it."""
    reference, fast = kind.original(), dacergnn.optimize(kind.original())
    path = next((n for n, m in reference.named_modules() if n and "Linear" in type(m).__name__), None)
    if path is None or "Hetero" in type(reference.get_submodule(path)).__name__:
        pytest.skip("the layer calls no Linear")
    fast(*kind.arguments())
    for module in (reference, fast):
        module.get_submodule(path).register_forward_hook(lambda _, __, output: 3 * output)
    with pytest.warns() if kind.name.startswith("dgl") and kind.name != "dgl.GINConv" else _nothing():
        found = outputs(fast(*kind.arguments()))
    assert_same(found, outputs(reference(*kind.arguments())))


class _nothing:
    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...


MESSAGE_HOOKS = ["propagate", "message", "aggregate"]


@pytest.mark.filterwarnings("ignore:.* runs uncompiled")
@pytest.mark.parametrize("function", MESSAGE_HOOKS)
@pytest.mark.parametrize("kind", PYG, ids=named)
def test_hooks_of_message_passing(kind: Kind, function: str) -> None:
    reference, fast = kind.pair()
    fast(*kind.arguments())
    for module in (reference, fast):
        for part in module.modules():
            if hasattr(part, f"register_{function}_forward_hook"):
                getattr(part, f"register_{function}_forward_hook")(lambda _, __, output: 3 * output)
    assert_same_calls(kind, fast, reference)


@pytest.mark.filterwarnings("ignore:.* runs uncompiled")
@pytest.mark.parametrize("kind", [k for k in PYG if "Hetero" not in k.name and "hetero" not in k.name], ids=named)
def test_edge_masks_of_explainers(kind: Kind) -> None:
    from torch_geometric.explain.algorithm.utils import clear_masks, set_masks

    reference, fast = kind.pair()
    arguments = kind.arguments()
    if isinstance(arguments[0], dict):
        pytest.skip("its edges are those of several relations")
    fast(*arguments)
    mask = torch.linspace(-2, 2, arguments[1].size(1), dtype=torch.float64)
    for module in (reference, fast):
        set_masks(nn.ModuleList([module]), mask, arguments[1])
    assert_same_calls(kind, fast, reference)
    for module in (reference, fast):
        clear_masks(nn.ModuleList([module]))
    assert_same_calls(kind, fast, reference)


# What a module is ----------------------------------------------------------------------------------------------------


@every_original
def test_instances_attributes_and_copies(kind: Kind) -> None:
    original = kind.original()
    fast = dacergnn.optimize(original)
    assert isinstance(fast, type(original)) or kind.name.startswith("pyg.to_hetero")
    assert [*fast.state_dict()] == [*original.state_dict()]
    assert "compiled" in repr(fast)
    expected = outputs(original(*kind.arguments()))
    for same in (copy.copy(fast), copy.deepcopy(fast), dacergnn.revert(fast), dacergnn.optimize(fast)):
        assert_same(outputs(same(*kind.arguments())), expected)
    if not kind.name.startswith("pyg.traced-User"):
        assert_same(outputs(pickle.loads(pickle.dumps(fast))(*kind.arguments())), expected)
    other = dacergnn.optimize(kind.original())
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    other.load_state_dict(fast.state_dict())
    assert_same(outputs(other(*kind.arguments())), expected)


@every_kind
def test_a_layer_goes_when_nobody_holds_it(kind: Kind) -> None:
    module = kind.compiled()
    torch.stack(losses(kind, module)).sum().backward()
    parameter = next(module.parameters())
    held = len(gc.get_referrers(parameter))
    assert held > 0
    gc.collect()
    gc.disable()
    try:
        import weakref

        reference = weakref.ref(module)
        del module, parameter
        assert reference() is None or kind.own
    finally:
        gc.enable()


@every_original
def test_train_and_eval_change_nothing_here(kind: Kind) -> None:
    original, fast = kind.pair()
    for mode in (True, False, True):
        for module in (original, fast):
            module.train(mode)
        assert fast.training is mode
        assert_same_calls(kind, fast, original)


# Ways to run ------------------------------------------------------------------------------------------------------


@every_original
def test_checkpoints(kind: Kind) -> None:
    from torch.utils.checkpoint import checkpoint

    original, fast = kind.pair()
    for module in (original, fast):
        for _ in range(2):
            features = [x.requires_grad_() for x in kind.features()]

            def total(*x: Tensor, module: nn.Module = module) -> Tensor:
                return torch.stack([p.square().sum() for p in outputs(module(*kind.call(*x)))]).sum()

            checkpoint(total, *features, use_reentrant=False).backward()
    assert_same(gradients(fast), gradients(original))


@every_kind
def test_inference_first_and_training_after(kind: Kind) -> None:
    module, other = kind.compiled(), kind.compiled()
    with torch.inference_mode():
        module(*kind.arguments())
    for trained in (module, other):
        torch.stack(losses(kind, trained)).sum().backward()
    assert_same(gradients(module), gradients(other))
