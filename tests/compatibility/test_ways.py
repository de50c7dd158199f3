"""Other ways to run a compiled layer: exported, traced, profiled, in children of a fork, made without channels."""

from __future__ import annotations

import copy
import gc
import os
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn

import dacergnn
from tests.compatibility.kinds import KINDS, Call, F, Kind, M, N, dgl, edges, named, outputs

TENSORS_ONLY = [k for k in KINDS if k.name in ("pyg.RGCNConv", "pyg.SAGEConv", "pyg.GATConv", "pyg.traced-UserLayer")]


@pytest.mark.parametrize("kind", TENSORS_ONLY, ids=named)
def test_programs_of_torch_export_never_run_another_layer(kind: Kind) -> None:
    fast, arguments = kind.compiled(torch.float32, strict=False), kind.arguments(torch.float32)
    expected = fast(*arguments)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* runs uncompiled: torch.export takes compiled layers")
        program = torch.export.export(fast, arguments)
    torch.testing.assert_close(program.module()(*arguments), expected)
    del fast
    gc.collect()
    others = [kind.compiled(torch.float32, strict=False) for _ in range(3)]
    for other in others:
        with torch.no_grad():
            for parameter in other.parameters():
                parameter.zero_()
        other(*arguments)
    torch.testing.assert_close(program.module()(*arguments), expected)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("kind", TENSORS_ONLY, ids=named)
def test_programs_of_torch_jit(kind: Kind) -> None:
    original, fast = kind.pair(torch.float32, strict=False)
    arguments = kind.arguments(torch.float32)
    traced = torch.jit.trace(fast, arguments)
    torch.testing.assert_close(traced(*arguments), original(*arguments))


@pytest.mark.parametrize("kind", [k for k in KINDS if not k.own], ids=named)
def test_profilers_show_layers_and_programs(kind: Kind) -> None:
    fast = kind.compiled()
    fast(*kind.arguments())
    with torch.profiler.profile() as profile:
        torch.cat([p.flatten() for p in outputs(fast(*kind.arguments()))]).sum().backward()
    names = {event.key for event in profile.key_averages()}
    assert not any("_Run" in name for name in names)
    assert any(name.startswith("dacergnn::") and not name.endswith("_backward") for name in names)
    assert any(name.startswith("dacergnn::") and name.endswith("_backward") for name in names)
    regions = [name for name in names if name.startswith("Torch-Compiled Region")]  # of whole models
    assert regions or any(f"{type(part).__name__} (compiled)" in names for part in fast.modules())


LAZY: dict[str, Callable[[], nn.Module]] = {
    "SAGEConv": lambda: pyg.SAGEConv(-1, M),
    "GCNConv": lambda: pyg.GCNConv(-1, M),
    "GATConv": lambda: pyg.GATConv(-1, M, heads=2),
    "GATv2Conv": lambda: pyg.GATv2Conv(-1, M, heads=2),
    "GMMConv": lambda: pyg.GMMConv(-1, M, dim=2, kernel_size=2),
    "HeteroConv": lambda: pyg.HeteroConv({("a", "r", "a"): pyg.SAGEConv((-1, -1), M)}),
    "HGTConv": lambda: pyg.HGTConv(-1, F, (["a"], [("a", "r", "a")]), heads=2),
    "traced": lambda: pyg.ResGatedGraphConv(-1, M),
}


def _arguments(name: str) -> tuple[Any, ...]:
    x, index = torch.randn(N, F, generator=torch.Generator().manual_seed(1)), edges()[0]
    if name in ("HeteroConv", "HGTConv"):
        return {"a": x}, {("a", "r", "a"): index}
    return (x, index, torch.rand(index.size(1), 2)) if name == "GMMConv" else (x, index)


