"""RGCN, RGAT and HGT as functions of DaCe, graph operators among NumPy-style code; single-headed, 8 channels."""

import dace
import numpy as np

import dacergnn
from dacergnn.ops import NS, E, R, T, aggregate, destinations, edge_softmax, gather, typed_linear

F = dace.float64
SLOPE, SCALE = 0.2, 8**-0.5


@dacergnn.compile
@dace.program
def rgcn(x: F[NS, 8], W: F[R, 8, 8], norm: F[E], root: F[8, 8], bias: F[8]):
    messages = typed_linear(x, W, end="src")
    return aggregate(messages, weight=norm) + destinations(x) @ root + bias


@dacergnn.compile
@dace.program
def rgat(x: F[NS, 8], W: F[R, 8, 8], q: F[8], k: F[8], bias: F[8]):
    hs, ht = typed_linear(x, W, end="src"), typed_linear(x, W, end="dst")
    score = np.sum(ht * q, axis=1) + np.sum(hs * k, axis=1)
    return aggregate(hs, weight=edge_softmax(np.maximum(score, SLOPE * score))) + bias


@dacergnn.compile
@dace.program
def hgt(
    x: F[NS, 8], W_k: F[T, 8, 8], W_q: F[T, 8, 8], W_v: F[T, 8, 8], W_att: F[R, 8, 8], W_msg: F[R, 8, 8], pri: F[E],
    A: F[T, 8, 8], skip: F[NS],
):  # fmt: skip
    keys, queries = typed_linear(typed_linear(x, W_k), W_att, end="src"), gather(typed_linear(x, W_q), end="dst")
    score = np.sum(keys * queries, axis=1) * pri * SCALE
    messages = typed_linear(typed_linear(x, W_v), W_msg, end="src")
    own = destinations(x)
    gate = destinations(1.0 / (1.0 + np.exp(-skip)))
    out = typed_linear(aggregate(messages, weight=edge_softmax(score)), A)
    return own + (out - own) * gate[:, None]
