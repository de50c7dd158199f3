"""Plans of devices and their code agree on the elements that a lane reads of its own rows."""

from __future__ import annotations

import pytest

from dacergnn import parse
from dacergnn.library_nodes.form import Ref, Statement
from dacergnn.library_nodes.plan import Arrays
from dacergnn.library_nodes.targets.cuda.lanes import LaneEmitter
from dacergnn.library_nodes.traversal.lanes import Lanes, own_elements
from dacergnn.program import Program
from tests.nodes.statements import traversals
from tests.support.random_programs import random_case


def statements(text: str) -> list[tuple[Statement, Arrays]]:
    program = Program(parse(text))
    found: list[tuple[Statement, Arrays]] = []
    for operator in program.operators:
        facts = operator.facts(operator.arrays(program.sdfg, program.state))
        found += [(statement, facts) for statement in operator.statements if not statement.is_gemm]
    return found


def check(statement: Statement, arrays: Arrays) -> None:
    read: set[tuple[Ref, bool]] = set()

    def note(ref: Ref, at: str, same: bool) -> str:
        read.add((ref, same))
        return f"{ref.name}[{at}]"

    shape = arrays.shapes(statement.target)
    LaneEmitter(arrays.shapes, Lanes(4), note).spread(statement.expr, shape, lambda value: f"out = {value};")
    assert set(own_elements(statement.expr, shape, arrays.shapes)) == read, statement


def check_all(text: str) -> int:
    """Checks the statements whose rows have a shape; returns how many."""
    found = [(s, arrays) for s, arrays in statements(text) if arrays.shapes(s.target)]
    for statement, arrays in found:
        check(statement, arrays)
    return len(found)


def test_kinds_of_statements() -> None:
    assert check_all(traversals()) > 100


@pytest.mark.parametrize("seed", range(0, 400, 20))
def test_random_statements(seed: int) -> None:
    for number in range(seed, seed + 20):
        check_all(random_case(number).text)
