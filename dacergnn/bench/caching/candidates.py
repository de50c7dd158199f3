"""Networks of a task made ready to run, in every way that they are computed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from dacergnn.api import optimize
from dacergnn.bench.caching import networks
from dacergnn.bench.caching.task import Candidate
from dacergnn.bench.caching.workload import Workload
from dacergnn.bench.candidate import Built, leaf
from dacergnn.bench.peers import library_module

SEED = 7
"""Of parameters."""


def original(workload: Workload) -> networks.Network:
    """The network of PyG's layers that all candidates are to compute, with the same parameters every time."""
    from dacergnn.bench.caching import pyg

    torch.manual_seed(SEED)
    return networks.build(pyg.make_layer, workload.task, workload)


def make(candidate: Candidate, workload: Workload) -> Built:
    """A candidate ready to run."""
    library_module("pyg" if candidate.library == "ours" else candidate.library)
    network = original(workload)
    if candidate.library == "dgl":
        from dacergnn.bench.caching import dgl

        other = networks.build(dgl.make_layer, workload.task, workload, graph_first=True)
        for theirs, layer in zip(other.layers, network.layers, strict=True):
            _, unknown = theirs.load_state_dict(dgl.parameters_of(workload.task.model, layer), strict=False)
            assert not unknown
        return _built(other, workload, dgl.arguments(workload.task.model, workload))
    from dacergnn.bench.caching import pyg

    if candidate.scheme is not None:
        compiled = optimize(network, workload.graph, config=candidate.scheme.config, on_unsupported="error")
        sparse = workload.task.network == "sparse"
        return _built(compiled, workload, pyg.arguments(workload.task.model, "COO", workload), sparse=sparse)
    arguments = pyg.arguments(workload.task.model, candidate.name.removesuffix(" compiled"), workload)
    return _built(network, workload, arguments, compiled=candidate.compiled)


def reference(workload: Workload) -> Built:
    """PyG's network in float64."""
    from dacergnn.bench.caching import pyg

    exact = workload.to(torch.float64)
    return _built(original(workload).double(), exact, pyg.arguments(workload.task.model, "COO", exact))


def _built(
    network: nn.Module, workload: Workload, arguments: tuple[Any, ...], *, compiled: bool = False, sparse: bool = False
) -> Built:
    x = leaf(workload.x) if workload.task.input_gradient else workload.x
    given: Tensor = x.to_sparse_csr() if sparse else x
    inputs = (x,) if workload.task.input_gradient else ()
    run: Any = torch.compile(network) if compiled else network
    return Built(lambda: run(given, *arguments), inputs, (*inputs, *network.parameters()), layer=network)
