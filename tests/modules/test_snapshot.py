"""What a snapshot holds is compared object by object, down to the order of keys, and no reference is left behind."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest

from dacergnn.modules.snapshot import Snapshot


class Base:
    value = 1


class Class(Base):
    kept = "kept"

    def __init__(self) -> None:
        self.attribute = "value"


class Watched:
    """One of everything, and the snapshot of it."""

    def __init__(self) -> None:
        self.table: dict[Any, Any] = {"a": object(), "b": object(), "c": 1000.5, "longer": 2, ("d", 1): None}
        self.ordered = OrderedDict(a=object(), b=object(), c=object())
        self.empty: dict[str, object] = {}
        self.list, self.set = [object(), object()], {object(), "x", 7}
        self.cls: Any = type("Class", (Class,), {"own": object()})
        self.object: Any = self.cls()
        self.snapshot = Snapshot(
            tables=[self.table, self.ordered, self.empty, self.cls.__dict__, vars(self.object)],
            sequences=[self.list, self.set, [], set()],
            objects=[self.object],
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
