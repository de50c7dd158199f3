"""Steps that run range by range of destinations, within `Config(memory=...)`."""

from __future__ import annotations

import copy
import re
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import dacergnn
from dacergnn import Config
from dacergnn.errors import ArrayError, DacergnnError, MemoryLimitError
from dacergnn.frontends import ProgramSource
from dacergnn.graph import HeteroGraph
from dacergnn.graph.destination_ranges import DestinationRanges
from dacergnn.graph.profile import Profile
from dacergnn.modules.compiled import CompiledProgram, compiled_program
from dacergnn.modules.compiled_parts import compiled_parts
from dacergnn.modules.memory_limit import Division, MemoryLimit
from dacergnn.runtime.pool import POOL, SMALL
from dacergnn.scratch import zeros_in_file
from dacergnn.tuning.programs import random_layer

pyg = pytest.importorskip("torch_geometric.nn")
N, E, R = 300, 3000, 5
LIMITED = Config(memory="1GB")
LAYERS: dict[str, Callable[[], nn.Module]] = {
    "RGCNConv": lambda: pyg.RGCNConv(8, 12, R),
    "RGATConv": lambda: pyg.RGATConv(8, 6, R, heads=2),
    "GCNConv": lambda: pyg.GCNConv(8, 12),
    "GATConv": lambda: pyg.GATConv(8, 6, heads=2),
    "GATv2Conv": lambda: pyg.GATv2Conv(8, 6, heads=2),
    "SAGEConv": lambda: pyg.SAGEConv(8, 12, aggr="max"),
    "GINConv": lambda: pyg.GINConv(nn.Linear(8, 12)),
    "EdgeConv": lambda: pyg.EdgeConv(nn.Sequential(nn.Linear(16, 12), nn.ReLU(), nn.Linear(12, 12))),
    "TransformerConv": lambda: pyg.TransformerConv(8, 6, heads=2),
}


def edges(seed: int = 0, nodes: int = N) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(nodes, (2, E), generator=generator), torch.randint(R, (E,), generator=generator)


def program(layer: nn.Module) -> tuple[CompiledProgram, HeteroGraph]:
    call = compiled_parts(layer)[0].part.last_call
    assert call is not None
    return call


def ranges(layer: nn.Module) -> list[int]:
    """The number of ranges of each kind of call."""
    compiled, graph = program(layer)
    return [1 if d.ranges is None else len(d.ranges) for d in compiled.divisions(graph)]


@pytest.fixture
def _in_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """All calls under a limit run in three ranges."""

    def divided(limit: MemoryLimit, graph: HeteroGraph, mask: Any, left: float) -> Division:
        return Division(DestinationRanges.of(graph).divided(3), 0)

    monkeypatch.setattr(MemoryLimit, "divided", divided)


