"""RGCN, RGAT and HGT as DaCe functions: graph operators in NumPy-style code, with two heads of 32 channels."""

import dace
import numpy as np

import dacergnn
from dacergnn.ops import NS, E, R, T, aggregate, destinations, edge_softmax, gather, typed_linear

F = dace.float64
HEADS, WIDTH = 2, 32
CHANNELS, SLOPE, SCALE = HEADS * WIDTH, 0.2, WIDTH**-0.5
SQUARE, HEAD = (CHANNELS, CHANNELS), (HEADS, WIDTH)


@dacergnn.compile
@dace.program
def rgcn(x: F[NS, CHANNELS], W: F[R, *SQUARE], norm: F[E], root: F[SQUARE], bias: F[CHANNELS]):
    messages = typed_linear(x, W, end="src")
    return aggregate(messages, weight=norm) + destinations(x) @ root + bias


@dacergnn.compile
@dace.program
def rgat(x: F[NS, CHANNELS], W: F[R, *SQUARE], q: F[HEAD], k: F[HEAD], bias: F[HEAD]):
    hs, ht = typed_linear(x, W, end="src", heads=HEADS), typed_linear(x, W, end="dst", heads=HEADS)
    score = np.sum(ht * q, axis=2) + np.sum(hs * k, axis=2)
    return aggregate(hs, weight=edge_softmax(np.maximum(score, SLOPE * score))) + bias


@dacergnn.compile
@dace.program
def hgt(
    x: F[NS, CHANNELS], W_k: F[T, *SQUARE], W_q: F[T, *SQUARE], W_v: F[T, *SQUARE],
    W_att: F[R, HEADS, WIDTH, WIDTH], W_msg: F[R, HEADS, WIDTH, WIDTH], pri: F[R, HEADS], A: F[T, *SQUARE], skip: F[T],
):  # fmt: skip
    own = destinations(x)
    keys, values = typed_linear(x, W_k, heads=HEADS), typed_linear(x, W_v, heads=HEADS)
    queries = typed_linear(own, W_q, heads=HEADS)
    agreement = np.sum(typed_linear(keys, W_att, end="src") * gather(queries, end="dst"), axis=2)
    score = agreement * gather(pri, end="type") * SCALE
    messages = typed_linear(values, W_msg, end="src")
    out = typed_linear(aggregate(messages, weight=edge_softmax(score)), A)
    gate = 1.0 / (1.0 + np.exp(-destinations(skip)))
    return own + gate[:, None] * (out - own)
