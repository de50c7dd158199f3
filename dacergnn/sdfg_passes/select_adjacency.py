"""Selects adjacencies: connects the graph encodings that each operator's kernel reads (Hector 3.3.2, 3.6).

Precondition: an inter-operator SDFG. Before: ``for n: for e in n.incoming_edges(): n["out"] += e["att"] * e.src["h"]``.
After: the same with ``ptr_ND``-style row pointers, row lists and index lists connected, which fixes the access
scheme. Saves nothing itself; encodings that no kernel reads are never made.

``adjacency`` of a traversal is the sparse format that its kernel runs on (`traversal.formats`): the requested format
where it fits, else compressed rows. "auto" takes another format where `adjacency_cost` finds it clearly cheaper.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import dace
from dace.data import Array

from dacergnn.config import ADJACENCIES, ELL_SLOTS, Rates, ell_slots
from dacergnn.errors import DacergnnError
from dacergnn.graph.profile import Profile
from dacergnn.graph.spaces import MAPS, is_encoding, parse_encoding
from dacergnn.library_nodes import Traversal
from dacergnn.library_nodes.node import Typeclass, row_space
from dacergnn.library_nodes.traversal.formats import edge_groups, misfit
from dacergnn.program import Program
from dacergnn.program.view import SYMBOLS
from dacergnn.sdfg_passes.adjacency_cost import format_seconds
from dacergnn.sdfg_passes.base import Pass
from dacergnn.sdfg_passes.context import Context
from dacergnn.target import find

SMALL_MATRIX = 2**26
"""Bytes that an ELLPACK matrix may always take."""
CLEARLY = 0.8
"""Share of the price of compressed rows below which another format replaces them."""


@dataclass(frozen=True)
class SelectAdjacency(Pass):
    """Fixes implementation, sparse format and encodings of every operator; counts the operators that change.

    Implementations for devices, and "pure", know compressed rows only. A plan names a traversal by the array that it
    writes first.

    Args:
        adjacency: Format of the traversals that it fits (`Config.adjacency`); the others keep "csr".
        index: Element type of encodings.

    Raises:
        DacergnnError: ELLPACK would have more slots for each edge of the graph than was asked for, or the target has no
            kernels for the format.
    """

    name: ClassVar[str] = "select_adjacency"
    adjacency: str = "csr"
    index: Typeclass = dace.int32

    def run(self, sdfg: dace.SDFG, context: Context) -> int:
        adjacency, index, profile, rates = self.adjacency, self.index, context.profile, context.rates
        implementation, questions = context.implementation, context.questions
        program, changed = Program(sdfg), 0
        traversals: list[Any] = [o for o in program.operators if isinstance(o, Traversal)]
        formats = find(implementation).adjacencies
        if adjacency.partition(":")[0] not in ("auto", *formats):
            raise DacergnnError(
                f"adjacency={adjacency!r}: kernels of {implementation!r} run on {', '.join(formats)} only; leave "
                'adjacency out, or pass implementation="cpu".'
            )
        if len(formats) > 1:
            for operator in traversals:
                form = _format(operator, sdfg, adjacency, index.bytes, profile, rates)
                operator.adjacency = form
                if edge_groups(operator.space, operator.statements) is not None:
                    name = operator.statements[0].target.name
                    wished = form == "ell" or (
                        questions.given(name) == "ell" and _padding(operator, ELL_SLOTS, index.bytes, profile) is None
                    )
                    fit = _fitting(operator, sdfg, profile, wished=wished)
                    operator.adjacency = questions.ask(name, fit, form)
        for operator in program.operators:
            before = operator.implementation, operator.encodings
            operator.implementation = implementation
            names = list(operator.plan(implementation, operator.arrays(sdfg, program.state)).encodings)
            for name in names:
                if name not in sdfg.arrays:
                    sdfg.add_datadesc(name, copy.copy(_template(name, index)))
            operator.encodings = names
            program.connect_inputs(operator, names)
            changed += before != (operator.implementation, operator.encodings)
        return changed


def _format(operator: Any, sdfg: dace.SDFG, asked: str, index: int, profile: Profile, rates: Rates) -> str:
    """Returns the sparse format of a traversal; ``index`` is the number of bytes of an index."""
    form = asked.partition(":")[0]
    if form == "auto":
        return _cheapest(operator, sdfg, index, profile, rates)
    if not _fits(operator, sdfg, form):
        return "csr"
    slots = ell_slots(asked)
    if slots is not None:
        problem = _padding(operator, slots, index, profile)
        if problem is not None:
            raise DacergnnError(f"adjacency={asked!r}: {problem}")
    return form


def _fits(operator: Any, sdfg: dace.SDFG, form: str) -> bool:
    """Returns whether a traversal can run on a format; for COO, another array must tell the number of groups."""
    if misfit(form, operator.space, operator.statements, hubs=operator.split_hubs) is not None:
        return False
    if form != "coo":
        return True
    operators: list[Any] = Program(sdfg).operators
    inside = {name for o in operators for name in o.locals}
    counted = {row_space(desc) for name, desc in sdfg.arrays.items() if name not in inside and not is_encoding(name)}
    return operator.space in counted


def _fitting(operator: Any, sdfg: dace.SDFG, profile: Profile, *, wished: bool) -> list[str]:
    """Returns the formats that a traversal can run on; ELLPACK only if it is ``wished``, or has little padding."""
    fit = [f for f in ADJACENCIES[1:] if _fits(operator, sdfg, f)]
    if "ell" in fit and not wished and _slots(operator, profile) > ELL_SLOTS:
        fit.remove("ell")
    return fit


def _slots(operator: Any, profile: Profile) -> float:
    """Returns the slots of an ELLPACK matrix for each edge."""
    outer, inner, path = _grouping(operator)
    return profile.sizes[outer] * profile.longest.get(path, 0) / max(profile.sizes[inner], 1)


def _cheapest(operator: Any, sdfg: dace.SDFG, index: int, profile: Profile, rates: Rates) -> str:
    """Returns the cheapest format, if it is clearly cheaper than compressed rows; else "csr"."""
    if not profile.longest or edge_groups(operator.space, operator.statements) is None:
        return "csr"
    seconds = format_seconds(operator, sdfg, profile.sizes, profile.longest, index, rates)
    fit = [n for n in seconds if _fits(operator, sdfg, n)]
    if _padding(operator, ELL_SLOTS, index, profile) is not None:
        fit.remove("ell")
    best = min(fit, key=seconds.__getitem__)
    return best if seconds[best] < CLEARLY * seconds["csr"] else "csr"


def _padding(operator: Any, slots: float, index: int, profile: Profile) -> str | None:
    """Returns what is wrong with an ELLPACK matrix that is large and has more than ``slots`` slots per edge."""
    outer, inner, path = _grouping(operator)
    groups, width, edges = profile.sizes[outer], profile.longest.get(path, 0), profile.sizes[inner]
    size = groups * width * index
    if size <= SMALL_MATRIX or groups * width <= slots * edges:
        return None
    ratio = math.ceil(groups * width / max(edges, 1))
    return (
        f"ELLPACK of {groups:,} rows of {outer} with up to {width:,} edges takes {size / 2**20:,.0f} MiB, {ratio} "
        f'slots for each edge; use "hybrid" or "csr", or ask for it with "ell:{ratio}".'
    )


def _grouping(operator: Any) -> tuple[str, str, str]:
    """Returns the row spaces of the groups and of the edges of a traversal, and the path between them."""
    grouping = edge_groups(operator.space, operator.statements)
    assert grouping is not None
    return grouping


@lru_cache(maxsize=1024)
def _template(name: str, index: Typeclass) -> Array:
    return Array(index, [encoding_length(name)])


def encoding_length(name: str) -> object:
    """Returns the symbolic number of elements of an encoding; for an ELLPACK matrix, the number of its edges."""
    kind, space, paths = parse_encoding(name)
    if kind in ("ptr", "len", "reg"):
        return SYMBOLS[MAPS[space, paths[0]]] + 1
    return SYMBOLS.get(space, 1)  # ONE is no symbol