@pytest.fixture
def _in_an_arena(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges take even small arrays from one buffer of the pool."""

    def divided(limit: MemoryLimit, graph: HeteroGraph, mask: Any, left: float) -> Division:
        return Division(DestinationRanges.of(graph).divided(3), 0, room=4 << 20)

    monkeypatch.setattr(MemoryLimit, "divided", divided)
    for name in ("pool.SMALL", "pool.LARGE", "executable.SMALL", "executable.LARGE"):
        monkeypatch.setattr(f"dacergnn.runtime.{name}", 64)
    monkeypatch.setattr("dacergnn.modules.streamed.LARGE", 64)


def step(layer: nn.Module, x: Tensor, *args: Any) -> list[Tensor]:
    x = x.clone().requires_grad_()
    result = layer(x, *args)
    generator = torch.Generator().manual_seed(1)
    seed = torch.randn(result.shape, generator=generator, dtype=result.dtype)
    found = torch.autograd.grad(result, [x, *layer.parameters()], seed, materialize_grads=True)
    with torch.no_grad():
        return [result.detach(), *found, layer(x, *args)]


def close(found: list[Tensor], expected: list[Tensor]) -> None:
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10 * max(1.0, float(b.detach().abs().max())))


@pytest.mark.usefixtures("_in_ranges")
@pytest.mark.parametrize("name", [*LAYERS])
def test_steps_equal_those_at_once(name: str) -> None:
    edge_index, edge_type = edges()
    args = (edge_index, edge_type) if name.startswith("R") else (edge_index,)
    layer, x = LAYERS[name]().double(), torch.randn(N, 8, dtype=torch.float64)
    whole = dacergnn.optimize(copy.deepcopy(layer))
    expected = step(whole, x, *args)
    streamed = dacergnn.optimize(copy.deepcopy(layer), config=LIMITED)
    found = step(streamed, x, *args)
    assert {*ranges(streamed)} == {3}
    close(found, expected)
    close(step(streamed, x, *args), expected)


@pytest.mark.usefixtures("_in_an_arena")
@pytest.mark.parametrize("name", [*LAYERS])
def test_steps_in_an_arena(name: str) -> None:
    """Results and gradients outlast the arena, also those of several backwards at a time."""
    edge_index, edge_type = edges()
    args = (edge_index, edge_type) if name.startswith("R") else (edge_index,)
    layer, x = LAYERS[name]().double(), torch.randn(N, 8, dtype=torch.float64)
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


@pytest.mark.parametrize("name", ["RGATConv", "TransformerConv"])
def test_steps_in_files(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results, gradients and encodings lie in files, which take nothing of the limit; no file is left."""
    monkeypatch.setattr("dacergnn.modules.streamed.LARGE", 1)
    edge_index, edge_type = edges()
    args = (edge_index, edge_type) if name.startswith("R") else (edge_index,)
    layer, x = LAYERS[name]().double(), torch.randn(N, 8, dtype=torch.float64)
    expected = step(dacergnn.optimize(copy.deepcopy(layer)), x, *args)
    config = Config(memory=POOL.used + 400_000, scratch=str(tmp_path))
    streamed = dacergnn.optimize(copy.deepcopy(layer), config=config)
    found = step(streamed, x, *args)
    assert max(ranges(streamed)) > 1
    close(found, expected)
    mapped = Path("/proc/self/maps").read_text()
    assert str(tmp_path) in mapped
    assert [*tmp_path.iterdir()] == []
    need = min(division.need for division in program(streamed)[0].divisions(program(streamed)[1]))
    with pytest.raises(MemoryLimitError):
        step(dacergnn.optimize(copy.deepcopy(layer), config=Config(memory=POOL.used + need)), x, *args)


def test_a_folder_that_cannot_hold_a_file(tmp_path: Path) -> None:
    folder = tmp_path / "none"
    with pytest.raises(
        DacergnnError, match=r"none cannot hold a temporary file of 48 bytes: No such file .*; name another"
    ):
        zeros_in_file(folder, (3, 4), torch.float32)
    with pytest.raises(DacergnnError, match=r"cannot hold a temporary file of \d+ bytes: .*; name another folder"):
        zeros_in_file(tmp_path, (1 << 50,), torch.float32)
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scratch": "here", "memory": "1GB"}, "scratch='here' is no folder; make it, or name another one"),
        ({"scratch": "."}, r"scratch='\.' is for steps within a limit; pass memory=\.\.\., too"),
        ({"scratch": 3, "memory": "1GB"}, "scratch=3 is a int; pass the path of a folder as text"),
    ],
)
def test_wrong_folders(options: dict[str, Any], message: str) -> None:
    with pytest.raises(DacergnnError, match=message):
        Config(**options)


@pytest.mark.usefixtures("_in_ranges")
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


@pytest.mark.usefixtures("_in_ranges")
def test_inputs_are_checked_by_their_own_names() -> None:
    layer = dacergnn.optimize(pyg.GATConv(8, 6), config=LIMITED)
    layer(torch.randn(N, 8), edges()[0])
    compiled, graph = program(layer)
    inputs = [torch.randn(3) for _ in compiled.inputs]
    with pytest.raises(ArrayError, match=rf"^({'|'.join(compiled.inputs)}) "):
        compiled.run(graph, inputs)


@pytest.mark.usefixtures("_in_ranges")
def test_values_written_before_the_backward_are_noticed() -> None:
    layer = dacergnn.optimize(pyg.GATConv(8, 6), config=LIMITED)
    x = torch.randn(N, 8, requires_grad=True)
    rows = x * 1.0
    out = layer(rows, edges()[0])
    with torch.no_grad():
        rows.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


@pytest.mark.usefixtures("_in_ranges")
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


