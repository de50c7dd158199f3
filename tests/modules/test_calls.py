"""How compiled layers take their arguments: graphs seen before and new ones, sampled ones, pairs, odd tensors."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import dace
import pytest
import torch
from torch import Tensor

from dacergnn.modules import CompiledLayer
from dacergnn.native import build
from tests.frontends.graphs import block_edges, dgl_graph, typed_edges
from tests.modules.layers import (
    K,
    M,
    R,
    arguments,
    assert_close,
    compiled,
    features,
    gradients,
    hetero_graph,
    hgt,
    hgt_arguments,
    native,
    pyg,
    rgat,
    rgcn,
)


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the programs that were looked for in the build cache since."""
    names: list[str] = []
    original = build.build

    def noted(name: str, code: str, architectures: tuple[int, ...] = ()) -> Path:
        names.append(name)
        return original(name, code, architectures)

    monkeypatch.setattr(build, "build", noted)
    return names


# Graphs -----------------------------------------------------------------------------------------------------


def test_equal_tensors_are_encoded_once() -> None:
    layer, args = compiled(rgcn()), arguments()
    for _ in range(3):
        layer(*args)
    layer(features() * 2, *args[1:])
    assert layer.graphs.encoded == 1


def test_mini_batches_run_the_same_build(builds: list[str]) -> None:
    original = rgcn()
    layer = compiled(original)
    first = arguments()
    layer(*first)
    gradients(layer, first)
    builds.clear()
    for seed in range(1, 6):
        args = arguments(typed_edges(10 * seed, seed))
        assert_close(layer(*args), original(*args))
        assert_close(gradients(layer, args), gradients(original, args))
    assert layer.graphs.encoded == 6
    assert builds == []


def test_a_graph_of_another_size_with_the_same_edges() -> None:
    original, (x, edge_index, edge_type) = rgcn(), arguments()
    layer = compiled(original)
    more = torch.cat([x, x])
    assert_close(layer(x, edge_index, edge_type), original(x, edge_index, edge_type))
    assert_close(layer(more, edge_index, edge_type), original(more, edge_index, edge_type))
    assert layer.graphs.encoded == 2


@pytest.mark.parametrize("position", [1, 2])
def test_edges_changed_in_place_are_noticed(position: int) -> None:
    original, args = rgat(), arguments()
    layer = compiled(original)
    before = layer(*args)
    args[position][..., 0] = 2
    args[position][..., 5] = 0
    assert_close(layer(*args), original(*args))
    assert not torch.allclose(layer(*args), before)


def test_equal_edges_in_other_tensors_share_encodings() -> None:
    layer = compiled(rgcn())
    graphs: list[Any] = []
    for _ in range(2):
        layer(*arguments())
        assert layer.last_call is not None
        graphs.append(layer.last_call[1])
    assert graphs[0] is graphs[1]


def test_many_graphs_do_not_pile_up() -> None:
    layer = compiled(rgcn())
    kept = [arguments(typed_edges(5, seed)) for seed in range(40)]
    with torch.no_grad():
        for args in kept:
            layer(*args)
    assert len(layer.graphs._entries) <= 16  # pyright: ignore[reportPrivateUsage]


def test_sampled_subgraphs() -> None:
    from torch_geometric.utils import k_hop_subgraph

    x, edge_index, edge_type = arguments(typed_edges(90, 5))
    for make in (rgcn, rgat):
        original = make()
        layer = compiled(original)
        for node in (0, 4, 9):
            nodes, edges, _, kept = k_hop_subgraph(node, 2, edge_index, relabel_nodes=True, num_nodes=x.size(0))
            args = x[nodes], edges, edge_type[kept]
            assert_close(layer(*args), original(*args))
            assert_close(gradients(layer, args), gradients(original, args))


@pytest.mark.filterwarnings("ignore:The input graph for the user-defined edge function")  # DGL's, without edges
def test_dgl_blocks() -> None:
    dgl: Any = pytest.importorskip("dgl", reason="dgl 1.1.3 needs Python 3.11")
    g = dgl_graph(typed_edges(90, 5))
    types, x = typed_edges(90, 5).edge_type, features()
    original = dgl.nn.pytorch.RelGraphConv(K, M, R)
    layer = compiled(original)
    for seeds in ([0, 1], [4, 7, 8], [11]):
        frontier = dgl.in_subgraph(g, torch.tensor(seeds))
        block = dgl.to_block(frontier, torch.tensor(seeds))
        kept = frontier.edata[dgl.EID][block.edata[dgl.EID]]
        rows = x[block.srcdata[dgl.NID]]
        assert_close(layer(block, rows, types[kept]), original(block, rows, types[kept]))
        assert layer(block, rows, types[kept]).shape == (len(seeds), M)


def test_pairs_of_sources_and_destinations() -> None:
    edges = block_edges(relations=R)
    original = pyg().RGCNConv((K, 5), M, R)
    layer = compiled(original)
    pair = features(rows=edges.num_src), features(rows=edges.num_dst, channels=5)
    args = pair, edges.edge_index, edges.edge_type
    assert_close(layer(*args), original(*args))
    # More destinations than sources are fine for a pair.
    swapped = (
        (features(rows=edges.num_dst), features(rows=edges.num_src, channels=5)),
        edges.edge_index.flip(0),
        edges.edge_type,
    )
    assert_close(layer(*swapped), original(*swapped))


# Tensors ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [rgcn, rgat])
def test_int32_edges(make: Any) -> None:
    layer, (x, edge_index, edge_type) = compiled(make()), arguments()
    assert torch.equal(layer(x, edge_index.int(), edge_type.int()), layer(x, edge_index, edge_type))


