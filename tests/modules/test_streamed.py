"""Values of steps that run range by range of destinations."""

from __future__ import annotations

import copy
import textwrap
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import dacergnn
from dacergnn import Config
from dacergnn.errors import ArrayError
from dacergnn.frontends import ProgramSource
from dacergnn.graph import HeteroGraph
from dacergnn.graph.destination_ranges import DestinationRange, DestinationRanges
from dacergnn.graph.profile import Profile
from dacergnn.modules.compiled import CompiledProgram
from dacergnn.modules.programs import compiled_program
from dacergnn.modules.ways.memory_limit import Division, MemoryLimit
from dacergnn.modules.ways.ranges import Streams
from dacergnn.runtime.pool import POOL, SMALL
from dacergnn.tuning.programs import random_layer
from tests.modules.streaming import LAYERS, LIMITED, E, N, R, call, close, divisions, edges, program, ranges, step

pyg = pytest.importorskip("torch_geometric.nn")


@pytest.fixture
def in_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """All calls under a limit run in three ranges."""

    def divided(limit: MemoryLimit, graph: HeteroGraph, mask: Any, left: float, **_: float) -> Division:
        return Division(DestinationRanges.of(graph).divided(3), 0)

    monkeypatch.setattr(MemoryLimit, "divided", divided)


