"""Makes the networks of a task ready to run, in every way that they are computed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.caching.workload import Workload
from benchmarks.named import Named
from benchmarks.relational.candidate import Built, leaf
from benchmarks.relational.peers import library_module
from dacergnn.api import optimize
from dacergnn.config import Config, Rates

SEED = 7
"""Seed of the parameters."""


def make(candidate: Named, workload: Workload, rates: Rates | None = None) -> Built:
    """Returns a candidate ready to run; all candidates of a task compute the same function with the same parameters.

    Ours is compiled by ``rates``.
    """
    network = _original(workload)
    if candidate.library == "dgl":
        return _of_dgl(network, workload)
    if candidate.config is not None:
        return compiled(workload, replace(candidate.config, rates=rates))
    form, _, way = candidate.name.partition(" ")
    arguments = _pyg().arguments(workload, form)
    return _built(network, workload, arguments, compiled=way == "compiled", sparse=way == "sparse")


def compiled(workload: Workload, config: Config) -> Built:
    """Returns the network of a task, compiled by a config layer by layer, as strategies are compared."""
    network = optimize(
        _original(workload), workload.graph, config=config, filter_fn=lambda *_: True, on_unsupported="error"
    )
    return _built(network, workload, _pyg().arguments(workload, "COO"), sparse=workload.task.network == "sparse")


def reference(workload: Workload) -> Built:
    """Returns PyG's network in float64."""
    exact = workload.to(torch.float64)
    return _built(_original(workload).double(), exact, _pyg().arguments(exact, "COO"))


def _original(workload: Workload) -> nn.Module:
    torch.manual_seed(SEED)
    return _pyg().network(workload).to(workload.x.device)


def _of_dgl(network: nn.Module, workload: Workload) -> Built:
    library_module("dgl")
    from benchmarks.caching import dgl

    other = dgl.DGLNetwork(workload).to(workload.x.device)
    for theirs, layer in zip(other.layers, _pyg().layers(network), strict=True):
        _, unknown = theirs.load_state_dict(dgl.parameters_of(workload.task.model, layer), strict=False)
        assert not unknown
    return _built(other, workload, dgl.arguments(workload))


def _pyg() -> Any:
    library_module("pyg")
    from benchmarks.caching import pyg

    return pyg


def _built(
    network: nn.Module, workload: Workload, arguments: tuple[Any, ...], *, compiled: bool = False, sparse: bool = False
) -> Built:
    x = leaf(workload.x) if workload.task.input_gradient else workload.x
    features: Tensor = x.to_sparse_csr() if sparse else x
    inputs = (x,) if workload.task.input_gradient else ()
    run: Any = torch.compile(network) if compiled else network
    return Built(lambda: run(features, *arguments), inputs, (*inputs, *network.parameters()), layer=network)
