"""Writes loads of several rows at once: the addresses of all of them, then their elements, into registers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dacergnn.library_nodes.form import Expr, Op, Ref
from dacergnn.library_nodes.targets.cuda.lanes import UNROLL
from dacergnn.library_nodes.traversal.lanes import Lanes
from dacergnn.library_nodes.traversal.storage import WIDE


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


@dataclass(frozen=True)
class Loads:
    """Holds the loads that a loop makes ahead, by array and path."""

    by_row: Mapping[tuple[str, str], Load]


def load_of(name: str, kind: str, pointer: str, width: int, lanes: Lanes, constant: bool) -> Load:
    """Returns the load of a row of ``width`` elements: all by each lane if it is narrow, else the lane's own."""
    places = f"const {kind}* {name}_at[kBatch];"
    place = f"{name}_at[u] = {pointer};"

    def one(offset: str) -> str:
        return f"__ldg({name}_at[u] + {offset})" if constant else f"{name}_at[u][{offset}]"

    if width < WIDE:
        registers = f"{kind} {name}[kBatch][{width}];"
        load = f"{UNROLL}for (int n = 0; n < {width}; ++n) {name}[u][n] = {one('n')};"
        return Load(name, places, place, registers, load, lanes, "")
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


def divisors_of(expr: Expr) -> set[str]:
    """Returns the arrays that an expression divides by."""
    if not isinstance(expr, Op):
        return set()
    found = {name for argument in expr.args for name in divisors_of(argument)}
    by = expr.args[1] if expr.name == "div" else None
    return found | {by.name} if isinstance(by, Ref) and not by.transposed else found