@pytest.mark.usefixtures("_in_ranges")
def test_results_of_edges() -> None:
    edge_index, _ = edges()
    layer, x = pyg.GATConv(8, 6, heads=2).double(), torch.randn(N, 8, dtype=torch.float64)
    whole = dacergnn.optimize(copy.deepcopy(layer))
    expected = whole(x, edge_index, return_attention_weights=True)
    streamed = dacergnn.optimize(copy.deepcopy(layer), config=LIMITED)
    found = streamed(x, edge_index, return_attention_weights=True)
    assert {*ranges(streamed)} == {3}
    close([found[0], *found[1]], [expected[0], *expected[1]])


@pytest.mark.usefixtures("_in_ranges")
@pytest.mark.parametrize("name", [*LAYERS])
def test_second_derivatives(name: str) -> None:
    edge_index, edge_type = edges()
    args = (edge_index, edge_type) if name.startswith("R") else (edge_index,)
    layer, features = LAYERS[name]().double(), torch.randn(N, 8, dtype=torch.float64)
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


@pytest.mark.usefixtures("_in_ranges")
@pytest.mark.parametrize("seed", range(12))
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
        first = torch.autograd.grad(sines, wanted, create_graph=True, materialize_grads=True)
        second = torch.autograd.grad(
            sum(f.pow(2).sum() for f in first), wanted, retain_graph=True, materialize_grads=True
        )
        results.append([*out, *first, *second, *torch.autograd.grad(sines, wanted, materialize_grads=True)])
    assert [d.ranges is not None for d in limited.divisions(graph)] == [True]
    close(results[1], results[0])


@pytest.mark.usefixtures("_in_ranges")
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
    assert [d.ranges is not None for d in made.divisions(graph)] == [True]
    close(results[1], results[0])


def test_steps_take_no_more_than_is_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    edge_index, x = torch.randint(3000, (2, 60_000)), torch.randn(3000, 16)
    made = pyg.EdgeConv(nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 16)))
    whole, layer = (
        dacergnn.optimize(made, config=config) for config in (Config(), Config(memory=POOL.used + 20_000_000))
    )
    most, take = [0], POOL.take

    def taken(size: int, *, beside: bool = False) -> Tensor:
        buffer = take(size, beside=beside)
        most.append(POOL.used)
        return buffer

    monkeypatch.setattr(POOL, "take", taken)
    peaks: list[int] = []
    for model in (whole, layer):
        POOL.clear()
        most[:] = [0]
        before = POOL.used
        model(x, edge_index).sum().backward()
        peaks.append(max(most) - before)
    (division,) = program(layer)[0].divisions(program(layer)[1])
    assert division.ranges is not None
    assert division.need <= 20_000_000
    assert division.room <= peaks[1] < min(division.need, peaks[0])


def test_layers_share_the_limit() -> None:
    """A layer may not take what others keep for the backward."""
    edge_index, x = torch.randint(3000, (2, 60_000)), torch.randn(3000, 16)
    layer = pyg.EdgeConv(nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 16)))
    whole = dacergnn.optimize(copy.deepcopy(layer))
    whole(x, edge_index).sum().backward()
    compiled, graph = program(whole)
    need = compiled.need(graph.sizes, tuple(name != "x" for name in compiled.inputs)).peak
    limited = dacergnn.optimize(layer, config=Config(memory=need + POOL.used))
    limited(x, edge_index).sum().backward()
    assert ranges(limited) == [1]
    kept = POOL.take(max(need // 8, SMALL))
    limited(x, edge_index).sum().backward()
    POOL.give(kept)
    assert max(ranges(limited)) > 1


def test_caching_knows_the_limit() -> None:
    edge_index, x = torch.randint(3000, (2, 60_000)), torch.randn(3000, 16)
    layer = pyg.EdgeConv(nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 16)))
    saved: list[int] = []
    for memory in (None, POOL.used + 12_000_000):
        model = dacergnn.optimize(copy.deepcopy(layer), config=Config(caching="auto", memory=memory))
        model(x, edge_index).sum().backward()
        compiled, graph = program(model)
        saved.append(compiled.need(graph.sizes, tuple(name != "x" for name in compiled.inputs)).saved)
    assert saved[1] <= 6_000_000 + POOL.used // 2 < saved[0]