@pytest.mark.parametrize("before", [True, False], ids=["optimized-before", "optimized-after"])
@pytest.mark.parametrize("name", LAZY)
def test_layers_without_channels_are_compiled_once_they_have_some(name: str, before: bool) -> None:
    arguments = _arguments(name)
    torch.manual_seed(0)
    original = LAZY[name]()
    if not before:
        original(*arguments)
    fast: Any = dacergnn.optimize(original)
    for _ in range(3):
        found = outputs(fast(*arguments))
    expected = outputs(dacergnn.revert(fast)(*arguments))
    torch.testing.assert_close(found, expected)
    assert fast.last_call is not None
    assert fast.refusal is None


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", ["eager", "compiled"])
def test_children_of_a_fork(name: str, threads: int) -> None:
    """OpenMP's threads, and the one that runs backwards of torch.compile, stay behind in the parent."""
    torch.manual_seed(0)
    fast: Any = dacergnn.optimize(pyg.GATConv(F, M))
    step: Any = torch.compile(fast, backend="aot_eager") if name == "compiled" else fast
    x, index = torch.randn(4000, F), torch.randint(0, 4000, (2, 30000))
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        step(x, index).sum().backward()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                step(x, index).sum().backward()
                status = 0
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(_wait(child)) == 0
    finally:
        torch.set_num_threads(before)


def _wait(child: int) -> int:
    """The status of a child, which is ended if it hangs."""
    import time

    for _ in range(600):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status
        time.sleep(0.1)
    os.kill(child, 9)
    return os.waitpid(child, 0)[1]


def test_copies_made_attribute_by_attribute_are_compiled() -> None:
    fast: Any = dacergnn.optimize(pyg.SAGEConv(F, M))
    x, index = _arguments("SAGEConv")
    replica = fast.__new__(type(fast))
    replica.__dict__ = copy.copy(fast.__dict__)
    torch.testing.assert_close(replica(x, index), fast(x, index))
    assert replica.last_call is not None


def test_functional_call_takes_other_parameters() -> None:
    fast: Any = dacergnn.optimize(pyg.SAGEConv(F, M))
    arguments = _arguments("SAGEConv")
    other: dict[str, Tensor] = {n: 2 * p.detach() for n, p in fast.named_parameters()}
    expected = torch.func.functional_call(dacergnn.revert(fast), other, arguments)
    torch.testing.assert_close(torch.func.functional_call(fast, other, arguments), expected)


def _keeping() -> tuple[nn.Module, Call, list[Tensor]]:
    """A layer of PyG whose code puts values of nodes and of edges aside."""
    kept: list[Tensor] = []

    class Keeping(pyg.MessagePassing):
        def __init__(self) -> None:
            super().__init__()
            self.lin = nn.Linear(F, M)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            h = self.lin(x)
            kept.append(h)
            return self.propagate(edge_index, x=h)

        def message(self, x_j: Tensor) -> Tensor:
            kept.append(x_j.tanh())
            return kept[-1]

    return Keeping(), (torch.linspace(-1, 1, N * F).view(N, F), edges()[0]), kept


def _keeping_of_dgl() -> tuple[nn.Module, Call, list[Tensor]]:
    """The same as a forward over a DGL graph."""
    kept: list[Tensor] = []

    class Keeping(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin = nn.Linear(F, M)

        def forward(self, g: Any, x: Tensor) -> Tensor:
            with g.local_scope():
                g.ndata["h"] = self.lin(x)
                g.apply_edges(dgl.function.u_mul_v("h", "h", "m"))
                kept.extend((g.ndata["h"], g.edata["m"].tanh()))
                g.update_all(dgl.function.copy_e("m", "m"), dgl.function.sum("m", "out"))
                return g.ndata["out"]

    index, _ = edges()
    return Keeping(), (dgl.graph((index[0], index[1]), num_nodes=N), torch.linspace(-1, 1, N * F).view(N, F)), kept


@pytest.mark.parametrize("make", [_keeping, _keeping_of_dgl])
def test_values_that_a_forward_keeps_are_those_of_the_call(
    make: Callable[[], tuple[nn.Module, Call, list[Tensor]]],
) -> None:
    """Parameters are written to, by an optimizer say, before somebody looks at the values."""
    torch.manual_seed(0)
    original, arguments, kept = make()
    given = copy.deepcopy(original)
    fast = dacergnn.optimize(given) if make is _keeping else dacergnn.compile(given)
    found: list[list[Tensor]] = []
    for module in (fast, original):
        kept.clear()
        module(*arguments)
        with torch.no_grad():
            module.lin.weight.mul_(2)
        found.append([value.detach() for value in kept])
    assert len(found[0]) == 2
    torch.testing.assert_close(*found)
