"""Layers in common use, of random sizes and with random options, for performance models to learn from.

Layers by relations (RGCN, RGAT, HGT) are not among them: these judge what a model has learned.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from dacergnn.tuning.programs import RandomLayer

CHANNELS = (7, 8, 16, 32, 40, 64, 128, 256)
HEADS = (1, 2, 4, 8)
MOST_EDGE_VALUES = 128
"""The most elements of a row of an edge."""
_SOFTMAX = """
    for n in g.dst_nodes():
        n["largest"] = -1e30
        n["total"] = 0.0
    for e in g.edges():
        e.dst["largest"] = max(e.dst["largest"], e["score"])
    for e in g.edges():
        e["power"] = exp(e["score"] - detach(e.dst["largest"]))
        e.dst["total"] += e["power"]
    for e in g.edges():
        e["att"] = e["power"] / e.dst["total"]
"""
_WEIGHTED = """
    for n in g.dst_nodes():
        for e in n.incoming_edges():
            n["out"] += e["att"] * e.src.features
"""
_RETURN = """
    for n in g.dst_nodes():
        n["result"] = {result}
    return result
"""

Draw = Callable[[random.Random], tuple[dict[str, str], str]]
"""Draws a layer: the declarations of its inputs, and its statements."""


def common_layer(seed: int) -> RandomLayer:
    """Returns the layer of a seed; each kind is equally likely."""
    rng = random.Random(f"common layer {seed}")
    kind = rng.choice(sorted(KINDS))
    inputs, body = KINDS[kind](rng)
    lines = [line for line in body.splitlines() if line.strip()]
    parameters = ", ".join(f"{name}: {spec}" for name, spec in inputs.items())
    text = "\n".join([f"def {kind}(g, {parameters}):", *lines]) + "\n"
    weights = [name for name, spec in inputs.items() if spec.startswith("ONE")]
    learned = (*(["x"] if rng.random() < 0.5 else []), *weights)
    return RandomLayer(text, kind, learned, "bfloat16" if rng.random() < 0.1 else "float32")


def _gcn(rng: random.Random) -> tuple[dict[str, str], str]:
    k, m = _sizes(rng)
    inputs = {"x": f"NS[{k}]", "W": f"ONE[{k}, {m}]", "left": "NS", "right": "ND", "bias": f"ONE[{m}]"}
    first = rng.random() < 0.7
    message = "e.src.h" if first else "e.src.x"
    body = '    for n in g.src_nodes():\n        n["h"] = linear(n.x, W)\n' if first else ""
    out = 'n["sum"] * n.right' if first else 'linear(n["sum"] * n.right, W)'
    body += f"""
    for n in g.dst_nodes():
        for e in n.incoming_edges():
            n["sum"] += e.src.left * {message}
    """
    return inputs, body + _RETURN.format(result=_activated(rng, f"{out} + bias"))


def _sage(rng: random.Random) -> tuple[dict[str, str], str]:
    k, m = _sizes(rng)
    inputs = {"x": f"NS[{k}]", "x_own": f"ND[{k}]", "W": f"ONE[{k}, {m}]", "root": f"ONE[{k}, {m}]"}
    inputs["bias"] = f"ONE[{m}]"
    body = f"""
    for n in g.dst_nodes():
        n["found"] = {rng.choice(("mean", "mean", "sum", "max"))}(e.src.x for e in n.incoming_edges())
    """
    result = _activated(rng, 'linear(n["found"], W) + linear(n.x_own, root) + bias')
    return inputs, body + _RETURN.format(result=result)


def _gin(rng: random.Random) -> tuple[dict[str, str], str]:
    k, m = _sizes(rng)
    inputs = {"x": f"NS[{k}]", "x_own": f"ND[{k}]", "eps": "ONE", "W": f"ONE[{k}, {m}]", "W2": f"ONE[{m}, {m}]"}
    body = """
    for n in g.dst_nodes():
        n["found"] = sum(e.src.x for e in n.incoming_edges())
        n["mixed"] = relu(linear(n["found"] + (1.0 + eps) * n.x_own, W))
    """
    return inputs, body + _RETURN.format(result=_activated(rng, 'linear(n["mixed"], W2)'))


def _gat(rng: random.Random) -> tuple[dict[str, str], str]:
    k, heads, channels = _sizes(rng)[0], *_heads(rng)
    inputs = {"x": f"NS[{k}]", "W": f"ONE[{k}, {heads * channels}]"}
    inputs |= {"q": f"ONE[{heads}, {channels}]", "k": f"ONE[{heads}, {channels}]", "bias": f"ONE[{heads}, {channels}]"}
    body = f"""
    for n in g.src_nodes():
        n["features"] = reshape(linear(n.x, W), {heads}, {channels})
        n["score_src"] = dot_prd(n["features"], q)
        n["score_dst"] = dot_prd(n["features"], k)
    for e in g.edges():
        e["score"] = leakyrelu(e.src.score_src + e.dst.score_dst, 0.2)
    {_SOFTMAX}{_WEIGHTED}"""
    return inputs, body + _RETURN.format(result=_activated(rng, 'n["out"] + bias'))


def _gatv2(rng: random.Random) -> tuple[dict[str, str], str]:
    k, heads, channels = _sizes(rng)[0], *_heads(rng)
    inputs = {"x": f"NS[{k}]", "x_own": f"ND[{k}]", "W": f"ONE[{k}, {heads * channels}]"}
    inputs |= {"W_own": f"ONE[{k}, {heads * channels}]", "q": f"ONE[{heads}, {channels}]"}
    inputs["bias"] = f"ONE[{heads}, {channels}]"
    body = f"""
    for n in g.src_nodes():
        n["features"] = reshape(linear(n.x, W), {heads}, {channels})
    for n in g.dst_nodes():
        n["own"] = reshape(linear(n.x_own, W_own), {heads}, {channels})
    for e in g.edges():
        e["score"] = dot_prd(leakyrelu(e.src.features + e.dst.own, 0.2), q)
    {_SOFTMAX}{_WEIGHTED}"""
    return inputs, body + _RETURN.format(result=_activated(rng, 'n["out"] + bias'))


def _transformer(rng: random.Random) -> tuple[dict[str, str], str]:
    k, heads, channels = _sizes(rng)[0], *_heads(rng)
    inputs = {"x": f"NS[{k}]", "x_own": f"ND[{k}]"}
    inputs |= dict.fromkeys(("W_q", "W_k", "W_v", "root"), f"ONE[{k}, {heads * channels}]")
    body = f"""
    for n in g.src_nodes():
        n["key"] = reshape(linear(n.x, W_k), {heads}, {channels})
        n["features"] = reshape(linear(n.x, W_v), {heads}, {channels})
    for n in g.dst_nodes():
        n["query"] = reshape(linear(n.x_own, W_q), {heads}, {channels})
    for e in g.edges():
        e["score"] = dot_prd(e.src.key, e.dst.query) * {channels**-0.5:.4f}
    {_SOFTMAX}{_WEIGHTED}"""
    result = f'reshape(n["out"], {heads * channels}) + linear(n.x_own, root)'
    return inputs, body + _RETURN.format(result=_activated(rng, result))


def _edge_conv(rng: random.Random) -> tuple[dict[str, str], str]:
    k, m = rng.choice((3, 16, 32, 64)), rng.choice([c for c in CHANNELS if c <= MOST_EDGE_VALUES])
    inputs = {"x": f"NS[{k}]", "x_own": f"ND[{k}]", "W": f"ONE[{2 * k}, {m}]", "bias": f"ONE[{m}]"}
    second = rng.random() < 0.4
    if second:
        inputs["W2"] = f"ONE[{m}, {m}]"
    value = "linear(concat(e.dst.x_own, e.src.x - e.dst.x_own), W) + bias"
    body = f"""
    for e in g.edges():
        e["h"] = {f"linear(relu({value}), W2)" if second else value}
    for n in g.dst_nodes():
        n["found"] = {rng.choice(("max", "max", "mean", "sum"))}(e["h"] for e in n.incoming_edges())
    """
    return inputs, body + _RETURN.format(result=_activated(rng, 'n["found"]'))


def _monet(rng: random.Random) -> tuple[dict[str, str], str]:
    k, m, kernels, dim = rng.choice((16, 32, 64)), rng.choice((8, 16, 32)), rng.choice((2, 3, 5)), rng.choice((1, 2, 3))
    inputs = {"x": f"NS[{k}]", "W": f"ONE[{k}, {kernels * m}]", "u": f"E[{dim}]", "bias": f"ONE[{m}]"}
    inputs |= {"mu": f"ONE[{kernels}, {dim}]", "precision": f"ONE[{kernels}, {dim}]"}
    body = f"""
    for n in g.src_nodes():
        n["y"] = reshape(linear(n.x, W), {kernels}, {m})
    for e in g.edges():
        e["d"] = to_heads(e.u, {kernels}) - mu
        e["w"] = exp(sum(e["d"] * e["d"] * precision) * -0.5)
    for n in g.dst_nodes():
        n["h"] = {rng.choice(("sum", "mean"))}(e["w"] * e.src.y for e in n.incoming_edges())
    """
    return inputs, body + _RETURN.format(result=_activated(rng, 'sum_heads(n["h"]) + bias'))


KINDS: dict[str, Draw] = {
    "edge_conv": _edge_conv,
    "gat": _gat,
    "gatv2": _gatv2,
    "gcn": _gcn,
    "gin": _gin,
    "monet": _monet,
    "sage": _sage,
    "transformer": _transformer,
}
"""Draws a layer of each kind."""


def _sizes(rng: random.Random) -> tuple[int, int]:
    return rng.choice(CHANNELS), rng.choice(CHANNELS)


def _heads(rng: random.Random) -> tuple[int, int]:
    """Returns a number of heads, and of the channels of each."""
    heads = rng.choice(HEADS)
    return heads, rng.choice([c for c in CHANNELS if heads * c <= 2 * MOST_EDGE_VALUES])


def _activated(rng: random.Random, value: str) -> str:
    """Returns a value, or an activation of it."""
    return rng.choice(("{}", "relu({})", "elu({}, 1.0)")).format(f"({value})")
