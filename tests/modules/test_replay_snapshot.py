"""What a snapshot holds is compared object by object, down to the order of keys, and no reference is left behind."""

from __future__ import annotations

import sys
import types
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from dacergnn.modules.replay.snapshot import Forms, Snapshot


class Base:
    value = 1


class Class(Base):
    kept = "kept"

    def __init__(self) -> None:
        self.attribute = "value"


def make_function(captured: object) -> types.FunctionType:
    def function(x: int = 1, *, y: int = 2) -> Any:
        return captured, x, y

    return function


class Watched:
    """One of everything, and the snapshot of it."""

    def __init__(self) -> None:
        self.table: dict[Any, Any] = {"a": object(), "b": object(), "c": 1000.5, "longer": 2, ("d", 1): None}
        self.ordered = OrderedDict(a=object(), b=object(), c=object())
        self.empty: dict[str, object] = {}
        self.list, self.set = [object(), object()], {object(), "x", 7}
        self.cls: Any = type("Class", (Class,), {"own": object()})
        self.object: Any = self.cls()
        self.function: Any = make_function(object())
        (self.cell,) = self.function.__closure__
        self.snapshot = Snapshot(
            tables=[self.table, self.ordered, self.empty, self.cls.__dict__, vars(self.object)],
            sequences=[self.list, self.set, [], set()],
            items=[(self.empty, "missing"), (self.table, "a")],
            objects=[self.object],
            classes=[self.cls],
            cells=[self.cell],
            functions=[self.function],
        )


def rename_in(table: dict[Any, Any], old: str, new: str) -> None:
    items = [(new if k == old else k, v) for k, v in table.items()]
    table.clear()
    table.update(items)


def add_again(table: dict[Any, Any], key: str) -> None:
    table[key] = table.pop(key)


def other_number(found: set[Any]) -> None:
    found.remove(7)
    found.add(7.0)  # which equals it


def empty_cell(cell: Any) -> None:
    del cell.cell_contents


CHANGES: dict[str, Callable[[Watched], object]] = {
    "another value": lambda w: w.table.update(b=object()),
    "an equal value": lambda w: w.table.update(c=float("1000.5")),
    "a renamed key": lambda w: rename_in(w.table, "b", "e"),
    "a key that equals it": lambda w: rename_in(w.table, "longer", "-".join(["lon", "ger"]).replace("-", "")),
    "a key that is added again": lambda w: add_again(w.table, "a"),
    "one key for another": lambda w: (w.table.pop("c"), w.table.update(e=1)),
    "more keys": lambda w: w.table.update(dict.fromkeys(map(str, range(1000)))),
    "fewer keys": lambda w: w.table.pop("b"),
    "no keys": lambda w: w.table.clear(),
    "a key of an empty table": lambda w: w.empty.update(other=1),
    "a key that was missing": lambda w: w.empty.update(missing=1),
    "the order of keys": lambda w: w.ordered.move_to_end("a"),
    "a value behind an order": lambda w: w.ordered.update(b=object()),
    "an item": lambda w: w.list.__setitem__(1, object()),
    "the order of a list": lambda w: w.list.reverse(),
    "more items": lambda w: w.list.append(None),
    "fewer items": lambda w: w.list.pop(),
    "an equal item of a set": lambda w: other_number(w.set),
    "more items of a set": lambda w: w.set.add(8),
    "an attribute": lambda w: setattr(w.object, "attribute", "other"),
    "an attribute that is added again": lambda w: (setattr(w.object, "b", 1), add_again(vars(w.object), "attribute"),
                                                   delattr(w.object, "b"), setattr(w.object, "attribute", "other")),
    "all attributes": lambda w: setattr(w.object, "__dict__", dict(vars(w.object))),
    "a method": lambda w: setattr(w.cls, "method", lambda self: None),
    "an attribute of a class": lambda w: setattr(w.cls, "own", 2),
    "the class": lambda w: setattr(w.object, "__class__", Class),
    "the bases of the class": lambda w: setattr(w.cls, "__bases__", (Base,)),
    "what is captured": lambda w: setattr(w.cell, "cell_contents", 2),
    "nothing is captured": lambda w: empty_cell(w.cell),
    "the code": lambda w: setattr(w.function, "__code__", make_function(1).__code__.replace(co_name="other")),
    "a default": lambda w: setattr(w.function, "__defaults__", (3,)),
    "a default of a keyword": lambda w: setattr(w.function, "__kwdefaults__", {"y": 3}),
    "the attributes of a function": lambda w: setattr(w.function, "__dict__", {}),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_changes_are_noticed(change: str) -> None:
    watched = Watched()
    assert watched.snapshot.unchanged()
    CHANGES[change](watched)
    assert not watched.snapshot.unchanged()
    assert not watched.snapshot.unchanged(), "and are no errors"


def test_tables_that_have_been_larger_are_the_same() -> None:
    watched = Watched()
    for table in (watched.table, vars(watched.object), watched.ordered):
        names = [f"name {i}" for i in range(2000)]
        table.update(dict.fromkeys(names))
        assert not watched.snapshot.unchanged()
        for name in names:
            del table[name]
        assert watched.snapshot.unchanged()


def test_no_references_are_left() -> None:
    watched = Watched()
    objects = [*watched.snapshot.kept]
    before = [*map(sys.getrefcount, objects)]
    for _ in range(100):
        assert watched.snapshot.unchanged()
    watched.list.append(None)
    for _ in range(100):
        assert not watched.snapshot.unchanged()
    immortal = 1 << 20
    after = [*map(sys.getrefcount, objects)]
    assert max(a - b for a, b in zip(after, before, strict=True) if b < immortal) < 50


def test_objects_are_kept_alive() -> None:
    """Another object at the address of one that is gone would pass for it."""
    watched = Watched()
    old = id(watched.table["b"])
    watched.table["b"] = None
    assert not any(id(object()) == old for _ in range(100))
    assert not watched.snapshot.unchanged()


def example() -> torch.Tensor:
    return torch.zeros(3, 4)


OTHERS: dict[str, Callable[[], torch.Tensor]] = {
    "rows": lambda: torch.zeros(4, 4),
    "shape": lambda: torch.zeros(4, 3),
    "dimensions": lambda: torch.zeros(3, 4, 1),
    "strides": lambda: torch.zeros(4, 3).t(),
    "dtype": lambda: example().double(),
    "sixteen bits": lambda: example().half(),
    "integers": lambda: example().int(),
    "gradient": lambda: example().requires_grad_(),
    "device": lambda: example().to("meta"),
    "layout": lambda: example().to_sparse(),
}


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("described", [True, False])
def test_other_forms_are_noticed(other: str, described: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not described:  # as where torch is too old
        monkeypatch.setattr("dacergnn.modules.replay.snapshot.DESCRIBE", None)
    first = nn.Parameter(torch.ones(2))
    forms = Forms([first, example()])
    for _ in range(3):
        assert forms.same([first, example() + 1])
        try:
            same = forms.same([first, OTHERS[other]()])
        except RuntimeError:
            same = other != "layout"  # what has no strides may say so
        assert not same
    assert not forms.same([first])
    assert not forms.same([first, example(), example()])
    assert Forms([]).same([])


def test_all_dtypes_are_told_apart() -> None:
    names = ("float16", "bfloat16", "float32", "float64", "int8", "uint8", "int16", "int32", "int64", "bool",
             "complex64", "complex128")  # fmt: skip
    tensors = [torch.zeros(3, dtype=getattr(torch, name)) for name in names]
    for tensor in tensors:
        forms = Forms([tensor])
        assert [forms.same([t]) for t in tensors] == [t is tensor for t in tensors]
