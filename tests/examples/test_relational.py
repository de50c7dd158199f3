"""The relational example: the graph of its tables, what its batches hold, and that it learns as PyG's layers do."""

from __future__ import annotations

import pytest
import torch
from click.testing import CliRunner

pytest.importorskip("torch_geometric")

from examples import relational
from examples.relational_tables import Database, made_database, to_graph


@pytest.fixture
def database() -> Database:
    torch.manual_seed(0)
    return made_database(250)


def test_foreign_keys_are_edges_in_both_directions(database: Database) -> None:
    tables, early, late = database
    data = to_graph(tables)
    customer = tables["reviews"].keys["customer"][1]
    edges = data["reviews", "customer", "customers"].edge_index
    assert torch.equal(edges, torch.stack([torch.arange(len(customer)), customer]))
    assert torch.equal(data["customers", "rev_customer", "reviews"].edge_index, edges.flip(0))
    assert int(early.time.max()) < int(late.time.min())


def test_a_key_that_leads_nowhere_is_no_edge(database: Database) -> None:
    tables = database[0]
    tables["reviews"].keys["product"][1][3] = -1
    edges = to_graph(tables)["reviews", "product", "products"].edge_index
    assert 3 not in edges[0]
    assert edges.size(1) == len(tables["reviews"].numbers) - 1


def test_no_row_of_a_batch_is_later_than_its_seed(database: Database) -> None:
    tables, early, _ = database
    rows = 0
    for batch in relational.make_loader(to_graph(tables), early, shuffle=True):
        seeds, reviews = batch["customers"], batch["reviews"]
        assert bool((reviews.time <= seeds.seed_time[reviews.batch]).all())
        chosen = seeds.input_id
        assert torch.equal(seeds.n_id[: len(chosen)], early.row[chosen])
        assert torch.equal(seeds.seed_time, early.time[chosen])
        assert torch.equal(seeds.y, early.value[chosen])
        rows += len(reviews.time)
    assert rows > 500


@pytest.mark.parametrize("layer", ["sage", "gatv2"])
def test_it_learns_as_the_original_does(layer: str, database: Database) -> None:
    found: list[float] = []
    for original in (False, True):
        torch.manual_seed(1)
        found.append(relational.train(database, layer, epochs=2, original=original))
    assert found[0] == pytest.approx(found[1], abs=5e-3)
    assert found[0] > 0.6


def test_auroc_counts_pairs_in_the_right_order() -> None:
    scores, labels = torch.tensor([0.1, 0.4, 0.35, 0.8]), torch.tensor([0.0, 0.0, 1.0, 1.0])
    assert relational.auroc(scores, labels) == 0.75
    assert relational.auroc(-scores, labels) == 0.25


def test_command_line() -> None:
    result = CliRunner().invoke(relational.main, ["--customers", "60", "--epochs", "1", "--original"])
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("epoch 1: loss 0.")
    assert ", later AUROC 0." in result.stdout


def test_a_data_set_that_cannot_be_read_is_said_in_words() -> None:
    result = CliRunner().invoke(relational.main, ["--relbench", "rel-nowhere", "nothing"])
    assert result.exit_code == 1
    assert "RelBench's rel-nowhere nothing cannot be read" in result.output
    assert "leave --relbench out" in result.output