@pytest.fixture
def in_an_arena(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges take even small arrays from one buffer of the pool."""

    def divided(limit: MemoryLimit, graph: HeteroGraph, mask: Any, left: float, **_: float) -> Division:
        return Division(DestinationRanges.of(graph).divided(3), 0, room=4 << 20)

    monkeypatch.setattr(MemoryLimit, "divided", divided)
    for name in ("pool.SMALL", "pool.LARGE", "executable.LARGE"):
        monkeypatch.setattr(f"dacergnn.runtime.{name}", 64)
    monkeypatch.setattr("dacergnn.modules.ways.ranges.LARGE", 64)


@pytest.mark.usefixtures("in_ranges")
@pytest.mark.parametrize("name", ["RGCNConv", "GATv2Conv", "GINConv", "TransformerConv"])
def test_steps_equal_those_at_once(name: str) -> None:
    layer, x, args = call(name)
    whole = dacergnn.optimize(copy.deepcopy(layer))
    expected = step(whole, x, *args)
    streamed = dacergnn.optimize(copy.deepcopy(layer), config=LIMITED)
    found = step(streamed, x, *args)
    assert {*ranges(streamed)} == {3}
    close(found, expected)
    close(step(streamed, x, *args), expected)


@pytest.mark.usefixtures("in_an_arena")
@pytest.mark.parametrize("name", ["RGATConv", "GCNConv", "SAGEConv", "EdgeConv"])
def test_steps_in_an_arena(name: str) -> None:
    """Results and gradients outlast the arena, also those of several backwards at a time."""
    layer, x, args = call(name)
    results: list[list[Tensor]] = []
    for config in (Config(), LIMITED):
        model, before = dacergnn.optimize(copy.deepcopy(layer), config=config), POOL.used
        kept = [step(model, x, *args) for _ in range(2)]
        own = x.clone().requires_grad_()
        out = model(own, *args)
        seeds = torch.randn(3, *out.shape, dtype=out.dtype, generator=torch.Generator().manual_seed(2))
        kept.append([*torch.autograd.grad(out, [own], seeds, is_grads_batched=True, retain_graph=True)])
        results.append([tensor.clone() for tensors in kept for tensor in tensors])
        del kept, out, own
    assert {*ranges(model)} == {3}
    close(results[1], results[0])
    assert POOL.used == before


@pytest.mark.parametrize("later", [7, None])
def test_other_ranges_in_the_backward(later: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another call may divide the graph anew before the backward, or find that all runs at once."""
    layer, x = pyg.GATConv(8, 6, heads=2).double(), torch.randn(N, 8, dtype=torch.float64)
    edge_index, _ = edges()
    expected = step(dacergnn.optimize(copy.deepcopy(layer)), x, edge_index)
    counts = iter([3, later])

    def divided(limit: MemoryLimit, graph: HeteroGraph, mask: Any, left: float, **_: float) -> Division:
        count = next(counts, later)
        made = None if count is None else DestinationRanges.of(graph).divided(count)
        return Division(made, 0 if count == later else POOL.used)

    monkeypatch.setattr(MemoryLimit, "divided", divided)
    streamed = dacergnn.optimize(copy.deepcopy(layer), config=Config(memory=POOL.used + 1))
    x = x.clone().requires_grad_()
    out = streamed(x, edge_index)
    held = POOL.take(SMALL)  # leaves the next call less
    again = streamed(x, edge_index)
    POOL.give(held)
    assert ranges(streamed) == [later or 1]
    for made in (out, again):
        seed = torch.randn(out.shape, generator=torch.Generator().manual_seed(1), dtype=out.dtype)
        found = torch.autograd.grad(made, [x, *streamed.parameters()], seed)
        close([made.detach(), *found], expected[:-1])


@pytest.mark.usefixtures("in_ranges")
def test_second_derivatives_take_one_set_of_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another call divides the graph anew while a backward computes the ranges."""
    layer, x = LAYERS["GATConv"]().double(), torch.randn(N, 8, dtype=torch.float64)
    edge_index, _ = edges()

    def result(model: nn.Module) -> tuple[list[Tensor], Tensor]:
        wanted = [x.clone().requires_grad_(), *model.parameters()]
        out, (_, attention) = model(wanted[0], edge_index, return_attention_weights=True)
        return wanted, (out * out).sum() + (attention * torch.arange(len(attention))[:, None]).sum()

    def derivatives(wanted: list[Tensor], total: Tensor) -> list[Tensor]:
        first = torch.autograd.grad(total, wanted, create_graph=True, materialize_grads=True)
        squares = torch.stack([(g * g).sum() for g in first]).sum()
        return [*first, *torch.autograd.grad(squares, wanted, materialize_grads=True)]

    expected = derivatives(*result(dacergnn.optimize(copy.deepcopy(layer))))
    streamed = dacergnn.optimize(layer, config=LIMITED)
    made = result(streamed)
    compiled, graph = program(streamed)
    (division,), of_range = divisions(compiled, graph), Streams.of_range
    other = Division(DestinationRanges.of(graph).divided(7), 0)

    def changed(streams: Streams, part: DestinationRange) -> CompiledProgram:
        division.become(other)
        return of_range(streams, part)

    monkeypatch.setattr(Streams, "of_range", changed)
    close(derivatives(*made), expected)
    assert division.ranges is other.ranges


@pytest.mark.usefixtures("in_ranges")
def test_calls_in_other_orders() -> None:
    """Inference first, another graph, gradients of expanded and transposed shape, several at a time, and a copy."""
    layer = LAYERS["GATConv"]().double()
    whole, streamed = dacergnn.optimize(copy.deepcopy(layer)), dacergnn.optimize(copy.deepcopy(layer), config=LIMITED)
    x = torch.randn(N, 8, dtype=torch.float64)
    seeds = torch.randn(3, 12, N, dtype=torch.float64).transpose(1, 2)
    results: list[list[Tensor]] = []
    for model in (whole, streamed, copy.deepcopy(streamed)):
        found: list[Tensor] = []
        for edge_index in (edges(0)[0], edges(1)[0], edges(0)[0]):
            with torch.no_grad():
                found.append(model(x, edge_index))
            own = x.clone().requires_grad_()
            wanted = [own, *model.parameters()]
            out = model(own, edge_index)
            found += torch.autograd.grad(out.sum(), wanted, retain_graph=True)
            found += torch.autograd.grad(out, wanted, seeds[0], retain_graph=True)
            found += torch.autograd.grad(out, wanted, seeds, is_grads_batched=True)
        results.append(found)
    assert {*ranges(streamed)} == {3}
    close(results[1], results[0])
    close(results[2], results[0])


@pytest.mark.usefixtures("in_ranges")
def test_inputs_are_checked_by_their_own_names() -> None:
    layer = dacergnn.optimize(pyg.GATConv(8, 6), config=LIMITED)
    layer(torch.randn(N, 8), edges()[0])
    compiled, graph = program(layer)
    inputs = [torch.randn(3) for _ in compiled.inputs]
    with pytest.raises(ArrayError, match=rf"^({'|'.join(compiled.inputs)}) "):
        compiled.run(graph, inputs)


@pytest.mark.usefixtures("in_ranges")
def test_values_written_before_the_backward_are_noticed() -> None:
    layer = dacergnn.optimize(pyg.GATConv(8, 6), config=LIMITED)
    x = torch.randn(N, 8, requires_grad=True)
    rows = x * 1.0
    out = layer(rows, edges()[0])
    with torch.no_grad():
        rows.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


@pytest.mark.usefixtures("in_ranges")
def test_results_of_types_and_nodes() -> None:
    """HGT has weights by type of node, and its destinations are nodes of several types."""
    sizes, keys = {"a": 150, "b": 90}, [("a", "r", "b"), ("b", "s", "a"), ("a", "t", "a")]
    layer = pyg.HGTConv(8, 12, (["a", "b"], keys), heads=2).double()
    x = {kind: torch.randn(size, 8, dtype=torch.float64) for kind, size in sizes.items()}
    graph = {key: torch.stack([torch.randint(sizes[key[n]], (900,)) for n in (0, 2)]) for key in keys}
    results: list[list[Tensor]] = []
    for config in (Config(), LIMITED):
        model = dacergnn.optimize(copy.deepcopy(layer), config=config)
        own = {kind: rows.clone().requires_grad_() for kind, rows in x.items()}
        out = model(own, graph)
        torch.cat([*out.values()]).pow(2).sum().backward()
        wanted = [*own.values(), *(p for p in model.parameters() if p.grad is not None)]
        results.append([*out.values(), *(t.grad for t in wanted if t.grad is not None)])
    assert {*ranges(model)} == {3}
    close(results[1], results[0])


@pytest.mark.usefixtures("in_ranges")
def test_results_of_edges() -> None:
    edge_index, _ = edges()
    layer, x = pyg.GATConv(8, 6, heads=2).double(), torch.randn(N, 8, dtype=torch.float64)
    whole = dacergnn.optimize(copy.deepcopy(layer))
    expected = whole(x, edge_index, return_attention_weights=True)
    streamed = dacergnn.optimize(copy.deepcopy(layer), config=LIMITED)
    found = streamed(x, edge_index, return_attention_weights=True)
    assert {*ranges(streamed)} == {3}
    close([found[0], *found[1]], [expected[0], *expected[1]])


@pytest.mark.usefixtures("in_ranges")
@pytest.mark.parametrize("name", ["RGCNConv", "SAGEConv", "EdgeConv"])
def test_second_derivatives(name: str) -> None:
    layer, features, args = call(name)
    whole = dacergnn.optimize(copy.deepcopy(layer))
    step(whole, features, *args)
    streamed = dacergnn.optimize(copy.deepcopy(layer), config=LIMITED)
    results: list[list[Tensor]] = []
    for model in (whole, streamed):
        x = features.clone().requires_grad_()
        (first,) = torch.autograd.grad(model(x, *args).pow(2).sum(), x, create_graph=True)
        results.append([*torch.autograd.grad(first.pow(2).sum(), [x, *model.parameters()], materialize_grads=True)])
    assert {*ranges(streamed)} == {3}
    close(results[1], results[0])


@pytest.mark.usefixtures("in_ranges")
@pytest.mark.parametrize("seed", [2, 3, 5, 8])  # maxima, means, gates and attention; weights of all kinds
def test_random_programs(seed: int) -> None:
    layer, (edge_index, edge_type) = random_layer(seed), edges(seed)
    graph = HeteroGraph.from_arrays(edge_index, edge_type, num_nodes=N, num_edge_types=R)
    options: Any = (ProgramSource(layer.text, ()), torch.float64, torch.int32)
    whole = compiled_program(*options, Config(), Profile.of(graph))
    generator = torch.Generator().manual_seed(seed)
    spaces = whole.inference_code().spaces
    inputs = [
        torch.randn(graph.size(spaces[n][0]), *spaces[n][1], generator=generator, dtype=torch.float64)
        for n in whole.inputs
    ]
    for name, tensor in zip(whole.inputs, inputs, strict=True):
        tensor.requires_grad_(name in layer.learned)
    wanted = [tensor for tensor in inputs if tensor.requires_grad]
    results: list[list[Tensor]] = []
    limited = compiled_program(*options, LIMITED, Profile.of(graph))
    for made in (whole, limited):
        out = made.run(graph, inputs)
        sines = [o.sin().sum() for o in out]
        results.append([*out])
        if seed == 3:  # programs of second derivatives are large
            first = torch.autograd.grad(sines, wanted, create_graph=True, materialize_grads=True)
            squares = [f.pow(2).sum() for f in first]
            results[-1] += torch.autograd.grad(squares, wanted, retain_graph=True, materialize_grads=True)
        results[-1] += torch.autograd.grad(sines, wanted, materialize_grads=True)
    assert [d.ranges is not None for d in divisions(limited, graph)] == [True]
    close(results[1], results[0])


@pytest.mark.usefixtures("in_ranges")
def test_second_derivatives_of_values_of_edges() -> None:
    """Their rows come range by range, and are put back into the order of the edges."""
    text = """
    def p(g, x: NS[4], y: ND[4]):
        for e in g.edges():
            e["out"] = dot_prd(e.src.x, e.dst.y) * e.src.x
        return out
    """
    edge_index, edge_type = edges()
    graph = HeteroGraph.from_arrays(edge_index, edge_type, num_nodes=N, num_edge_types=R)
    inputs = [torch.randn(N, 4, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    results: list[list[Tensor]] = []
    for config in (Config(), LIMITED):
        source = ProgramSource(textwrap.dedent(text), ())
        made = compiled_program(source, torch.float64, torch.int32, config, Profile.of(graph))
        (out,) = made.run(graph, inputs)
        first = torch.autograd.grad(out.sin().sum(), inputs, create_graph=True)
        results.append([*torch.autograd.grad([f.pow(2).sum() for f in first], inputs)])
    assert [d.ranges is not None for d in divisions(made, graph)] == [True]
    close(results[1], results[0])


@pytest.mark.usefixtures("in_ranges")
def test_values_of_edges_in_parts() -> None:
    """RGCN normalizes edges; those of relations with few sources are a part of the edges, with rows of their own."""
    text = """
    def p(g, norm: E[6], x: NS[8], W: R[8, 6]):
        for n in g.dst_nodes():
            for e in n.incoming_edges_s():
                n["some"] += e.edge.norm * linear(e.src.x, W[e.etype])
            for e in n.incoming_edges_d():
                n["others"] += e.edge.norm * linear(e.src.x, W[e.etype])
        for n in g.dst_nodes():
            n["out"] = n.some + n.others
        return out
    """
    (src, dst), edge_type = edges()
    few = torch.where(edge_type < 2, 9, N)  # sources of two relations, and destinations of the others
    graph = HeteroGraph.from_arrays((src % few, dst % (N + 9 - few)), edge_type, num_nodes=N, num_edge_types=R)
    assert 0 < graph.size("Es") < graph.size("E")
    inputs = [torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in ((E, 6), (N, 8), (R, 8, 6))]
    results: list[list[Tensor]] = []
    for config in (Config(), LIMITED):
        made = compiled_program(
            ProgramSource(textwrap.dedent(text), ()), torch.float64, torch.int32, config, Profile.of(graph)
        )
        (out,) = made.run(graph, inputs)
        results.append([out, *torch.autograd.grad(out.sin().sum(), inputs)])
    assert [d.ranges is not None for d in divisions(made, graph)] == [True]
    close(results[1], results[0])


@pytest.mark.usefixtures("in_ranges")
def test_ranges_without_inputs() -> None:
    text = """
    def p(g, x: NS[8]):
        for n in g.src_nodes():
            n["z"] = relu(n.x)
        for n in g.dst_nodes():
            for e in n.incoming_edges():
                n["y"] += 1.0
        return z, y
    """
    graph = HeteroGraph.from_arrays(edges()[0], None, num_nodes=N)
    source = ProgramSource(textwrap.dedent(text), ())
    made = compiled_program(source, torch.float32, torch.int32, LIMITED, Profile.of(graph))
    x = torch.randn(N, 8)
    found, degrees = made.run(graph, [x])
    assert torch.equal(found, x.relu())
    assert torch.equal(degrees.view(-1), torch.bincount(edges()[0][1], minlength=N).float())


@pytest.mark.usefixtures("in_ranges")
def test_reports_tell_of_ranges() -> None:
    edge_index, _ = edges()
    layer = dacergnn.optimize(pyg.GATConv(8, 6), config=LIMITED)
    layer(torch.randn(N, 8), edge_index).sum().backward()
    report = dacergnn.explain(layer)
    assert "in 3 ranges of destinations, of which this is one" in str(report).replace("\n    ", " ")
    assert report.layers[0].ranges == 3
    assert report.layers[0].step_bytes > 0
