"""Every peer computes the reference function: output and all gradients, in float32 against float64."""

from __future__ import annotations

import pytest
import torch

from benchmarks.relational import ours, peers
from benchmarks.relational.candidate import Candidate, edge_memory, hetero_memory, make_step, unwrapped
from benchmarks.relational.parameters import make_parameters
from benchmarks.relational.problem import IGNORED, Problem, make_problem
from benchmarks.relational.reference import compute_reference, max_error
from dacergnn.errors import DacergnnError

MODELS = ("rgcn", "rgat", "hgt")


def peers_of(library: str) -> list[Candidate]:
    if library in peers.LIBRARIES:
        pytest.importorskip(peers.LIBRARIES[library])
    return [c for model in MODELS for c in peers.candidates(model, (library,))]


@pytest.mark.parametrize("library", ["pyg", "dgl", "torch"])
def test_peers_agree_with_the_float64_reference(library: str, problem: Problem) -> None:
    for candidate in peers_of(library):
        shared = make_parameters(candidate.model, problem)
        built = candidate.build(problem, shared, unwrapped)
        out = make_step(built, problem, train=True)()
        again = make_step(built, problem, train=False)()
        sample = next(iter(again.values())) if isinstance(again, dict) else again
        assert not sample.requires_grad
        if candidate.function:
            reference = compute_reference(candidate.function, problem, shared)
            assert max_error(reference, built, problem, out, train=True) < 2e-6, candidate.name
            assert len({slot.name for slot in built.slots}) >= 3
        else:
            assert not built.slots


@pytest.mark.parametrize("library", ["pyg", "dgl", "torch"])
def test_a_wrong_weight_is_noticed(library: str, problem: Problem) -> None:
    for candidate in peers_of(library):
        if not candidate.function:
            continue
        shared = make_parameters(candidate.model, problem)
        built = candidate.build(problem, shared, unwrapped)
        with torch.no_grad():
            built.slots[0].leaf.add_(0.1)
        out = make_step(built, problem, train=True)()
        reference = compute_reference(candidate.function, problem, shared)
        assert max_error(reference, built, problem, out, train=True) > 1e-3, candidate.name


def test_nan_counts_as_an_infinite_error(problem: Problem) -> None:
    candidate = peers_of("torch")[0]
    shared = make_parameters(candidate.model, problem)
    built = candidate.build(problem, shared, unwrapped)
    reference = compute_reference(candidate.function, problem, shared)
    out = torch.full_like(problem.x, torch.nan)
    assert max_error(reference, built, problem, out, train=False) == torch.inf


def test_problem_has_canonical_order_and_pairs(problem: Problem) -> None:
    keys = problem.etype * problem.num_nodes + problem.dst
    assert torch.equal(keys, keys.sort().values)
    for pairs, ends in ((problem.src_pairs, problem.src), (problem.dst_pairs, problem.dst)):
        assert torch.equal(pairs.node[pairs.of_edge], ends)
        assert torch.equal(pairs.etype[pairs.of_edge], problem.etype)
        assert sum(pairs.type_sizes) == len(pairs.node) < problem.num_edges
    assert problem.edges_of(4).shape == (2, 0)
    assert problem.sizes()["E"] == problem.num_edges == sum(problem.edges_of(r).shape[1] for r in range(6))


def test_nodes_of_types_without_incoming_edges_are_not_labelled() -> None:
    one = torch.tensor([0])
    made = make_problem("one", one, torch.tensor([2]), one, [2, 2], 1, hidden=4)
    assert made.labels[:2].tolist() == [IGNORED, IGNORED]
    assert (made.labels[2:] >= 0).all()


def test_edge_type_between_several_node_types_is_refused() -> None:
    with pytest.raises(DacergnnError, match="every edge type must join one source type"):
        make_problem("mixed", torch.tensor([0, 2]), torch.tensor([1, 3]), torch.zeros(2).long(), [2, 2], 1)


def test_unknown_names_are_refused(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DacergnnError, match="'jax' is unknown"):
        peers.candidates("rgcn", ("jax",))
    with pytest.raises(DacergnnError, match="'gcn' has no reference"):
        compute_reference("gcn", problem, {})
    monkeypatch.setitem(peers.LIBRARIES, "dgl", "no_such_package")
    with pytest.raises(DacergnnError, match=r"needs no_such_package.*leave 'dgl' out"):
        peers.candidates("rgcn", ("dgl",))


def test_memory_estimates_grow_with_training(problem: Problem) -> None:
    pytest.importorskip("torch_geometric")
    fast = next(c for c in peers.candidates("rgcn", ("pyg",)) if c.name == "FastRGCNConv")
    assert fast.memory(problem, False) == problem.num_edges * 16 * 16 * 4
    for estimate in (fast.memory, edge_memory, hetero_memory):
        assert estimate(problem, True) > estimate(problem, False)
    assert ours.candidate("rgcn").memory(problem, True) == 0


def test_compiled_candidates_wrap_the_layer(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []
    monkeypatch.setattr(torch, "compile", lambda layer: seen.append(layer) or layer)
    candidate = peers.through_compiler(peers_of("torch")[0])
    built = candidate.build(problem, make_parameters("rgcn", problem), unwrapped)
    assert candidate.named.compiled
    assert seen == [built.layer]


def test_graph_of_ours_has_the_layers_names(problem: Problem) -> None:
    graph = ours.typed_graph(problem)
    assert graph.size("E") == problem.num_edges
    assert graph.size("U") == problem.sizes()["U"]
    assert graph.edge_type_names[1] == "t1__r1__t0"
