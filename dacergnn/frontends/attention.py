"""Programs from arrays, and masks of dropout, for the front ends of attention layers."""

from __future__ import annotations

from collections.abc import Mapping
from types import FunctionType

from torch import Tensor

from dacergnn.frontends.attention_programs import gat, gatv2
from dacergnn.frontends.frontend import ProgramSource, spec
from dacergnn.graph import HeteroGraph
from dacergnn.runtime.random_masks import ones_after_dropout

__all__ = ["attention_program", "gat", "gatv2", "kept_weights"]

_SPACES = {"x": "NS", "x_dst": "ND", "edge_attr": "E", "kept": "E", "edge_weight": "E"}
_BY_HEAD = ("q", "k", "q_edge", "bias", "W_bias", "W_dst_bias")


def attention_program(
    source: FunctionType, arrays: Mapping[str, Tensor], *,
    heads: int, channels: int, slope: float, residual: bool, attention: bool,
) -> ProgramSource:  # fmt: skip
    """Returns the program of a layer whose calls have these arrays.

    Args:
        source: `gat` or `gatv2`.
        residual: Features of destinations are added to the result, times the matrix "res" if there is one.
        attention: The weights of edges are a second result.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for name, array in arrays.items():
        shapes[name] = tuple(array.shape[1:]) if name in _SPACES else tuple(array.shape)
        if name in _BY_HEAD:
            shapes[name] = (heads, channels)
    bindings: dict[str, object] = {n: spec(_SPACES.get(n, "ONE"), *shape) for n, shape in shapes.items()}
    constants = {"heads": heads, "channels": channels, "slope": slope, "residual": residual}
    return ProgramSource.of(source, with_attention=attention, **constants, **bindings)


def kept_weights(graph: HeteroGraph, p: float, shape: tuple[int, ...], like: Tensor) -> Tensor:
    """Returns the factors [E, heads] of dropout for the weights of edges, in canonical order.

    torch draws them for a tensor of the ``shape`` that the library has, in the order of edges of the library.
    """
    drawn = ones_after_dropout(shape, p, dtype=like.dtype, device=like.device)
    return graph.to_canonical(drawn.view(shape[0], shape[1]))
