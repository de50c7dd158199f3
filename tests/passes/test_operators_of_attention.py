"""How many operators relational attention with one head comes to in inference, as sizes of the graph choose them."""

from __future__ import annotations

from typing import Any

import dace
import pytest

from dacergnn import Config, parse
from dacergnn.frontends.programs import hgt, rgat
from dacergnn.graph.profile import Profile
from dacergnn.library_nodes import Traversal
from dacergnn.program import Program
from dacergnn.sdfg_passes import compile_program
from tests.support.rewrites import sizes

RGAT: dict[str, Any] = {
    "x": "NS[64]", "W": "R[64, 64]", "q": "ONE[1, 64]", "k": "ONE[1, 64]", "bias": "ONE[1, 64]",
    "heads": 1, "channels": 64, "slope": 0.2,
}  # fmt: skip
HGT: dict[str, Any] = {
    "x": "NS[64]", "W_k": "T[64, 64]", "W_q": "T[64, 64]", "W_v": "T[64, 64]", "W_att": "R[1, 64, 64]",
    "W_msg": "R[1, 64, 64]", "pri": "R[1]", "A": "T[64, 64]", "skip": "T",
    "heads": 1, "dim": 64, "width": 64, "scale": 0.25,
}  # fmt: skip
FEW_SOURCES, FEW_DESTINATIONS = {"U": 2_000, "V": 900_000}, {"U": 900_000, "V": 2_000}


def operators(source: Any, bindings: dict[str, Any], **rows: int) -> list[Any]:
    profile = Profile(tuple(sizes(**rows).items()), single_typed=True)
    found = compile_program(parse(source, **bindings), [], Config(), dace.int32, profile, keep=False)
    return Program(found.forward).operators


def counts(found: list[Any]) -> dict[str, int]:
    """Operators on weights, loops over edges, loops over nodes or pairs, and products."""
    kinds = {"weights": 0, "edges": 0, "rows": 0, "products": 0}
    for operator in found:
        spaces = {s.space for s in operator.statements}
        if spaces == {"R"}:
            kinds["weights"] += 1
        elif isinstance(operator, Traversal):
            kinds["edges" if "E" in spaces else "rows"] += 1
        else:
            kinds["products"] += 1
    return kinds


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        # The score of a source shares its product with the message.
        (FEW_SOURCES, {"weights": 1, "edges": 1, "rows": 0, "products": 1}),
        # Both scores are products with vectors, which one loop folds into weights; a source's is one with its message.
        ({}, {"weights": 1, "edges": 1, "rows": 0, "products": 1}),
        # Rows of sources come in order: they are not looked for, and a loop of its own reads them.
        ({"R": 1, "T": 1, "U": 10_000, "V": 10_000}, {"weights": 1, "edges": 1, "rows": 1, "products": 1}),
    ],
    ids=["few_sources", "usual", "one_relation"],
)
def test_rgat(rows: dict[str, int], expected: dict[str, int]) -> None:
    assert counts(operators(rgat, RGAT, **rows)) == expected


@pytest.mark.parametrize(
    ("rows", "folded"),
    [
        (FEW_SOURCES, {"W_k_W_att", "W_v_W_msg"}),
        (FEW_DESTINATIONS, {"W_k_W_att", "W_q_W_k_W_att", "W_v_W_msg"}),
    ],
    ids=["few_sources", "few_destinations"],
)
def test_hgt_folds_weights_of_types_into_those_of_relations(rows: dict[str, int], folded: set[str]) -> None:
    """One matrix a relation for the message, and one for the logit, on the side of fewer pairs.

    Where that are the destinations, loops over edges read the rows of sources as they are, for logits and messages.
    """
    found = operators(hgt, HGT, **rows)
    assert {s.target.name for o in found if o.space == "R" for s in o.statements} == folded
    if rows is FEW_SOURCES:
        assert counts(found)["edges"] == 1
        return
    loops = [s for o in found if isinstance(o, Traversal) for s in o.statements if s.space == "E"]
    assert {r.name for s in loops for r in s.reads if r.path in ("src", "srcpair")} == {"x"}
