"""Graph operators for `@dace.program` functions; they insert library nodes and mix with NumPy-style DaCe code.

The first dimension of every array they take is a row space, one of the symbols below; all other sizes are
numbers. `dacergnn.compile` makes such a program a function of a graph and tensors::

    @dacergnn.compile
    @dace.program
    def layer(x: dace.float32[NS, 16], W: dace.float32[R, 16, 8], a: dace.float32[E]):
        return np.maximum(aggregate(typed_linear(x, W, end="src"), weight=edge_softmax(a)), 0.0)

    out = layer(graph, x, W, a)

DaCe itself can also build, differentiate and call the SDFG: `connect_encodings` makes the encodings that operators read
its arguments, and `encoding_arguments` returns their values::

    sdfg = layer.to_sdfg()
    dace.autodiff.add_backward_pass(sdfg, ["loss"], ["x", "W"])
    dacergnn.ops.connect_encodings(sdfg)
    sdfg(x=x, W=W, ..., **dacergnn.ops.encoding_arguments(sdfg, graph))
"""

from __future__ import annotations

from typing import Any, NoReturn

from dacergnn.errors import UnsupportedCallError
from dacergnn.frontends.dace_program import replacements
from dacergnn.ops import gradients as gradients
from dacergnn.ops.encodings import connect_encodings, encoding_arguments
from dacergnn.program.view import SYMBOLS

__all__ = [
    "ND",
    "NS",
    "E",
    "R",
    "T",
    "U",
    "V",
    "aggregate",
    "connect_encodings",
    "destinations",
    "edge_softmax",
    "encoding_arguments",
    "gather",
    "scatter",
    "traverse",
    "typed_linear",
]

NS, ND, E, U, V, R, T = (SYMBOLS[space] for space in ("NS", "ND", "E", "U", "V", "R", "T"))


def gather(x: Any, end: str = "src") -> Any:
    """Returns for each edge, [E, ...], its source's row from rows of nodes x [NS, ...] or of their types x [T, ...].

    ``end="dst"`` takes the row of the destination, ``end="type"`` the row of the edge type from x [R, ...].
    """
    _outside("gather")


def destinations(x: Any) -> Any:
    """Returns [ND, ...] the rows of destinations, from rows of sources x [NS, ...] or of their types x [T, ...]."""
    _outside("destinations")


def typed_linear(x: Any, W: Any, end: str | None = None, heads: int | None = None) -> Any:
    """Multiplies rows by the matrix of their type: x [E, K] by W [R, K, M], or x [NS, K] by W [T, K, M].

    ``end`` ("src" or "dst") takes the rows of the edges from nodes x [NS, K], by W [R, K, M] of the edge types or
    [T, K, M] of the types of these nodes. Rows x [..., H, K] are multiplied by W [..., H, K, M] head by head, and by
    W [..., H * K, M] as one row. ``heads`` makes the result [..., heads, M / heads].
    """
    _outside("typed_linear")


def scatter(y: Any, end: str = "dst", reduce: str = "sum") -> Any:
    """Reduces y [E, ...] to [ND, ...] (``end="src"``: [NS, ...]): sum, mean, max or min over each node's edges.

    Nodes without edges hold 0.
    """
    _outside("scatter")


def aggregate(messages: Any, weight: Any = None, end: str = "dst", reduce: str = "sum") -> Any:
    """Reduces like `scatter`, scaled by ``weight`` [E] or [E, H]; messages [NS, ...] come from the other ends."""
    _outside("aggregate")


def edge_softmax(score: Any, end: str = "dst") -> Any:
    """Returns [E, ...] the softmax of score [E, ...] over the edges that share a destination (or source)."""
    _outside("edge_softmax")


def traverse(body: str, **arrays: Any) -> Any:
    """Runs loops in program form, with their return, over arrays by name."""
    _outside("traverse")


def _outside(name: str) -> NoReturn:
    raise UnsupportedCallError(f"dacergnn.ops.{name} is part of a @dace.program; it cannot run outside of one.")


replacements.register(__name__)
