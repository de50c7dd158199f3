"""Facts of graphs: what they are of a small one, and that they survive a file."""

from __future__ import annotations

import re

import numpy as np
import pytest

from dacergnn import HeteroGraph
from dacergnn.errors import DacergnnError
from dacergnn.graph.profile import Profile
from dacergnn.tuning.graph_facts import GraphFacts


def star() -> HeteroGraph:
    """Node 0 has an edge of relation 0 from each of nodes 1 to 4, and from node 1 one of relation 1."""
    return HeteroGraph.from_arrays(
        (np.array([1, 2, 3, 4, 1]), np.zeros(5, np.int64)), np.array([0, 0, 0, 0, 1]), num_nodes=6
    )


def test_lengths_of_groups() -> None:
    facts = GraphFacts.of(star())
    assert facts.sizes["E"] == 5
    assert facts.quantiles["dst"] == (0, 0, 0, 0, 5, 5, 5)
    assert facts.quantiles["src"] == (0, 1, 1, 1, 2, 2, 2)
    assert facts.quantiles["dstpair"] == (1, 4, 4, 4, 4, 4, 4)
    assert facts.quantiles["srcpair"] == (1,) * 7


def test_facts_are_kept_with_the_graph() -> None:
    graph = star()
    assert GraphFacts.of(graph) is GraphFacts.of(graph)
    facts, profile = GraphFacts.of(graph), Profile.of(graph)
    assert (facts.rows, facts.single_typed, facts.hubs) == (profile.rows, profile.single_typed, profile.hubs)


def test_a_graph_without_edges_has_facts() -> None:
    empty = HeteroGraph.from_arrays(np.zeros((2, 0), np.int64), None, num_nodes=0, num_edge_types=1)
    facts = GraphFacts.of(empty)
    assert set(facts.quantiles.values()) == {(0,) * 7}
    assert GraphFacts.from_json(facts.to_json()) == facts


def test_facts_survive_a_file() -> None:
    facts = GraphFacts.of(star())
    text = facts.to_json()
    assert "\n" not in text
    assert GraphFacts.from_json(text) == facts


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"rows": {}, "single_typed": true, "hubs": {}, "lengths": {}}'])
def test_other_text_is_an_error(text: str) -> None:
    with pytest.raises(DacergnnError, match=re.escape(f"facts: {text[:60]!r}")):
        GraphFacts.from_json(text)
