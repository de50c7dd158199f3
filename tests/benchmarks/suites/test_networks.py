"""The suite of whole networks: its graphs, peers that compute the same, losses that are compared, a whole run."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from benchmarks.commands import main
from dacergnn.bench.runner import TOLERANCE, Turns
from dacergnn.json_lines import load

pytest.importorskip("torch_geometric")

from benchmarks.networks import steps
from benchmarks.networks.graphs import ever_new, random_problem
from benchmarks.networks.layers import KINDS
from benchmarks.networks.network import COMPILED, ORIGINAL, OURS
from benchmarks.networks.steps import losses_of
from benchmarks.networks.tables import means, table
from benchmarks.networks.training import OneLayer, Training

TINY = 120


@pytest.mark.parametrize("name", KINDS)
def test_peers_compute_what_the_original_layers_do(name: str) -> None:
    case = Training(name, TINY)
    peers = [candidate for candidate in case.names() if candidate not in (OURS, COMPILED)]  # others compare ours
    if any("DGL" in peer for peer in peers):
        pytest.importorskip("dgl")
    errors = {peer: case.ready(peer).check() for peer in peers if not peer.startswith("cached")}
    assert errors[ORIGINAL] == 0
    assert max(map(float, errors.values())) < TOLERANCE, errors


@pytest.mark.check
@pytest.mark.parametrize("name", KINDS)
def test_a_hundred_steps_with_dropout_have_the_losses_of_the_original(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dropout draws the numbers of the original; rounding grows over the steps, as that of parameters does."""
    monkeypatch.setattr("benchmarks.networks.steps.VALIDATED", 100)
    case, found = Training(name, 1000), dict[str, tuple[torch.Tensor, torch.Tensor]]()
    for candidate in (ORIGINAL, OURS):
        losses = losses_of(*case.made(candidate), case.stream())
        found[candidate] = losses, torch.get_rng_state()
    (expected, state), (losses, own) = found[ORIGINAL], found[OURS]
    assert torch.equal(state, own)
    torch.testing.assert_close(losses[:10], expected[:10], rtol=1e-6, atol=0)
    network, form = case.made(ORIGINAL)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(1 + 1e-7 * torch.randn_like(parameter))
    rounded = float(((losses_of(network, form, case.stream()) - expected) / expected).abs().max())
    torch.testing.assert_close(losses, expected, rtol=max(1e-3, 3 * rounded), atol=0)


def test_each_step_has_a_new_graph_and_each_candidate_the_same_ones() -> None:
    one, other = (ever_new(KINDS["RGCN"], TINY, 0, "cpu") for _ in range(2))
    first, second = next(one)[0], next(one)[0]
    again = next(other)[0]
    assert not torch.equal(first.edges[0], second.edges[0])
    assert torch.equal(first.edges[0], again.edges[0])
    assert first.edges[0] is not again.edges[0], "nothing that is kept for a tensor is there"


def test_random_graphs_have_edges_both_ways_between_all_types() -> None:
    problem = random_problem(250, 3)
    assert problem.num_edges == 246
    pairs = set(zip(problem.src.tolist(), problem.dst.tolist(), strict=True))
    assert {(d, s) for s, d in pairs} == pairs
    assert len(pairs) == 246
    assert {d for _, d in problem.relations} == {0, 1, 2}


def test_time_leaves_out_the_making_of_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    events = list[str]()
    step: Any = SimpleNamespace(prepare=lambda: events.append("made"))
    monkeypatch.setattr(steps, "clock_of", lambda device: SimpleNamespace(time=lambda call: len(events)))
    assert Training("GCN", TINY).clock("cpu").time(step) == 1


def test_losses_leave_parameters_as_they_were() -> None:
    case = Training("SAGE", TINY)
    network, form = case.made(ORIGINAL)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    one, other = (losses_of(network, form, case.stream()) for _ in range(2))
    assert torch.equal(one, other)
    assert len(one.unique()) == steps.VALIDATED, "the network learns"
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


def test_graphs_of_timed_steps_come_after_those_of_losses() -> None:
    stream = steps.repeated((number, torch.zeros(1)) for number in range(9))
    assert [graph for graph, _ in steps.unseen(islice(stream(), 8))] == [5, 6, 7]


def test_losses_on_batches_are_those_of_the_same_batches() -> None:
    case = Training("RGCN", data="pubmed~0.05", batches=True)
    assert [case.ready(candidate).check() for candidate in (ORIGINAL, "plain 0")] == [0, pytest.approx(0, abs=1e-5)]


@pytest.mark.parametrize("experiment", [Training, OneLayer])
def test_what_computes_something_else_takes_no_turns(
    experiment: type[Training], monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(self: Training, candidate: str) -> Any:
        module, arguments = made(self, candidate)
        if candidate == OURS:
            next(module.parameters()).register_hook(torch.neg)
        return module, arguments

    made = experiment.made
    monkeypatch.setattr(experiment, "made", wrong)
    monkeypatch.setattr("benchmarks.networks.network.optimize", lambda module: module)
    turns = Turns(experiment("SAGE", TINY), ("train",), "cpu")
    assert turns.add(ORIGINAL)["status"] == "ok"
    assert turns.add(OURS)["status"] == "wrong"
    assert [*turns.steps["train"]] == [ORIGINAL]


def test_tables_compare_with_ours() -> None:
    about = {"network": "GCN", "edges": 250, "data": "", "status": "ok", "note": "", "max_error": 1e-8}
    times = {"train_p20_ms": 2.0, "train_p80_ms": 2.0, "train_samples": 9}
    rows = [about | times | {"library": library, "name": name, "train_ms": ms, "peak_mb": peak}
            for library, name, ms, peak in (("PyG", "", 3.0, 8.0), ("ours", "ours", 2.0, 4.0))]  # fmt: skip
    rows.append(about | {"library": "DGL", "name": "0", "status": "wrong", "note": "differs"})
    text = table(rows).markdown()
    assert "| GCN | 250 edges | PyG | 3 | 2 | 2 | 1.50 | 8 | 2.00 | 1e-08 |" in text
    assert "| GCN | 250 edges | DGL 0 | wrong |" in text
    assert "GCN, 250 edges, DGL 0: differs" in table(rows).text()
    assert "| 250 edges | PyG | 1.50 (1.50) |" in means(rows).markdown()


@pytest.mark.parametrize(
    ("options", "message"),
    [(["--networks", "GNN"], "networks: 'GNN' (entry 1) is unknown"), (["--peers", "tf"], "peers: 'tf' (entry 1)")],
)
def test_unknown_names(options: list[str], message: str) -> None:
    result = CliRunner().invoke(main, ["networks", *options])
    assert message in result.output


@pytest.mark.check
def test_a_quick_run(tmp_path: Path) -> None:
    path = tmp_path / "networks.jsonl"
    options = ["--quick", "--threads", "1", "--networks", "SAGE", "--json", str(path)]
    result = CliRunner().invoke(main, ["networks", *options])
    assert result.exit_code == 0, result.output
    _, *rows = load(path)
    assert [row["library"] for row in rows] == [ORIGINAL, OURS]
    for row in rows:
        assert (row["network"], row["edges"], row["status"]) == ("SAGE", 250, "ok")
        assert row["train_ms"] > 0
    assert "Geometric means over networks" in result.output
