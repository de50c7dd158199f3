"""Describes what objects hold at one moment; C code, which touches little memory, tells whether they still do."""

from __future__ import annotations

import gc
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from types import CellType, FunctionType, MappingProxyType
from typing import Any

from torch import Tensor

from dacergnn.modules.replay.reach import ABSENT, Unwatchable
from dacergnn.native import calls
from dacergnn.native.exchange import DESCRIBE

_NAMES = ("requires_grad", "_version")


class Snapshot:
    """Holds the contents of objects, to be compared by identity, and keeps them alive.

    Args:
        tables: Dictionaries, also of classes; compared by keys and values, in order.
        sequences: Lists and sets; compared by their items, in order.
        items: Pairs of a dictionary and a key; compared by the value, or its absence.
        objects: Objects; compared by their classes and dictionaries of attributes.
        classes: Classes; compared by their bases, and the bases of these.
        cells: Cells; compared by their contents.
        functions: Functions; compared by their code, defaults and attributes.
    """

    def __init__(
        self,
        tables: Iterable[Any] = (),
        sequences: Sequence[Any] = (),
        items: Iterable[tuple[Any, str]] = (),
        objects: Iterable[Any] = (),
        classes: Iterable[type] = (),
        cells: Iterable[CellType] = (),
        functions: Iterable[FunctionType] = (),
    ) -> None:
        tables = [gc.get_referents(t)[0] if type(t) is MappingProxyType else t for t in tables]
        contents = [[*chain.from_iterable(dict.items(t))] for t in tables]
        ordered = [t for t in tables if type(t) is OrderedDict and len(t) > 1]  # an OrderedDict has an order of its own
        lists = [s for s in sequences if type(s) is list]
        sets = [s for s in sequences if type(s) is not list]
        words = array("q", [len(tables), *map(id, tables)])
        for table, content in zip(tables, contents, strict=True):
            words.extend((len(table), *map(id, content)))
        self.kept = [*tables, *chain.from_iterable(contents)]
        """Everything that is compared, and the objects that hold it."""
        for group in (lists, [*sets, *ordered]):
            words.append(len(group))
            for holder in group:
                words.extend((id(holder), len(holder), *map(id, holder)))
                self.kept += (holder, *holder)
        functions, objects = [*functions], [*objects]
        parts = (
            [(t, key, t.get(key, ABSENT)) for t, key in items],
            [(o, type(o)) for o in objects],
            [(o, o.__dict__) for o in (*objects, *functions)],
            [(c, c.__bases__) for c in dict.fromkeys(b for c in classes for b in c.__mro__)],
            [(c, c.cell_contents) for c in cells],
            [(f, f.__code__) for f in functions],
            [(f, ABSENT if f.__defaults__ is None else f.__defaults__) for f in functions],
            [(f, ABSENT if f.__kwdefaults__ is None else f.__kwdefaults__) for f in functions],
        )
        for part in parts:
            entries = [*chain.from_iterable(part)]
            words.append(len(part))
            words.extend(0 if v is ABSENT else id(v) for v in entries)
            self.kept += entries
        self._words = words
        self.check: tuple[Callable[[int], bool], int] = calls.function("same_objects"), words.buffer_info()[0]
        """A function and its argument; it returns whether everything is as it was."""

    def unchanged(self) -> bool:
        """Returns whether everything is as it was."""
        same, address = self.check
        return same(address)


class Forms:
    """Describes what tensors look like: types, shapes, strides, devices, whether they need gradients.

    For tensors without floating-point numbers, it also counts attributes and how often they were written to.

    Raises:
        Unwatchable: Torch cannot tell.
    """

    def __init__(self, tensors: list[Tensor]) -> None:
        try:
            self._forms = forms(tensors)
        except RuntimeError:
            raise Unwatchable("a tensor is of an unusual kind") from None
        self._same: Callable[..., bool] | None = None
        if DESCRIBE is not None:
            self._numbers = array("q", [DESCRIBE, *map(id, _NAMES), len(tensors)])
            self._numbers.extend([0] * sum(9 + 2 * t.dim() for t in tensors))
            self._address = self._numbers.buffer_info()[0]
            same = calls.function("same_forms")
            self._same = same if same(tensors, self._address, True) else None  # C code knows no tensors without memory

    def same(self, tensors: list[Tensor]) -> bool:
        """Returns whether other tensors look like these."""
        return forms(tensors) == self._forms if self._same is None else self._same(tensors, self._address, False)


def forms(tensors: Sequence[Tensor]) -> list[Any]:
    """Returns the properties of tensors as a list.

    Raises:
        RuntimeError: A tensor does not have all of them.
    """
    properties: list[Any] = [(t.requires_grad, t.dtype, t.shape, t.stride(), t.device) for t in tensors]
    return properties + [(t._version, len(t.__dict__)) for t in tensors if not t.is_floating_point()]
