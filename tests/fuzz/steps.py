"""What users do to a module between two calls of it; each step does the same to the original and the compiled one."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, prune
from torch_geometric.explain.algorithm.utils import clear_masks, set_masks

import dacergnn
from dacergnn.modules import CompiledLayer
from tests.fuzz.graphs import WAYS, GraphCase
from tests.fuzz.world import Side, World, gradients, loss_of, tensors_of

Step = Callable[[World, int], None]
STEPS: dict[str, Step] = {}
"""By name; a step takes a number that chooses among its variants."""
OTHERS = (
    GraphCase(3, ((0, 1), (1, 2), (2, 0))),
    GraphCase(5, ((0, 1), (0, 1), (2, 2), (3, 1))),
    GraphCase(3, ()),
    GraphCase(1, ((0, 0),)),
)
"""Graphs that sequences go over to."""


def step(function: Step) -> Step:
    """Enter a step into the table."""
    STEPS[function.__name__] = function
    return function


# Calls ---------------------------------------------------------------------------------------------------------------


@step
def call(world: World, _: int) -> None:
    world.both(world.call)


@step
def call_with_other_features(world: World, choice: int) -> None:
    world.features = choice
    world.both(world.call)


@step
def call_without_gradients(world: World, choice: int) -> None:
    def run(side: Side) -> Any:
        with (torch.no_grad, torch.inference_mode)[choice % 2]():
            args, kwargs, _ = world.arguments()
            return tensors_of(side.module(*args, **kwargs))

    world.both(run)


@step
def two_backwards(world: World, choice: int) -> None:
    """Of two calls, or of one: gradients add up, and are clipped."""

    def run(side: Side) -> Any:
        side.module.zero_grad(set_to_none=True)
        if choice % 2:
            for _ in range(2):
                world.accumulate(side, side.module)
        else:
            args, kwargs, _ = world.arguments()
            with torch.set_grad_enabled(world.trains):
                loss = loss_of(tensors_of(side.module(*args, **kwargs)))
            if loss.requires_grad:
                loss.backward(retain_graph=True)
                loss.backward()
        norm = nn.utils.clip_grad_norm_(side.module.parameters(), 0.1)
        return norm, gradients(side.module)

    world.both(run)


@step
def second_derivative(world: World, _: int) -> None:
    """The gradients of a penalty of gradients; where there is no dependence, None is as good as zero."""

    def run(side: Side) -> Any:
        args, kwargs, leaves = world.arguments()
        leaves = [*leaves, *[p for p in side.module.parameters() if p.requires_grad]]
        loss = loss_of(tensors_of(side.module(*args, **kwargs)))
        if not loss.requires_grad:
            return None
        first = torch.autograd.grad(loss, leaves, create_graph=True, allow_unused=True)
        penalty = sum(g.square().sum() for g in first if g is not None and g.requires_grad)
        if not isinstance(penalty, Tensor):
            return None
        second = torch.autograd.grad(penalty, leaves, allow_unused=True)
        return [torch.zeros_like(x) if g is None else g for g, x in zip(second, leaves, strict=True)]

    if world.layer.second and world.trains:
        world.both(run)


@step
def functional_call(world: World, _: int) -> None:
    def run(side: Side) -> Any:
        others = {n: (2 * p.detach()).requires_grad_() for n, p in side.module.named_parameters()}
        found = world.backward(side, lambda *a, **k: torch.func.functional_call(side.module, others, a, k))
        return found, [p.grad for p in others.values()]

    world.both(run)


# Options and parameters ----------------------------------------------------------------------------------------------


@step
def mode(world: World, choice: int) -> None:
    world.both(lambda side: side.module.train(bool(choice % 2)).training)


@step
def set_an_attribute(world: World, choice: int) -> None:
    """On the compiled layer, or on what it was made from; the value that it had at first may come back."""
    if not world.layer.attributes:
        return
    name, values = [*world.layer.attributes.items()][choice % len(world.layer.attributes)]
    value = values[(choice // 3) % len(values)]

    def run(side: Side) -> None:
        layer = isinstance(side.module, CompiledLayer)
        setattr(dacergnn.revert(side.module) if layer and choice % 2 else side.module, name, value)

    world.both(run)


def _place(module: nn.Module, choice: int) -> tuple[nn.Module, str]:
    """One of the parameters: the part that has it, and its name there."""
    names = [name for name, _ in module.named_parameters()]
    path, _, name = names[choice % len(names)].rpartition(".")
    return module.get_submodule(path), name


@step
def replace_a_parameter(world: World, choice: int) -> None:
    def run(side: Side) -> None:
        part, name = _place(side.module, choice)
        setattr(part, name, nn.Parameter(2 * getattr(part, name).detach()))

    world.both(run)


@step
def write_a_parameter(world: World, choice: int) -> None:
    def run(side: Side) -> None:
        part, name = _place(side.module, choice)
        with torch.no_grad():
            if choice % 2:
                getattr(part, name).mul_(-2)
            else:
                getattr(part, name).data = getattr(part, name).data + 1

    world.both(run)


@step
def drop_a_bias(world: World, choice: int) -> None:
    def run(side: Side) -> None:
        parts = [m for m in side.module.modules() if isinstance(m._parameters.get("bias"), nn.Parameter)]
        if parts:
            parts[choice % len(parts)].bias = None

    world.both(run)


@step
def freeze(world: World, choice: int) -> None:
    """A parameter or all of them, or thaw them."""

    def run(side: Side) -> None:
        if choice % 4 == 0:
            side.module.requires_grad_(False)
        elif choice % 4 == 1:
            side.module.requires_grad_(True)
        else:
            part, name = _place(side.module, choice)
            parameter = getattr(part, name)
            parameter.requires_grad_(not parameter.requires_grad)

    world.both(run)


@step
def reparametrize(world: World, choice: int) -> None:
    def run(side: Side) -> None:
        part, name = _place(side.module, choice)
        if choice % 3 == 0:
            parametrizations.weight_norm(part, name)
        elif choice % 3 == 1:
            prune.l1_unstructured(part, name, amount=0.5)
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FutureWarning)
                nn.utils.weight_norm(part, name)

    world.both(run)


# Hooks and masks -----------------------------------------------------------------------------------------------------


def _doubled(_: nn.Module, __: Any, output: Any) -> Any:
    return {k: 2 * v for k, v in output.items()} if isinstance(output, dict) else 2 * output


def _scaled(_: nn.Module, __: Any, output: Any) -> Any:
    return 3 * output


def _other_inputs(_: nn.Module, args: tuple[Any, ...]) -> Any:
    return tuple(2 * a if isinstance(a, Tensor) and a.is_floating_point() else a for a in args)


@step
def add_a_hook(world: World, choice: int) -> None:
    def run(side: Side) -> None:
        kind = choice % 3
        if kind == 0:
            side.handles.append(side.module.register_forward_hook(_doubled))
        elif kind == 1:
            side.handles.append(side.module.register_forward_pre_hook(_other_inputs))
        else:
            parts = [m for m in side.module.modules() if type(m) in (nn.Linear, nn.Tanh)]
            side.handles += [m.register_forward_hook(_scaled) for m in parts[choice % 2 :]]

    world.both(run)


@step
def add_a_message_hook(world: World, choice: int) -> None:
    function = ("message", "propagate", "aggregate", "message")[choice % 4]

    def run(side: Side) -> None:
        for part in side.module.modules():
            register = getattr(part, f"register_{function}_forward_hook", None)
            if register is not None:
                side.handles.append(register(_scaled))

    world.both(run)


@step
def remove_the_hooks(world: World, _: int) -> None:
    def run(side: Side) -> None:
        for handle in side.handles:
            handle.remove()
        side.handles.clear()

    world.both(run)


@step
def mask_the_edges(world: World, choice: int) -> None:
    """As explainers do, or end that."""
    if not world.layer.name.startswith("pyg") or world.form == "by type":
        return
    mask = torch.linspace(-2, 2, world.graph.edges, dtype=torch.float64)

    def run(side: Side) -> None:
        model = nn.ModuleList([side.module])
        if choice % 2:
            clear_masks(model)
        else:
            set_masks(model, mask, world.graph.index, apply_sigmoid=choice % 4 == 0)

    world.both(run)


# Graphs --------------------------------------------------------------------------------------------------------------


@step
def another_graph(world: World, choice: int) -> None:
    world.go_to(OTHERS[choice % len(OTHERS)])


@step
def write_the_edges(world: World, choice: int) -> None:
    if world.form.startswith("dgl"):
        return
    found = world.graph.tensors(world.form)
    world.graph.write(found[choice % len(found)], [*WAYS][(choice // 2) % len(WAYS)])


@step
def edit_the_graph(world: World, choice: int) -> None:
    """A graph of DGL, in place: with as many edges as before, with one less, or with one more."""
    if not world.form.startswith("dgl"):
        return
    graph = world.graph.dgl
    if choice % 3 < 2 and graph.num_edges():
        graph.remove_edges([choice % graph.num_edges()])
    if choice % 3 != 1:
        graph.add_edges(choice % world.graph.nodes, (choice + 1) % world.graph.nodes)


# Copies --------------------------------------------------------------------------------------------------------------


@step
def copy_it(world: World, choice: int) -> None:
    way = (copy.copy, copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m)))[choice % 3]
    world.both(lambda side: side.become(way(side.module)))


@step
def save_and_load(world: World, choice: int) -> None:
    def run(side: Side) -> Any:
        state = {name: 2 * t for name, t in side.module.state_dict().items()}
        return [*state], [*side.module.load_state_dict(state, assign=bool(choice % 2))]

    world.both(run)


@step
def revert(world: World, choice: int) -> None:
    """The compiled module, and perhaps optimize it again at once."""
    side = world.sides[1]
    side.become(dacergnn.revert(side.module))
    world.sides[0].handles = []
    if choice % 2 == 0:
        side.become(world.layer.compile(side.module, world.config))
