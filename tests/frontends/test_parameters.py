"""Parameters by path: always those of the moment."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dacergnn.frontends.parameters import Parameters

PATHS = [("one", "weight"), ("deep", "a", "bias"), ("own",), ("deep", "b", "weight"), ("one", "bias")]


def tree() -> Any:
    module = nn.Module()
    module.own = nn.Parameter(torch.randn(2))
    module.one = nn.Linear(2, 3)
    module.deep = nn.ModuleDict({"a": nn.Linear(3, 2), "b": nn.Linear(2, 2)})
    return module


def expected(module: Any) -> list[Tensor]:
    return [module.get_parameter(".".join(path)) for path in PATHS]


def same(found: list[Tensor], wanted: list[Tensor]) -> bool:
    return len(found) == len(wanted) and all(a is b for a, b in zip(found, wanted, strict=True))


def test_what_is_replaced_is_read() -> None:
    module = tree()
    parameters = Parameters(module, PATHS)
    for place, value in [
        ("", None),
        ("deep.a.bias", nn.Parameter(torch.zeros(2))),
        ("own", nn.Parameter(torch.zeros(2))),
        ("one", nn.Linear(2, 3)),
        ("deep.b", nn.Linear(2, 2)),
        ("deep", nn.ModuleDict({"b": nn.Linear(2, 2), "a": nn.Linear(3, 2)})),
        ("deep.a", nn.Linear(3, 2)),
    ]:
        if value is not None:
            at, _, name = place.rpartition(".")
            setattr(module.get_submodule(at), name, value)
        for _ in range(2):
            assert same(parameters.read(module), expected(module))


def test_a_stand_in() -> None:
    module = tree()
    parameters = Parameters(module, PATHS)
    other = copy.deepcopy(module)
    assert same(parameters.read(other), expected(other))
    assert same(parameters.read(module), expected(module))


@pytest.mark.parametrize("place", ["one", "deep.a", "deep.a.bias"])
def test_what_is_gone_is_named(place: str) -> None:
    module = tree()
    parameters = Parameters(module, PATHS)
    at, _, name = place.rpartition(".")
    delattr(module.get_submodule(at), name)
    with pytest.raises((KeyError, AttributeError), match=name):
        parameters.read(module)