@pytest.mark.parametrize("make", [rgcn, rgat])
def test_inputs_that_are_not_contiguous(make: Any) -> None:
    original, (x, edge_index, edge_type) = make(), arguments()
    layer = compiled(original)
    original.weight.data = original.weight.data.transpose(0, 2).contiguous().transpose(0, 2)
    wide = torch.stack([x, x * 0 + 7], dim=2)
    odd = wide[..., 0], edge_index.T.contiguous().T, torch.stack([edge_type, edge_type], 1)[:, 0]
    assert not any(t.is_contiguous() for t in odd)
    assert_close(layer(*odd), original(x, edge_index, edge_type))
    assert_close(gradients(layer, odd), gradients(original, (x, edge_index, edge_type)))
    # A gradient that is one number for all elements has no strides.
    x = x.requires_grad_()
    ours, theirs = (torch.autograd.grad(m(x, edge_index, edge_type).sum(), x) for m in (layer, original))
    assert_close(ours, theirs)


@pytest.mark.parametrize(
    ("options", "value"),
    [
        ({}, float("inf")),
        ({"aggr": "add"}, float("nan")),
        ({"aggr": "max"}, float("nan")),
        ({"aggr": "min"}, float("inf")),
        ({"num_blocks": 2}, float("nan")),
    ],
)
def test_nan_goes_where_the_original_has_it_in_rgcn(options: dict[str, Any], value: float) -> None:
    original, args = rgcn(**options), arguments()
    args[0][3, 2], args[0][0, 0] = value, value
    layer = compiled(original)
    assert not layer(*args).isfinite().all()
    assert_close(layer(*args), original(*args))
    found, expected = gradients(layer, args), gradients(original, args)
    if value == float("inf"):  # inf a + inf b is inf or NaN, by the order of sums
        for a, b in zip(found, expected, strict=True):
            assert torch.equal(a.isfinite(), b.isfinite())
        found, expected = ([g.nan_to_num(0.0, 0.0, 0.0) for g in grads] for grads in (found, expected))
    assert_close(found, expected)


@pytest.mark.parametrize("options", [{}, {"attention_mechanism": "within-relation"}, {"heads": 2}])
def test_nan_goes_where_the_original_has_it_in_rgat(options: dict[str, Any]) -> None:
    original, args = rgat(**options), arguments()
    args[0][3, 2] = float("nan")
    layer = compiled(original)
    assert layer(*args).isnan().any()
    assert_close(layer(*args), original(*args))
    assert_close(gradients(layer, args), gradients(original, args))


def test_nan_goes_where_the_original_has_it_in_hgt() -> None:
    original, args = hgt(), hgt_arguments()
    args[0]["t9"][1, 2] = float("nan")
    layer = compiled(original)
    assert_close(layer(*args), original(*args))
    assert_close(gradients(layer, args), gradients(original, args))


# Modes of torch ---------------------------------------------------------------------------------------------


def test_saved_arrays_outlive_other_calls() -> None:
    layer, args = compiled(rgat()), arguments()
    expected = gradients(layer, args)
    x = args[0].clone().requires_grad_()
    first = layer(x, *args[1:])
    for seed in range(3):
        gradients(layer, arguments(typed_edges(60, seed)))
    weights = torch.arange(1.0, 1.0 + first.numel()).cos().view_as(first)
    assert torch.equal(torch.autograd.grad((first * weights).sum(), x)[0], expected[0])


def test_two_threads_at_once() -> None:
    calls: list[tuple[CompiledLayer, Any]] = []
    for seed in (1, 2):
        edges = typed_edges(200, seed)
        calls += [(compiled(make()), arguments(edges)) for make in (rgcn, rgat)]
    expected = [gradients(layer, args) for layer, args in calls]
    fresh = [(compiled(layer.original), args) for layer, args in calls]
    problems: list[BaseException] = []

    def work(turn: int) -> None:
        try:
            for step in range(40):
                number = (step * (1 + 2 * turn)) % len(fresh)
                layer, args = fresh[number]
                for found, wanted in zip(gradients(layer, args), expected[number], strict=True):
                    assert torch.equal(found, wanted)
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(turn,)) for turn in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems, problems[0]


@pytest.mark.parametrize("name", ["RGCN", "RGAT", "HGT"])
@pytest.mark.compiled
def test_results_do_not_depend_on_run_or_threads(name: str) -> None:
    edges = typed_edges(20_000, 3)
    graph, layer = hetero_graph(edges), native(name)
    x = features(channels=M if name == "HGT" else K)
    before = torch.get_num_threads()
    try:
        found: list[list[Tensor]] = []
        for threads in (1, 1, 2, 16, 40):
            torch.set_num_threads(threads)
            found.append([layer(x, graph).detach(), *gradients(layer, (x, graph))])
    finally:
        torch.set_num_threads(before)
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(other, found[0], strict=True))


# SDFGs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["RGCN", "compiled"])
def test_save_sdfg_writes_every_step_in_order(name: str, tmp_path: Path) -> None:
    if name == "RGCN":
        layer, args = native("RGCN"), (features(), hetero_graph())
    else:
        layer, args = compiled(rgat()), arguments()
    gradients(layer, args)
    written = layer.save_sdfg(tmp_path / "a" / "b")
    assert written == sorted(written)
    names = [path.name for path in written]
    assert "steps.html" in [path.name for path in written[0].parent.iterdir()]
    assert not any("propagation_postponing" in name for name in names)  # it changes nothing here
    assert names[0] == "00_frontend.sdfg"
    assert [name[2:] for name in names[-2:]] == ["_select_adjacency.sdfg", "_select_adjacency_backward.sdfg"]
    for path in written:
        sdfg = dace.SDFG.from_file(str(path))
        assert sdfg.number_of_nodes() == 1
        sdfg.validate()
