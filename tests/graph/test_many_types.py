"""Graphs of a hundred million types, few of which have edges: nothing is made for each type."""

from __future__ import annotations

import random

import pytest
import torch

import dacergnn
from dacergnn.graph import HeteroGraph
from dacergnn.graph.names import NumberNames

MANY = 10**8
EDGES = torch.tensor([[0, 1, 2, 2, 3], [1, 0, 1, 0, 1]])
# The first relation has fewer sources, the second fewer destinations, so that there are both parts.
FEW = torch.tensor([0, 1, 1, 1, 0])
KINDS = torch.tensor([0, 0, 1, 1])


def graph(types: torch.Tensor, **options: int) -> HeteroGraph:
    return HeteroGraph.from_arrays(EDGES, types, num_nodes=4, node_type=KINDS, **options)


@pytest.fixture(autouse=True)
def no_large_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails what counts something for every type, long before the memory of the machine is used up."""
    for name in ("bincount", "zeros", "empty", "arange"):
        original = getattr(torch, name)

        def small(*args: object, original: object = original, name: str = name, **options: object) -> torch.Tensor:
            sizes = [n for n in (*args, *options.values()) if isinstance(n, int)]
            assert max(sizes, default=0) < MANY, f"torch.{name} of {sizes}"
            return original(*args, **options)  # type: ignore[operator]

        monkeypatch.setattr(torch, name, small)


def test_sizes_and_groups_are_those_of_the_same_graph_with_few_types() -> None:
    few, many = graph(FEW), graph(FEW * (MANY - 1))
    assert many.size("R") == MANY
    expected, found = few.sizes, many.sizes
    assert {s: n for s, n in found.items() if s not in ("R", "RNS")} == {
        s: n for s, n in expected.items() if s not in ("R", "RNS")
    }
    assert many.longest_groups == few.longest_groups
    assert many.single_typed == few.single_typed
    for name in ("idx_Es_edge", "idx_Ed_edge", "idx_Us_src", "idx_Vd_dst", "ids_E_etype_src", "ptr_E_dstpair"):
        assert torch.equal(many.encoding(name), few.encoding(name)), name


def test_parts_are_those_of_relations_counted_one_by_one() -> None:
    rng = random.Random(3)
    for _ in range(20):
        edges = [(rng.randrange(4), rng.randrange(4), rng.choice([2, 7, MANY - 1])) for _ in range(rng.randrange(12))]
        src, dst, types = (torch.tensor([e[i] for e in edges], dtype=torch.int64) for i in range(3))
        found = HeteroGraph.from_arrays((src, dst), types, num_nodes=4, num_edge_types=MANY)
        rows = sorted(((t, d, s) for s, d, t in edges), key=lambda row: row[:2])
        fewer = {
            t: len({s for s, _, r in edges if r == t}) <= len({d for _, d, r in edges if r == t}) for _, _, t in edges
        }
        assert found.encoding("idx_Es_edge").tolist() == [i for i, row in enumerate(rows) if fewer[row[0]]]
        assert found.encoding("idx_Ed_edge").tolist() == [i for i, row in enumerate(rows) if not fewer[row[0]]]


def test_a_type_with_several_source_types_is_named_without_naming_all() -> None:
    many = graph(torch.tensor([5, MANY - 1, MANY - 1, 7, 7]))
    assert not many.single_typed
    with pytest.raises(dacergnn.errors.GraphError, match="Edge type 99999999 has source nodes of several types"):
        many.index("R", "srctype")


def test_a_program_that_reads_no_types_runs() -> None:
    program = """
def total(g, x):
    for n in g.dst_nodes():
        n["out"] = sum(e.src.x for e in n.incoming_edges())
    return out
"""
    assert dacergnn.interpret(dacergnn.parse(program, x="NS[2]"), graph(FEW * (MANY - 1)), x=torch.ones(4, 2).numpy())


def test_names_are_made_when_asked_for() -> None:
    names = graph(FEW * (MANY - 1)).edge_type_names
    assert (len(names), names[5], names[-1], names[3:5]) == (MANY, "5", "99999999", ("3", "4"))
    assert names == NumberNames(MANY)
    assert names != ("0", "1")
    assert NumberNames(2) == ("0", "1")
    assert NumberNames(2) == ["0", "1"]
    assert hash(NumberNames(2)) == hash(("0", "1"))
    assert "1" in NumberNames(2)
