"""Measures a family of README's table in a process of its own: the times of all candidates, or the memory of one."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Mapping
from itertools import count, repeat
from typing import Any

import torch
from families import FAMILIES, SIZE, Family, Graph, Peer, as_original, keys_of
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.batches.loading import Batch, batches, most_reached
from benchmarks.batches.settings import RELATIONAL, TYPED
from benchmarks.relational.candidate import Built, leaf, make_layer_step
from benchmarks.relational.problem import Problem, load_problem
from dacergnn.api import optimize
from dacergnn.bench.calls import deviation
from dacergnn.bench.measure import Clock, interleave, time_call
from dacergnn.bench.memory import peak_growth, return_freed
from dacergnn.bench.process import reason
from dacergnn.errors import DacergnnError

TOLERANCE = 1e-3
"""The largest difference from the original, relative to the largest value; more means another function."""
LAYERS = 3


class Network(nn.Module):
    """Represents a model of three layers, each with norm, ReLU, dropout and a residual, and a linear head."""

    def __init__(self, convs: list[nn.Module], target: str) -> None:
        super().__init__()
        self.convs, self.target = nn.ModuleList(convs), target
        self.norms = nn.ModuleList(nn.LayerNorm(SIZE) for _ in convs)
        self.dropout, self.head = nn.Dropout(0.2), nn.Linear(SIZE, SIZE)

    def forward(self, x: Any, *graph: Any) -> Tensor:
        for conv, norm in zip(self.convs, self.norms, strict=True):
            out = conv(x, *graph)
            if isinstance(x, Mapping):
                x = {name: self._block(norm, rows, out.get(name)) for name, rows in x.items()}
            else:
                x = self._block(norm, x, out)
        return self.head(x[self.target] if isinstance(x, Mapping) else x)

    def _block(self, norm: nn.Module, x: Tensor, out: Tensor | None) -> Tensor:
        return x if out is None else x + self.dropout(norm(out).relu())


def cross_entropy(labels: Tensor, out: Tensor) -> Tensor:
    return functional.cross_entropy(out[: len(labels)], labels)


Arguments = Callable[[Graph], tuple[Any, ...]]
Made = tuple[Any, Arguments]
"""A module, and what it is called with after the features."""


def candidates(family: Family, module: Any, *, compiled: bool) -> dict[str, Callable[[], Made]]:
    """Returns what makes each candidate from a layer, or from a network of such layers."""

    def of_peer(peer: Peer) -> Any:
        made = copy.deepcopy(module)
        if not isinstance(module, Network):
            return peer.make(made)
        made.convs = nn.ModuleList(map(peer.make, module.convs))
        return made

    made: dict[str, Callable[[], Made]] = {
        "original": lambda: (copy.deepcopy(module), as_original),
        "ours": lambda: (optimize(copy.deepcopy(module)), as_original),
    }
    made |= {
        f"{peer.name} {n}": lambda peer=peer: (of_peer(peer), peer.arguments) for n, peer in enumerate(family.peers)
    }
    if compiled and family.compiled:
        made["compiled"] = lambda: (torch.compile(copy.deepcopy(module), dynamic=True), as_original)
    return made


def results(made: Made, graph: Graph, labels: Tensor, *, layer: bool) -> dict[str, Tensor]:
    """Returns the result in evaluation, and the gradients of parameters by name."""
    module, arguments = made
    module.eval()
    out = module(graph.x, *arguments(graph))
    parts = out if isinstance(out, Mapping) else {"": out}
    loss = torch.stack([rows.square().mean() for rows in parts.values()]).sum() if layer else cross_entropy(labels, out)
    loss.backward()
    grads = {name.removeprefix("_orig_mod."): p.grad for name, p in module.named_parameters() if p.grad is not None}
    module.zero_grad()
    module.train()
    return {f"out {name}": rows.detach() for name, rows in parts.items()} | grads


class Steps:
    """Runs training steps of a network: on one graph, or on a new batch in each."""

    def __init__(self, made: Made, batches: Iterator[tuple[Graph, Tensor]]) -> None:
        (self.network, self.arguments), self.batches = made, batches
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=1e-3, fused=True)
        self.prepare()

    def prepare(self) -> None:
        """Takes the next batch, in the form that the network takes."""
        graph, self.labels = next(self.batches)
        self.x, self.given = graph.x, self.arguments(graph)

    def __call__(self) -> None:
        self.optimizer.zero_grad()
        cross_entropy(self.labels, self.network(self.x, *self.given)).backward()
        self.optimizer.step()


def whole(family: Family, problem: Problem, target: int) -> tuple[Graph, Tensor]:
    """Returns the whole graph, which no candidate has seen before, and the labels of the nodes with a result."""
    sizes = list(problem.ntype_sizes)
    if family.form in TYPED:
        x = {f"t{place}": rows for place, rows in enumerate(problem.x.split(sizes))}
        edges = {key: problem.edges_of(etype) for etype, key in enumerate(keys_of(problem))}
        return Graph(x, (edges,), problem.num_etypes), problem.labels.split(sizes)[target]
    types = (problem.etype,) if family.form in RELATIONAL else ()
    return Graph(problem.x, (torch.stack([problem.src, problem.dst]), *types), problem.num_etypes), problem.labels


def sampled(family: Family, problem: Problem, target: int) -> Callable[[], Iterator[tuple[Graph, Tensor]]]:
    """Returns a function that goes through the same batches for each candidate."""
    seeds, fanouts = (16, [1, 1, 1]) if family.form in TYPED else (96, [5, 4, 4])  # typed ones are for each relation
    source = batches(family.form, problem, target, seeds, fanouts)
    known: list[Batch] = []

    def go() -> Iterator[tuple[Graph, Tensor]]:
        for number in count():
            if number == len(known):
                known.append(next(source))
            (x, *edges), labels = known[number].inputs, known[number].labels
            yield Graph(x, tuple(edges), problem.num_etypes), labels

    return go


def layer_step(made: Made, graph: Graph) -> Callable[[], Any]:
    """Returns a forward and backward of a layer behind another one, whose features need gradients."""
    module, given = made[0], made[1](graph)
    leaves = {name: leaf(rows) for name, rows in graph.x.items()} if isinstance(graph.x, Mapping) else leaf(graph.x)
    inputs = tuple(leaves.values()) if isinstance(leaves, Mapping) else (leaves,)
    built = Built(lambda: module(leaves, *given), inputs, (*inputs, *module.parameters()))
    return make_layer_step(built, built.forward())


def differs(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> float:
    """Returns the largest difference between tensors of the same names."""
    return max(deviation(found[name].double(), expected[name].double()) for name in expected if name in found)


def time_step(call: Steps) -> float:
    """Returns the seconds of a step on a batch that is made ready before."""
    call.prepare()
    return time_call(call)


ON_BATCHES = Clock(time_step, lambda call, timing: timing.samples.append(time_step(call)))


def times(family: Family, problem: Problem, request: dict[str, Any]) -> dict[str, Any]:
    """Returns the times of one layer, of steps on the whole graph, and of steps on batches, by candidate."""
    target = most_reached(problem)
    torch.manual_seed(0)
    network = Network([family.make(problem) for _ in range(LAYERS)], f"t{target}")
    stream = sampled(family, problem, target)
    answer: dict[str, Any] = {"edges": problem.num_edges, "batch_edges": next(stream())[0].problem().num_edges}
    for measure, module in (("layer", network.convs[0]), ("step", network), ("batch", network)):
        calls: dict[str, Any] = {}
        failed: dict[str, dict[str, str]] = {}
        expected: dict[str, Tensor] = {}
        for name, make in candidates(family, module, compiled=request["compiled"]).items():
            try:
                made = make()
                source = stream() if measure == "batch" else repeat(whole(family, problem, target))
                found = results(made, *next(source), layer=measure == "layer")
                expected = expected or found
                if not (error := differs(found, expected)) <= TOLERANCE:
                    raise DacergnnError(f"differs from the original by {error:.1e}")
                call = layer_step(made, next(source)[0]) if measure == "layer" else Steps(made, source)
                for _ in range(request["warm_up"] if measure == "batch" else 1):
                    time_step(call) if measure == "batch" else call()
                calls[name] = call
            except Exception as error:  # a candidate's failure is a result
                failed[name] = {"error": reason(error)}
        clock = ON_BATCHES if measure == "batch" else None
        timings = interleave(calls, request["repeat"], request["budget_s"], clock=clock)
        answer[measure] = {name: timing.as_json() for name, timing in timings.items()} | failed
    return answer


def memory(family: Family, problem: Problem, name: str) -> dict[str, Any]:
    """Returns the peak of two steps on the whole graph, with all that they keep, once all code is there."""
    return_freed()
    target = most_reached(problem)

    def steps() -> None:
        torch.manual_seed(0)
        network = Network([family.make(problem) for _ in range(LAYERS)], f"t{target}")
        step = Steps(candidates(family, network, compiled=True)[name](), repeat(whole(family, problem, target)))
        step()
        step()

    steps()
    grown, method = peak_growth(steps)
    return {"peak_mb": grown / 1e6, "method": method}


def measure_request(request: dict[str, Any]) -> dict[str, Any]:
    """Returns the times of all candidates of a family, or the memory of the one that is named."""
    family = next(one for one in FAMILIES if one.title == request["family"])
    problem = load_problem(request["data"], SIZE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the libraries warn about their own internals
        if "candidate" in request:
            return memory(family, problem, request["candidate"])
        return times(family, problem, request)
