"""`@dace.program` functions that tests lift, compile and differentiate."""

from __future__ import annotations

import dace
import numpy as np

from dacergnn import ops
from dacergnn.ops import ND, NS, E, R, T, aggregate, edge_softmax

F64 = dace.float64
HEADS = """
for e in g.edges():
    e["h"] = reshape(e.src.x * e.dst.x, 2, 2)
return h
"""


@dace.program
def attention(x: F64[NS, 6], W: F64[R, 6, 4], a: F64[E]):
    messages = np.tanh(ops.typed_linear(x, W, end="src"))
    return np.maximum(aggregate(messages, weight=edge_softmax(a)), 0.0)


@dace.program
def everything(x: F64[NS, 4], W: F64[R, 4, 4], b: F64[4], L: F64[4, 3], s: F64[E, 1], t: F64[E, 2], slope: F64):
    scaled = 0.2 * ops.typed_linear(x, W, end="dst") * s + b
    mean = aggregate(np.exp(-scaled) / (1.0 + np.abs(scaled)), reduce="mean")
    scores = np.sum(ops.traverse(HEADS, x=x) * t[:, :, None], axis=2)
    return (np.tanh(mean) ** 2 + np.sqrt(np.abs(mean))) @ L * slope, scores


@dace.program
def neighbours(x: F64[NS, 4], W: F64[T, 4, 4]):
    rows = ops.typed_linear(x, W)
    return aggregate(rows, reduce="max"), ops.scatter(ops.gather(rows), end="src", reduce="min")


@dace.program
def by_type(x: F64[NS, 4], W: F64[T, 4, 4], a: F64[R, 2], b: F64[T, 2], t: F64[T]):
    rows = ops.typed_linear(x, W, heads=2)
    scores = ops.gather(a, end="type") + ops.gather(b, end="src")
    gate = 1.0 / (1.0 + np.exp(-ops.destinations(t)))
    flat = ops.typed_linear(rows, W)
    return ops.destinations(flat) * gate[:, None], np.maximum(0.5 * scores, scores), aggregate(rows, weight=scores)


@dace.program
def own_loops(x: F64[NS, 4], a: F64[E], W: F64[R, 4, 4]):
    return ops.traverse(
        """
        for e in g.edges():
            e["y"] = leakyrelu(e.src.x * e.a, 0.1) - sum(e.dst.x * W[e.etype])
        for n in g.dst_nodes():
            for e in n.incoming_edges():
                n["out"] += e["y"]
        return out
        """,
        x=x,
        a=a,
        W=W,
    )


@dace.program
def sums(x: F64[NS, 6], W: F64[R, 6, 4], a: F64[E]):
    return aggregate(np.tanh(ops.typed_linear(x, W, end="src")), weight=edge_softmax(a))


@dace.program
def energy(x: F64[NS, 6], W: F64[R, 6, 4], a: F64[E], loss: F64[1]):
    messages = np.tanh(ops.typed_linear(x, W, end="src"))
    out = aggregate(messages, weight=edge_softmax(a))
    loss[0] = np.sum(np.exp(0.3 * out))


@dace.program
def chooses(a: F64[E]):
    return np.where(a > 0.0, a, 0.5 * a)


@dace.program
def repeats(a: F64[E]):
    for _ in range(3):
        a[:] = a * 0.5
    return a


@dace.program
def powers(a: F64[E], b: F64[E]):
    return a**b


@dace.program
def columns(x: F64[NS, 2, 4], b: F64[4]):
    return x + b


@dace.program
def other_rows(x: F64[NS, 4]):
    out = np.empty_like(x)
    for i, j in dace.map[0:NS, 0:4]:
        with dace.tasklet:
            a << x[NS - 1 - i, j]  # noqa: F821
            b >> out[i, j]  # noqa: F821
            b = a  # noqa: F821, F841
    return out


@dace.program
def maxima(x: F64[NS, 4]):
    return np.max(x, axis=1)


@dace.program
def mixed(x: F64[NS, 4], y: dace.float32[NS, 4]):
    return x + y


@dace.program
def no_rows(x: F64[10, 4]):
    return ops.edge_softmax(x)


@dace.program
def wrong_end(x: F64[NS, 4]):
    return ops.gather(x, end="source")


@dace.program
def of_edges(a: F64[E, 4]):
    return ops.gather(a)


@dace.program
def odd_heads(x: F64[NS, 4], W: F64[R, 4, 4]):
    return ops.typed_linear(x, W, end="src", heads=3)


@dace.program
def wrong_types(x: F64[NS, 4], W: F64[R, 4, 4]):
    return ops.typed_linear(x, W)


@dace.program
def wrong_reduction(a: F64[ND, 4]):
    return ops.scatter(a, reduce="median")
