"""RGCN, RGAT and HGT as functions of DaCe, graph operators among NumPy-style code; two heads of 8 channels."""

import dace
import numpy as np

import dacergnn
from dacergnn.ops import NS, E, R, T, aggregate, destinations, edge_softmax, gather, typed_linear

F = dace.float64
SLOPE, SCALE = 0.2, 8**-0.5


@dacergnn.compile
@dace.program
def rgcn(x: F[NS, 16], W: F[R, 16, 16], norm: F[E], root: F[16, 16], bias: F[16]):
    messages = typed_linear(x, W, end="src")
    return aggregate(messages, weight=norm) + destinations(x) @ root + bias


@dacergnn.compile
@dace.program
def rgat(x: F[NS, 16], W: F[R, 16, 16], q: F[2, 8], k: F[2, 8], bias: F[2, 8]):
    hs, ht = typed_linear(x, W, end="src", heads=2), typed_linear(x, W, end="dst", heads=2)
    score = np.sum(ht * q, axis=2) + np.sum(hs * k, axis=2)
    return aggregate(hs, weight=edge_softmax(np.maximum(score, SLOPE * score))) + bias


@dacergnn.compile
@dace.program
def hgt(
    x: F[NS, 16], W_k: F[T, 16, 16], W_q: F[T, 16, 16], W_v: F[T, 16, 16], W_att: F[R, 2, 8, 8], W_msg: F[R, 2, 8, 8],
    pri: F[R, 2], A: F[T, 16, 16], skip: F[T],
):  # fmt: skip
    own = destinations(x)
    keys, values = typed_linear(x, W_k, heads=2), typed_linear(x, W_v, heads=2)
    queries = typed_linear(own, W_q, heads=2)
    agreement = np.sum(typed_linear(keys, W_att, end="src") * gather(queries, end="dst"), axis=2)
    score = agreement * gather(pri, end="type") * SCALE
    messages = typed_linear(values, W_msg, end="src")
    out = typed_linear(aggregate(messages, weight=edge_softmax(score)), A)
    gate = 1.0 / (1.0 + np.exp(-destinations(skip)))
    return own + gate[:, None] * (out - own)
