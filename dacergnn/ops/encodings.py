"""Graph encodings as arguments of an SDFG that DaCe builds and calls."""

from __future__ import annotations

from typing import Any

import dace
from dace import Memlet

from dacergnn.graph import HeteroGraph
from dacergnn.graph.spaces import ROW_SPACES, is_encoding
from dacergnn.library_nodes import GraphOperator
from dacergnn.library_nodes.node import PREFIX, Typeclass
from dacergnn.sdfg_passes.select_adjacency import encoding_length


def connect_encodings(sdfg: dace.SDFG, *, index: Typeclass = dace.int32, implementation: str = "cpu") -> None:
    """Connects every graph operator of ``sdfg``, at any depth, to the encodings that its kernel reads.

    They become arguments of the SDFG; `encoding_arguments` returns their values for a graph.
    """
    for nested in list(sdfg.all_sdfgs_recursive()):
        for state in nested.states():
            for node in [n for n in state.nodes() if isinstance(n, GraphOperator) and not n.encodings]:
                node.implementation = implementation
                names = list(node.plan(implementation, node.arrays(nested, state)).encodings)
                for name in names:
                    _declare(nested, name, index)
                    node.add_in_connector(PREFIX + name)
                    state.add_edge(state.add_read(name), None, node, PREFIX + name, _whole(nested, name))
                node.encodings = names
                for space in _spaces(node):
                    _symbol(nested, space)


def encoding_arguments(sdfg: dace.SDFG, graph: HeteroGraph) -> dict[str, Any]:
    """Returns the values of the encodings and row counts that are arguments of ``sdfg``, by name."""
    names = sdfg.arglist()
    values: dict[str, Any] = {n: graph.encoding(n) for n in names if is_encoding(n)}
    return values | {n: graph.size(n) for n in names if n in ROW_SPACES}


def _spaces(node: GraphOperator) -> list[str]:
    return [space for space in dict.fromkeys(s.space for s in node.statements) if space != "ONE"]


def _declare(sdfg: dace.SDFG, name: str, index: Typeclass) -> None:
    """Declares an encoding in an SDFG and in all SDFGs around it."""
    if name in sdfg.arrays:
        return
    length = encoding_length(name)
    sdfg.add_array(name, [length], index)
    for symbol in map(str, getattr(length, "free_symbols", ())):
        _symbol(sdfg, symbol)
    node, state, parent = _place(sdfg)
    if parent is not None:
        _declare(parent, name, index)
        node.add_in_connector(name)
        state.add_edge(state.add_read(name), None, node, name, _whole(parent, name))


def _symbol(sdfg: dace.SDFG, name: str) -> None:
    if name not in sdfg.symbols:
        sdfg.add_symbol(name, dace.int64)
    node, _, parent = _place(sdfg)
    if parent is not None:
        node.symbol_mapping.setdefault(name, dace.symbol(name, dtype=dace.int64))
        _symbol(parent, name)


def _place(sdfg: Any) -> tuple[Any, Any, dace.SDFG | None]:
    """Returns the node, the state and the SDFG around a nested one."""
    return sdfg.parent_nsdfg_node, sdfg.parent, sdfg.parent_sdfg


def _whole(sdfg: dace.SDFG, name: str) -> Memlet:
    return Memlet.from_array(name, sdfg.arrays[name])
