"""Limits of memory: how steps are divided, refused and reported (`Config(memory=...)`)."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import dacergnn
from dacergnn import Config
from dacergnn.cli.named_layers import native_layer
from dacergnn.errors import DacergnnError, MemoryLimitError
from dacergnn.frontends import ProgramSource
from dacergnn.graph import HeteroGraph
from dacergnn.graph.counting import COUNTED
from dacergnn.graph.destination_ranges import DestinationRanges
from dacergnn.graph.profile import Profile
from dacergnn.modules.programs import compiled_program
from dacergnn.runtime.needs import CountedSizes
from dacergnn.runtime.pool import POOL, SMALL
from dacergnn.scratch import zeros_in_file
from tests.modules.streaming import N, R, call, close, divisions, edges, program, ranges, step

pyg = pytest.importorskip("torch_geometric.nn")


def test_steps_in_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results, gradients and encodings lie in files, which take nothing of the limit; no file is left."""
    monkeypatch.setattr("dacergnn.modules.ways.ranges.LARGE", 1)
    layer, x, args = call("RGATConv")
    expected = step(dacergnn.optimize(copy.deepcopy(layer)), x, *args)
    config = Config(memory=POOL.used + 400_000, scratch=str(tmp_path))
    streamed = dacergnn.optimize(copy.deepcopy(layer), config=config)
    found = step(streamed, x, *args)
    assert max(ranges(streamed)) > 1
    close(found, expected)
    mapped = Path("/proc/self/maps").read_text()
    assert str(tmp_path) in mapped
    assert [*tmp_path.iterdir()] == []
    need = min(division.need for division in divisions(*program(streamed)))
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
    (division,) = divisions(*program(layer))
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
    limited = dacergnn.optimize(layer, config=Config(memory=need * 10 // 9 + POOL.used))
    limited(x, edge_index).sum().backward()
    assert ranges(limited) == [1]
    kept = POOL.take(max(need // 4, SMALL))
    limited(x, edge_index).sum().backward()
    POOL.give(kept)
    assert max(ranges(limited)) > 1


def kept(graph: HeteroGraph) -> int:
    """The bytes of encodings, those of ranges included."""
    graphs = [graph, *(part.graph for divided in DestinationRanges.of(graph).in_use(None) for part in divided)]
    return sum(vector.nbytes for one in graphs for vector in one.encodings.built())


@pytest.mark.compiled
def test_calls_share_the_encodings_of_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Training and inference of two layers run in the same ranges, so that all stay within one limit.

    It takes a quarter of a minute, as the programs of two layers are compiled, for training and for inference.
    """
    generator = torch.Generator().manual_seed(0)
    edge_index = torch.randint(30_000, (2, 600_000), generator=generator)
    edge_type = torch.randint(4, (600_000,), generator=generator)
    graph = HeteroGraph.from_arrays(edge_index, edge_type, num_nodes=30_000, num_edge_types=4)
    POOL.clear()  # its buffers may have twice the size that is asked for
    before, limit, used = kept(graph), 105_000_000, POOL.used
    layers = [native_layer(name, graph, 32, 1, Config(memory=used + limit)) for name in ("rgat", "hgt")]
    x, most, take = torch.randn(30_000, 32, requires_grad=True), [0], POOL.take

    def taken(size: int, *, beside: bool = False) -> Tensor:
        buffer = take(size, beside=beside)
        most.append(POOL.used - used + kept(graph) - before)
        return buffer

    monkeypatch.setattr(POOL, "take", taken)
    for needs_gradients in (True, False, True):
        with torch.set_grad_enabled(needs_gradients):
            out = layers[1](layers[0](x, graph), graph)
        if needs_gradients:
            out.sum().backward()
        del out
    assert len(DestinationRanges.of(graph).in_use(None)) == 1
    assert max(most) <= limit


@pytest.mark.compiled
def test_graphs_in_ranges_keep_no_encodings_but_those_that_others_read() -> None:
    draw = torch.Generator().manual_seed(0)
    edge_index, types = torch.randint(5000, (2, 100_000), generator=draw), torch.randint(R, (100_000,), generator=draw)
    options: Any = {"num_nodes": 5000, "num_edge_types": R}
    graphs = [HeteroGraph.from_arrays(edge_index, types, **options) for _ in range(2)]
    x, whole = torch.randn(5000, 32), native_layer("hgt", graphs[0], 32, 1)
    expected = step(whole, x, graphs[0])
    compiled, _ = program(whole)
    need = compiled.need(graphs[0].sizes, (True,) * len(compiled.inputs)).peak
    for graph in graphs:
        limited = native_layer("hgt", graph, 32, 1, Config(memory=POOL.used + need * 4 // 5))
        step(limited, x, graph)
        assert max(ranges(limited)) > 1
    assert not COUNTED & graphs[1].encoding_bytes().keys()
    dirt = [torch.full((100_000,), -1, dtype=torch.int32) for _ in range(50)]  # takes the place of what was freed
    close(step(whole, x, graphs[0]), expected)
    del dirt


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


PROGRAMS: dict[str, str] = {
    "    for e in g.edges():\n        e.src['y'] += e.dst.x\n": '"y" sums up edges of all destinations',
    "    for n in g.src_nodes():\n        n['y'] = relu(n.x)\n": '"p" reads no edges',
}
"""Loops of programs that no range can compute, and why."""


@pytest.mark.parametrize("loop", PROGRAMS, ids=["sums at sources", "no edges"])
def test_programs_that_no_range_can_compute(loop: str) -> None:
    graph = HeteroGraph.from_arrays(edges()[0], None, num_nodes=N)
    source = ProgramSource(f"def p(g, x: NS[8]):\n{loop}    return y\n", ())
    made = compiled_program(source, torch.float32, torch.int32, Config(memory="1KB"), Profile.of(graph))
    with pytest.raises(MemoryLimitError, match=f"It cannot run in ranges: {PROGRAMS[loop]}"):
        made.run(graph, [torch.randn(N, 8)])


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


def test_encodings_are_not_counted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second call runs as the first did, although less is free by the encodings that this one made."""
    edge_index = torch.randint(2000, (2, 200_000))
    layer, x = pyg.GATConv(8, 8), torch.randn(2000, 8)
    whole = dacergnn.optimize(copy.deepcopy(layer))
    whole(x, edge_index).sum().backward()
    compiled, graph = program(whole)
    need = compiled.need(CountedSizes(graph), tuple(name != "x" for name in compiled.inputs))
    free = 1.1 * need.peak
    monkeypatch.setattr("dacergnn.modules.ways.memory_limit.free_memory", lambda: free)
    limited = dacergnn.optimize(layer, config=Config(memory="auto"))
    limited(x, edge_index).sum().backward()
    free -= sum(program(limited)[1].encoding_bytes().values()) + POOL.free
    assert need.peak > free + POOL.free
    limited(x, edge_index).sum().backward()
    assert ranges(limited) == [1]


def test_reports_estimate_what_a_step_takes() -> None:
    edge_index, _ = edges()
    layer = dacergnn.optimize(pyg.GATConv(8, 6))
    layer(torch.randn(N, 8), edge_index).sum().backward()
    report = dacergnn.explain(layer, verbose=True)
    assert report.layers[0].step_bytes > 0
    assert "beside its inputs, as estimated" in str(report)
