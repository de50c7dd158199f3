"""Random classes against their compiled forms: results, gradients of both orders, buffers and attributes.

``python -m tests.fuzz.test_random_classes 1000 2000`` compares those seeds, and counts what was compiled. Kinds behind
the numbers are the only ones that are compared.
"""

from __future__ import annotations

import contextlib
import copy
import sys
import warnings
from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

import dacergnn
from tests.fuzz.random_classes import WIDTH, made, text_of

WHERE = {"MessagePassing": "torch_geometric", "DGL": "dgl", "plain": "torch"}
"""Kinds of classes, and the library that each needs."""
SEEDS = (19, 30, 35, 74, 122, 237, 253, 313, 420, 710, 1157, 1333, 1703, 1901)
"""Seeds whose classes have every statement, message, update and result among them, for each library."""


def graph(number: int, *, dgl: bool) -> Any:
    generator = torch.Generator().manual_seed(number)
    nodes = 8 + 3 * number
    edges = torch.randint(nodes, (2, 30), generator=generator)
    edges = torch.cat([edges, torch.arange(nodes).expand(2, -1)], 1)  # each node has a neighbour
    if not dgl:
        return edges, nodes
    import dgl as library

    return library.graph((edges[0], edges[1]), num_nodes=nodes), nodes


def step(model: nn.Module, number: int, kind: str) -> list[Any]:
    """Results, gradients of first and second order, buffers and attributes after a call; or the error of it."""
    edges, nodes = graph(number, dgl=kind == "DGL")
    generator = torch.Generator().manual_seed(7 + number)
    x = torch.randn(nodes, WIDTH, dtype=torch.float64, generator=generator).requires_grad_()
    torch.manual_seed(3)
    try:
        result = model(edges, x) if kind == "DGL" else model(x, edges)
        out = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        needs = [leaf.requires_grad for leaf in out]
        leaves, found = [x, *model.parameters()], [leaf.detach().clone() for leaf in out]
        small = [leaf / leaf.detach().abs().max().clamp(min=1) for leaf in out if leaf.requires_grad]
        loss: Any = sum(leaf.sin().sum() for leaf in small)  # of large numbers, sines would be those of rounding errors
        first, second = [], []
        if any(needs):
            first = torch.autograd.grad(loss, leaves, allow_unused=True, create_graph=True)
            total: Any = sum(g.square().sum() for g in first if g is not None and g.requires_grad)
            if isinstance(total, Tensor):
                second = torch.autograd.grad(total, leaves, allow_unused=True)
    except Exception as error:
        torch.set_grad_enabled(True)
        return [type(error).__name__]
    last: Any = getattr(model, "last", None)
    kept = [*getattr(model, "kept", [])]
    return [needs, found, [*first], [*second], [b.clone() for b in model.buffers()], last, kept]


def same(a: Any, b: Any) -> bool:
    """Returns whether values are equal up to rounding; a gradient that is None may be zeros."""
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        a, b = (torch.zeros_like(o) if v is None else v for v, o in ((a, b), (b, a)))
        return torch.allclose(a, b, rtol=1e-7, atol=1e-9, equal_nan=True)
    return a == b


def difference(seed: int, kind: str) -> tuple[str, list[str]]:
    """Returns what differs, with the source, and the reasons for which calls ran uncompiled."""
    text = text_of(seed, kind)
    make = made(text, kind, f"random_class_{seed}_{kind}")
    original, fast = make(), copy.deepcopy(make())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fast = dacergnn.compile(fast) if kind == "DGL" else dacergnn.optimize(fast)
        for call, (number, training) in enumerate([(0, True), (0, True), (0, True), (1, True), (0, False)]):
            expected, found = (step(m.train(training), number, kind) for m in (original, fast))
            if not same(found, expected):
                attends = kind == "DGL" and "edge_softmax" in text
                if attends and same(found[:3] + found[4:], expected[:3] + expected[4:]):
                    continue  # DGL's second derivative of a softmax leaves terms out
                names = ("needs", "results", "gradients", "second", "buffers", "last", "kept")
                parts = zip(names, found, expected, strict=False)
                wrong = [n for n, a, b in parts if not same(a, b)] if len(found) == len(expected) else (found, expected)
                return f"call {call}: {wrong}\n{text}", []
    return "", [str(w.message) for w in caught if "uncompiled" in str(w.message)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", WHERE)
def test_random_classes(kind: str) -> None:
    pytest.importorskip(WHERE[kind])
    for seed in SEEDS:
        wrong, _ = difference(seed, kind)
        assert not wrong, wrong


if __name__ == "__main__":
    from tests.support import interpreted

    interpreted.set_default("interpreted")
    compiled, reasons = 0, Counter[str]()
    for seed in range(*map(int, sys.argv[1:3])):
        for kind in sys.argv[3:] or WHERE:
            with contextlib.redirect_stderr(None):
                wrong, refused = difference(seed, kind)
            if wrong:
                sys.stdout.write(f"seed {seed}, {kind}: {wrong}\n")
            compiled += not wrong and not refused
            reasons.update(reason.partition(":")[2][:90] for reason in refused[:1])
    sys.stdout.write(f"{compiled} compiled; {reasons.most_common(20)}\n")
