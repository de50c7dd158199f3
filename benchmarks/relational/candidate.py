"""Defines what the benchmark measures: named ways to compute one layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.named import Named
from benchmarks.relational.parameters import Parameters, Slot
from benchmarks.relational.problem import IGNORED, Problem
from dacergnn.config import Config

Wrap = Callable[[Any], Any]
"""Turns a layer into the one that runs: the layer itself, or the layer through torch.compile or our own optimize."""


def unwrapped(layer: Any) -> Any:
    """Returns the layer as the library has it."""
    return layer


@dataclass(frozen=True)
class Built:
    """Holds a layer that is ready to run on one problem."""

    forward: Callable[[], Any]
    """Returns [N, hidden], or a dict of [N_t, hidden] by node type name 't<i>'."""
    inputs: tuple[Tensor, ...]
    """Feature leaves: one [N, hidden], or one [N_t, hidden] for each node type."""
    leaves: tuple[Tensor, ...]
    """All tensors that receive gradients, inputs included."""
    slots: tuple[Slot, ...] = ()
    """Places of the shared parameters in the layer; none where the layer computes another function."""
    layer: Any = None
    """The module that runs, where it is known."""


Builder = Callable[[Problem, Parameters, Wrap], Built]


def edge_memory(problem: Problem, train: bool) -> int:
    """Estimates the bytes of a candidate whose working set is a few tensors with one row per edge."""
    return problem.num_edges * problem.hidden * 4 * (8 if train else 4)


def hetero_memory(problem: Problem, train: bool) -> int:
    """Estimates the bytes where every relation has rows for all nodes of its two types."""
    rows = sum(problem.ntype_sizes[s] + problem.ntype_sizes[d] for s, d in problem.relations)
    return (rows + problem.num_edges) * problem.hidden * 4 * (4 if train else 2)


@dataclass(frozen=True)
class Candidate:
    """Describes one way to compute a model's layer.

    `library` is "pyg", "dgl", "torch" or "ours". `function` names the reference function that it computes,
    or is "" where it computes another function of comparable cost.
    """

    name: str
    library: str
    model: str
    build: Builder
    function: str
    memory: Callable[[Problem, bool], int] = field(default=edge_memory, repr=False)
    """Estimate of the peak in bytes, for (problem, training)."""
    config: Config | None = None
    """Says what ours is compiled by."""

    @property
    def named(self) -> Named:
        """Returns what other processes know a candidate by."""
        return Named(self.library, self.name, self.config)


def leaf(x: Tensor) -> Tensor:
    """Returns a copy of x that collects gradients."""
    return x.detach().clone().requires_grad_()


def typed_leaves(problem: Problem) -> dict[str, Tensor]:
    """Returns the features as one leaf for each node type."""
    return {f"t{i}": leaf(part) for i, part in enumerate(problem.x.split(list(problem.ntype_sizes)))}


def finish(
    forward: Callable[[], Any],
    inputs: tuple[Tensor, ...],
    slots: list[Slot],
    shared: Parameters,
    layer: nn.Module,
) -> Built:
    """Loads the shared parameters into the layer, and returns it ready to run with a list of its leaves."""
    for slot in slots:
        slot.load(shared)
    return Built(forward, inputs, (*inputs, *layer.parameters()), tuple(slots), layer)


def make_loss(problem: Problem) -> Callable[[Any], Tensor]:
    """Returns the loss: mean negative log-likelihood over the labelled nodes, of a tensor or a dict by node type."""
    count = max(int((problem.labels != IGNORED).sum()), 1)
    parts = {f"t{i}": part for i, part in enumerate(problem.labels.split(list(problem.ntype_sizes)))}

    def loss(out: Any) -> Tensor:
        if isinstance(out, Mapping):
            typed: Mapping[str, Tensor] = out
            terms = [_nll(rows, parts[name]) for name, rows in typed.items()]
            return torch.stack(terms).sum() / count
        return _nll(out, problem.labels) / count

    return loss


def _nll(out: Tensor, labels: Tensor) -> Tensor:
    return functional.nll_loss(functional.log_softmax(out, dim=-1), labels, reduction="sum", ignore_index=IGNORED)


def make_step(built: Built, problem: Problem, train: bool) -> Callable[[], Any]:
    """Returns the call that is timed: forward without gradients, or forward, loss and backward."""
    loss = make_loss(problem)
    return step_of(built, lambda out: loss(out).backward(), "train" if train else "infer")


def make_layer_step(built: Built, out: Any) -> Callable[[], Any]:
    """Returns a training step without its loss: a forward, and a backward from gradients that are made before.

    Args:
        out: A result of the forward, which gives the sizes of the gradients.
    """
    gradients = [torch.ones_like(part) for part in _parts(out)]
    return step_of(built, lambda result: torch.autograd.backward(_parts(result), gradients), "train")


def _parts(out: Any) -> list[Tensor]:
    return list[Tensor](out.values()) if isinstance(out, Mapping) else [out]


def step_of(built: Built, backward: Callable[[Any], None], mode: str) -> Callable[[], Any]:
    """Returns the call that is timed; the call returns the result of the forward.

    Args:
        backward: Runs the backward from the result of the forward.
        mode: "infer" for a forward without gradients, "forward" for a forward that saves what a backward needs,
            "train" for forward and backward.
    """
    leaves, forward = built.leaves, built.forward

    def training() -> Any:
        for tensor in leaves:
            tensor.grad = None
        out = forward()
        backward(out)
        return out

    def inference() -> Any:
        with torch.no_grad():
            return forward()

    return {"infer": inference, "forward": forward, "train": training}[mode]


class WithRoot(nn.Module):
    """Runs a library's layer over relations, with one linear layer for a node's own features where wanted.

    Args:
        call: Calls the layer with features by type and a graph.
    """

    def __init__(self, convs: nn.Module, size: int, root: bool, call: Callable[[Any, Any, Any], Any]) -> None:
        super().__init__()
        self.convs: Any = convs
        self.root = nn.Linear(size, size) if root else None
        self.call = call

    def forward(self, xs: dict[str, Tensor], graph: Any) -> dict[str, Tensor]:
        outs = self.call(self.convs, xs, graph)
        if self.root is None:
            return {name: out.flatten(1) for name, out in outs.items()}  # DGL has an axis of heads
        return {name: self.root(x) + outs[name] if name in outs else self.root(x) for name, x in xs.items()}
