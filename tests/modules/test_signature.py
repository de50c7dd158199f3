"""Which calls are alike: one by one, what may differ and what may not."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dacergnn.graph import HeteroGraph
from dacergnn.modules.signature import CallSignature

X, EDGES = torch.rand(4, 3), torch.tensor([[0, 1, 2], [1, 2, 3]])
GRAPH = HeteroGraph.from_arrays(EDGES, None, num_nodes=4)
Arguments = tuple[tuple[Any, ...], dict[str, Any]]
ALIKE: dict[str, tuple[Arguments, Arguments]] = {
    "other numbers of features": (((X, EDGES), {}), ((X + 1, EDGES), {})),
    "dictionaries": ((({"a": X, "b": X + 1}, {("a", "r", "b"): EDGES}), {}),
                     (({"a": X + 2, "b": X + 3}, {tuple("arb"): EDGES}), {})),
    "lists and tuples": ((([X, (X + 1, None)], 3), {}), (([X + 1, (X, None)], 3), {})),
    "keywords": (((X,), {"size": (4, 4), "name": "sum"}), ((X,), {"size": (4, 4), "name": "".join("sum")})),
    "numbers": (((X, 0.5, float("nan"), 1 << 70), {}), ((X, 0.5, float("nan"), 1 << 70), {})),
    "graphs": (((GRAPH, X), {}), ((GRAPH, X + 1), {})),
    "the same features twice": (((X, X), {}), ((X + 1,) * 2, {})),
}  # fmt: skip
OTHER: dict[str, tuple[Arguments, Arguments]] = {
    "more rows": (((X, EDGES), {}), ((torch.rand(5, 3), EDGES), {})),
    "another type": (((X, EDGES), {}), ((X.double(), EDGES), {})),
    "other strides": (((X, EDGES), {}), ((X.T.contiguous().T, EDGES), {})),
    "a gradient": (((X, EDGES), {}), ((X.clone().requires_grad_(), EDGES), {})),
    "a parameter": (((X, EDGES), {}), ((nn.Parameter(X, requires_grad=False), EDGES), {})),
    "sparse features": (((X, EDGES), {}), ((X.to_sparse(), EDGES), {})),
    "equal edges": (((X, EDGES), {}), ((X, EDGES.clone()), {})),
    "the same features twice": (((X, X + 1), {}), ((X, X), {})),
    "different features": (((X, X), {}), ((X, X + 1), {})),
    "an integer for a boolean": (((X, True), {}), ((X, 1), {})),
    "the sign of zero": (((X, 0.0), {}), ((X, -0.0), {})),
    "another number": (((X, 0.5), {}), ((X, 0.25), {})),
    "None": (((X, None), {}), ((X, EDGES), {})),
    "one more": (((X,), {}), ((X, None), {})),
    "by name": (((X, EDGES), {}), ((X,), {"edge_index": EDGES})),
    "another name": (((X,), {"a": 1}), ((X,), {"b": 1})),
    "another order": ((({"a": X, "b": X},), {}), (({"b": X, "a": X},), {})),
    "another key": ((({"a": X},), {}), (({"b": X},), {})),
    "a list for a tuple": (((X, (1, 2)), {}), ((X, [1, 2]), {})),
    "another graph": (((GRAPH, X), {}), ((HeteroGraph.from_arrays(EDGES, None, num_nodes=4), X), {})),
}


def signature(args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallSignature:
    return CallSignature(args, kwargs, "always")


@pytest.mark.parametrize("name", ALIKE)
def test_calls_that_are_alike(name: str) -> None:
    first, second = ALIKE[name]
    found = signature(*first)
    assert found.leaves(*first) is not None
    leaves = found.leaves(*second)
    assert leaves is not None
    assert all(isinstance(leaf, (Tensor, HeteroGraph)) for leaf in leaves)
    assert all(leaves[i].is_floating_point() for i in found.features)


@pytest.mark.parametrize("name", OTHER)
def test_calls_that_are_not(name: str) -> None:
    first, second = OTHER[name]
    assert signature(*first).leaves(*second) is None
    assert signature(*second).leaves(*first) is None


def _written(edges: Tensor) -> None:
    edges[0, 0] = 3


def _written_unseen(edges: Tensor) -> None:
    edges.numpy()[0, 0] = 3


def _noted(edges: Tensor) -> None:
    vars(edges)["note"] = 1


@pytest.mark.parametrize("change", [_written, _written_unseen, _noted])
def test_edges_that_change(change: Callable[[Tensor], None]) -> None:
    edges = EDGES.clone()
    found = signature((X, edges), {})
    change(edges)
    assert found.leaves((X, edges), {}) is None


def test_numbers_that_are_compared() -> None:
    weight = torch.rand(3)
    alike, compared = signature((X, weight), {}), CallSignature((X, weight), {}, "always", frozenset((1,)))
    assert alike.leaves((X, weight + 1), {}) is not None
    assert compared.leaves((X + 1, weight), {}) is not None
    assert compared.leaves((X, weight.clone()), {}) is None
    weight.add_(1)
    assert compared.leaves((X, weight), {}) is None


def test_the_state_of_torch_counts() -> None:
    found = signature((X, EDGES), {})
    with torch.no_grad():
        assert found.leaves((X, EDGES), {}) is None
    with torch.inference_mode():
        assert found.leaves((X, EDGES), {}) is None
    assert found.leaves((X, EDGES), {}) is not None


@pytest.mark.parametrize("value", [object(), X.to("meta"), {1, 2}, 1j], ids=["object", "meta", "set", "complex"])
def test_arguments_that_say_nothing_about_themselves(value: object) -> None:
    assert CallSignature.of((X, value), {}, "always") is None


def test_nothing_is_kept_and_no_later_object_is_taken_for_one_that_is_gone() -> None:
    edges, x = EDGES.clone(), X.clone()
    found = signature((x, edges), {})
    references = weakref.ref(edges), weakref.ref(x)
    del edges, x
    assert [reference() for reference in references] == [None, None]
    assert found.leaves((X, EDGES.clone()), {}) is None
