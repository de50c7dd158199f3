"""Describes what objects hold at one moment; C code, which touches little memory, tells whether they still do."""

from __future__ import annotations

import gc
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from types import MappingProxyType
from typing import Any

from dacergnn.native import calls


class Snapshot:
    """Holds the contents of objects, to be compared by identity, and keeps them alive.

    Args:
        tables: Dictionaries, also of classes; compared by keys and values, in order.
        sequences: Lists and sets; compared by their items, in order.
        objects: Objects; compared by their classes and dictionaries of attributes.
    """

    def __init__(
        self,
        tables: Iterable[Any] = (),
        sequences: Sequence[Any] = (),
        objects: Iterable[Any] = (),
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
        objects = [*objects]
        parts = [(o, type(o)) for o in objects], [(o, o.__dict__) for o in objects]
        for part in parts:
            entries = [*chain.from_iterable(part)]
            words.append(len(part))
            words.extend(map(id, entries))
            self.kept += entries
        self._words = words
        self.check: tuple[Callable[[int], bool], int] = calls.function("same_objects"), words.buffer_info()[0]
        """A function and its argument; it returns whether everything is as it was."""

    def unchanged(self) -> bool:
        """Returns whether everything is as it was."""
        same, address = self.check
        return same(address)
