"""Adjacency selection: connects the graph encodings that each operator's kernel reads (Hector 3.3.2, 3.6).

Precondition: an inter-operator SDFG. Before: ``for n: for e in n.incoming_edges(): n["out"] += e["att"] * e.src["h"]``.
After: the same with ``ptr_ND``-style row pointers, row lists and index lists connected, which fixes the access
scheme. Saves nothing itself; what no kernel reads is never encoded.
"""

from __future__ import annotations

import copy
from functools import lru_cache

import dace
from dace.data import Array

from dacergnn.graph.spaces import MAPS, parse_encoding
from dacergnn.library_nodes.node import Typeclass
from dacergnn.program import Program
from dacergnn.program.view import SYMBOLS


def select_adjacency(sdfg: dace.SDFG, *, index: Typeclass = dace.int32, implementation: str = "cpu") -> None:
    """Fix implementation and encodings of every operator of ``sdfg``, in place."""
    program = Program(sdfg)
    for operator in program.operators:
        operator.implementation = implementation
        names = operator.scheme(implementation, operator.arrays(sdfg, program.state))
        for name in names:
            if name not in sdfg.arrays:
                sdfg.add_datadesc(name, copy.copy(_template(name, index)))
        operator.encodings = names
        program.connect_inputs(operator, names)


@lru_cache(maxsize=1024)
def _template(name: str, index: Typeclass) -> Array:
    return Array(index, [encoding_length(name)])


def encoding_length(name: str) -> object:
    """Number of elements of an encoding, as a symbolic expression."""
    kind, space, paths = parse_encoding(name)
    if kind == "ptr":
        return SYMBOLS[MAPS[space, paths[0]]] + 1
    return SYMBOLS.get(space, 1)  # ONE is no symbol
