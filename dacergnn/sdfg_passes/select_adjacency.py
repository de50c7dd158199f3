"""Adjacency selection: connects the graph encodings that each operator's kernel reads (Hector 3.3.2, 3.6).

Precondition: an inter-operator SDFG. Before: ``for n: for e in n.incoming_edges(): n["out"] += e["att"] * e.src["h"]``.
After: the same with ``ptr_ND``-style row pointers, row lists and index lists connected, which fixes the access
scheme. Saves nothing itself; what no kernel reads is never encoded.
"""

from __future__ import annotations

import copy
import math
from functools import lru_cache
from typing import Any

import dace
from dace.data import Array

from dacergnn.config import ell_slots
from dacergnn.errors import DacergnnError
from dacergnn.graph.profile import TYPICAL, Profile
from dacergnn.graph.spaces import MAPS, parse_encoding
from dacergnn.library_nodes import Traversal
from dacergnn.library_nodes.node import Typeclass
from dacergnn.library_nodes.traversal.formats import edge_groups, misfit
from dacergnn.program import Program
from dacergnn.program.view import SYMBOLS

SMALL_MATRIX = 2**26
"""Bytes that an ELLPACK matrix may always take."""


def select_adjacency(
    sdfg: dace.SDFG,
    *,
    index: Typeclass = dace.int32,
    implementation: str = "cpu",
    adjacency: str = "csr",
    profile: Profile = TYPICAL,
) -> None:
    """Fix implementation, sparse format and encodings of every operator of ``sdfg``, in place.

    Args:
        index: Element type of encodings.
        implementation: Expansion of the operators; those for devices, and "pure", know compressed rows only.
        adjacency: Format of the traversals that it fits (`Config.adjacency`); the others keep "csr".
        profile: The graph to choose for.

    Raises:
        DacergnnError: ELLPACK would have more slots for each edge of this graph than was asked for.
    """
    program = Program(sdfg)
    for operator in program.operators:
        operator.implementation = implementation
        arrays = operator.arrays(sdfg, program.state)
        if isinstance(operator, Traversal) and implementation == "cpu":
            operator.adjacency = _format(operator, adjacency, profile, index)
        names = operator.scheme(implementation, arrays)
        for name in names:
            if name not in sdfg.arrays:
                sdfg.add_datadesc(name, copy.copy(_template(name, index)))
        operator.encodings = names
        program.connect_inputs(operator, names)


def _format(operator: Any, adjacency: str, profile: Profile, index: Typeclass) -> str:
    """The sparse format of a traversal."""
    asked = adjacency.partition(":")[0]
    if asked == "auto" or misfit(asked, operator.space, operator.statements, hubs=operator.split_hubs) is not None:
        return "csr"
    slots = ell_slots(adjacency)
    if slots is not None and profile.longest:
        _check_padding(operator, slots, profile, index)
    return asked


def _check_padding(operator: Any, slots: float, profile: Profile, index: Typeclass) -> None:
    """Raises if the ELLPACK matrix of a traversal is large, and has more than so many slots for each edge."""
    found = edge_groups(operator.space, operator.statements)
    assert found is not None
    outer, inner, path = found
    groups, width, edges = profile.sizes[outer], profile.longest[path], profile.sizes[inner]
    size = groups * width * index.bytes
    if size > SMALL_MATRIX and groups * width > slots * edges:
        ratio = math.ceil(groups * width / max(edges, 1))
        raise DacergnnError(
            f"adjacency: ELLPACK of {groups:,} rows of {outer} with up to {width:,} edges takes {size / 2**20:,.0f} MiB, "
            f'{ratio} slots for each edge; use "hybrid" or "csr", or ask for it with "ell:{ratio}".'
        )


@lru_cache(maxsize=1024)
def _template(name: str, index: Typeclass) -> Array:
    return Array(index, [encoding_length(name)])


def encoding_length(name: str) -> object:
    """Number of elements of an encoding, as a symbolic expression; of an ELLPACK matrix, that of the edges in it."""
    kind, space, paths = parse_encoding(name)
    if kind in ("ptr", "len", "reg"):
        return SYMBOLS[MAPS[space, paths[0]]] + 1
    return SYMBOLS.get(space, 1)  # ONE is no symbol
