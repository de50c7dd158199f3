"""Writes loads of several rows at once: the addresses of all of them, then their elements, into registers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dacergnn.library_nodes.form import Expr, Op, Ref
from dacergnn.library_nodes.targets.cuda.lanes import UNROLL
from dacergnn.library_nodes.traversal.lanes import Lanes

EACH = f"{UNROLL}for (int u = 0; u < kBatch; ++u)"
"""Begins a loop over the rows of a batch."""


@dataclass(frozen=True)
class Load:
    """Holds the code that loads a row of row ``u`` of a batch: declarations of addresses and registers, then loads."""

    name: str
    places: str
    place: str
    registers: str
    load: str
    lanes: Lanes
    run: str
    """The number of a lane's run in the loops that read it."""

    def element(self, at: str, same: bool) -> str:
        """Returns an element of the row: ``at``, or the element that the lane computes."""
        if not same:
            return f"Value({self.name}[u][{at}])"
        return f"Value({self.name}[u][{self.run}]{'[v]' if self.lanes.vector > 1 else ''})"


Loads = Mapping[tuple[str, str], Load]
"""The loads that a loop makes ahead, by array and path."""


def load_of(name: str, kind: str, pointer: str, width: int, lanes: Lanes | None, constant: bool) -> Load:
    """Returns the load of a row of ``width`` elements: those that each of the lanes holds, or all where it is None."""
    places = f"const {kind}* {name}_at[kBatch];"
    place = f"{name}_at[u] = {pointer};"

    def one(offset: str) -> str:
        return f"__ldg({name}_at[u] + {offset})" if constant else f"{name}_at[u][{offset}]"

    if lanes is None:
        registers = f"{kind} {name}[kBatch][{width}];"
        load = f"{UNROLL}for (int n = 0; n < {width}; ++n) {name}[u][n] = {one('n')};"
        return Load(name, places, place, registers, load, Lanes(), "")
    vector, runs = lanes.vector, lanes.held(width) // lanes.vector
    strips = lanes.strips(width) > 1
    kept = f"dacergnn::cuda::Vector<{kind}, {vector}>" if vector > 1 else kind
    value = f"dacergnn::cuda::load_run<{vector}, {str(constant).lower()}>({name}_at[u] + start)"
    number = f"(strip * {runs} + run)" if strips else "run"
    bound = f"if (start < {width}) " if width % (runs * lanes.round) else ""
    load = (
        f"{UNROLL}for (int run = 0; run < {runs}; ++run) {{\n"
        f"const int start = ({number} * {lanes.lanes} + dacergnn::cuda::lane_of<{lanes.lanes}>()) * {vector};\n"
        f"{bound}{name}[u][run] = {value if vector > 1 else one('start')};\n}}"
    )
    return Load(name, places, place, f"{kept} {name}[kBatch][{runs}];", load, lanes, "run" if strips else "j")


def load_lines(loads: Iterable[Load], numbers: str = "") -> list[str]:
    """Returns code that makes loads for all rows of a batch: ``numbers`` of rows, then addresses, then elements."""
    known = [*loads]
    if not known and not numbers:
        return []
    places = [load.place for load in known]
    lines = [*[load.places for load in known], f"{EACH} {{", numbers, *places, "}"]
    lines += [load.registers for load in known]
    return [*lines, f"{EACH} {{", *[load.load for load in known], "}"]


def divisors_of(expr: Expr) -> set[str]:
    """Returns the arrays that an expression divides by."""
    if not isinstance(expr, Op):
        return set()
    found = {name for argument in expr.args for name in divisors_of(argument)}
    by = expr.args[1] if expr.name == "div" else None
    return found | {by.name} if isinstance(by, Ref) and not by.transposed else found
