"""Says of the groups of operators that run together what kind they are, what they cost, and what bounds their time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import dace

from dacergnn.config import Rates
from dacergnn.cost import Cost, operator_cost
from dacergnn.library_nodes import GraphOperator

_PRODUCTS = {"linear": "segment GEMM", "outer_prod": "outer product"}


def kind_of(group: Sequence[GraphOperator]) -> str:
    """Returns the kinds of the operators of a group in words."""
    return ", ".join(dict.fromkeys(map(_kind, group)))


def cost_of(group: Sequence[GraphOperator], sdfg: dace.SDFG, graphs: Iterable[Mapping[str, int]]) -> Cost:
    """Returns the cost of a group of an SDFG on all graphs, of which each is given by its sizes."""
    return sum((operator_cost(sdfg, o, sizes) for sizes in graphs for o in group), Cost())


def bound_of(cost: Cost, rates: Rates) -> float:
    """Returns the longest of the times, in ms, that FLOPs, streamed and gathered bytes take."""
    return 1e3 * max(cost.flops / rates.flops, cost.streamed / rates.streamed, cost.gathered / rates.gathered)


def _kind(operator: GraphOperator) -> str:
    gemm = next((s.gemm for s in operator.statements if s.is_gemm), None)
    return "traversal" if gemm is None else _PRODUCTS.get(gemm.kind, "weight product")