def test_a_limit_that_no_division_meets() -> None:
    edge_index, _ = edges()
    layer = dacergnn.optimize(pyg.GCNConv(8, 12), config=Config(memory=POOL.used + 1000))
    with pytest.raises(MemoryLimitError) as error:
        layer(torch.randn(N, 8), edge_index)
    assert re.fullmatch(
        r"GCNConv: a step needs 0\.\d+ MB beside its inputs, but 0\.001 MB are left; allow more by "
        r"Config\(memory=\.\.\.\), or train on batches of neighbours \(docs/scale\.md\)\.",
        str(error.value),
    )
    assert error.value.need > error.value.limit == 1000


def test_programs_that_no_range_can_compute() -> None:
    text = "def p(g, x: NS[8]):\n    for e in g.edges():\n        e.src['y'] += e.dst.x\n    return y\n"
    graph = HeteroGraph.from_arrays(edges()[0], None, num_nodes=N)
    made = compiled_program(
        ProgramSource(text, ()), torch.float32, torch.int32, Config(memory="1KB"), Profile.of(graph)
    )
    with pytest.raises(MemoryLimitError, match=r'It cannot run in ranges: "y" sums up edges of all destinations'):
        made.run(graph, [torch.randn(N, 8)])


def test_programs_without_edges() -> None:
    text = "def p(g, x: NS[8]):\n    for n in g.src_nodes():\n        n['y'] = relu(n.x)\n    return y\n"
    graph = HeteroGraph.from_arrays(edges()[0], None, num_nodes=N)
    made = compiled_program(
        ProgramSource(text, ()), torch.float32, torch.int32, Config(memory="1KB"), Profile.of(graph)
    )
    with pytest.raises(MemoryLimitError, match=r'It cannot run in ranges: "p" reads no edges'):
        made.run(graph, [torch.randn(N, 8)])


@pytest.mark.usefixtures("_in_ranges")
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


def test_devices_have_no_limit() -> None:
    graph = HeteroGraph.from_arrays(edges()[0], None, num_nodes=N)
    text = "def p(g, x: NS[8]):\n    for e in g.edges():\n        e.dst['y'] += e.src.x\n    return y\n"
    config = Config(memory="1GB", implementation="cuda", cuda_arch=(80,))
    with pytest.raises(DacergnnError, match=r"memory='1GB' limits steps on the CPU, but arrays are on 'cuda'"):
        compiled_program(ProgramSource(text, ()), torch.float32, torch.int32, config, Profile.of(graph))


def test_wider_indices_keep_the_limit() -> None:
    graph = HeteroGraph.from_arrays(edges()[0], None, num_nodes=N)
    text = "def p(g, x: NS[8]):\n    for e in g.edges():\n        e.dst['y'] += e.src.x\n    return y\n"
    config = Config(memory="1KB")
    made = compiled_program(ProgramSource(text, ()), torch.float32, torch.int32, config, Profile.of(graph))
    with pytest.raises(MemoryLimitError):
        made.of_index(torch.int64).run(graph, [torch.randn(N, 8)])


@pytest.mark.parametrize("memory", ["6 parsecs", "0", -1, True, 1.5])
def test_wrong_sizes(memory: Any) -> None:
    with pytest.raises(DacergnnError, match=r'memory=.*; pass a size, as in "6GB", or "auto" for what is free'):
        Config(memory=memory)


def test_what_is_free_is_enough() -> None:
    edge_index, _ = edges()
    layer = dacergnn.optimize(pyg.GCNConv(8, 12), config=Config(memory="auto"))
    layer(torch.randn(N, 8), edge_index)
    assert ranges(layer) == [1]


@pytest.mark.usefixtures("_in_ranges")
def test_reports_tell_of_ranges() -> None:
    edge_index, _ = edges()
    layer = dacergnn.optimize(pyg.GATConv(8, 6), config=LIMITED)
    layer(torch.randn(N, 8), edge_index).sum().backward()
    report = dacergnn.explain(layer)
    assert "in 3 ranges of destinations, of which this is one" in str(report).replace("\n    ", " ")
    assert (report.layers[0].ranges, report.layers[0].step_bytes) == (3, 0)


def test_reports_estimate_what_a_step_takes() -> None:
    edge_index, _ = edges()
    layer = dacergnn.optimize(pyg.GATConv(8, 6))
    layer(torch.randn(N, 8), edge_index).sum().backward()
    report = dacergnn.explain(layer, verbose=True)
    assert report.layers[0].step_bytes > 0
    assert "beside its inputs, as estimated" in str(report)
