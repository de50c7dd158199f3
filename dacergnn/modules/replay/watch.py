"""Whether everything is as it was when a call was recorded."""

from __future__ import annotations

from itertools import chain
from operator import attrgetter, is_, methodcaller
from typing import Any

from torch import nn

from dacergnn.modules.replay.reach import ABSENT, Reach, Unwatchable

_MOST = 5000
_order, _content, _version, _table = map(attrgetter, ("__mro__", "cell_contents", "_version", "__dict__"))
_parts = attrgetter("__code__", "__defaults__", "__kwdefaults__", "__dict__")
_form, _strides = attrgetter("requires_grad", "dtype", "shape", "device"), methodcaller("stride")


class Watch:
    """The state that a forward can reach, compared at every call, by identity for the most part.

    Of tensors, dtype, shape and the like are compared, of integers the version as well: what floating-point numbers
    are is read by the programs alone.

    Args:
        module: Whose forward it is.
        others: Further objects that it can reach, by name.

    Raises:
        Unwatchable: Some of it has no state that can be compared, or does more than compute.
    """

    def __init__(self, module: nn.Module, others: dict[str, Any]) -> None:
        names = frozenset(("forward", "__call__"))
        while True:  # what is found mentions further names
            found = Reach(module, names)
            self.own = frozenset(map(id, found.tensors))
            """Tensors of the module."""
            for name, value in others.items():
                found.add(value, name)
            if found.mentioned <= names:
                break
            names = frozenset(found.mentioned)
        self.tensors, self._empty, self._tables = found.tensors, found.empty, found.tables
        self.ids = frozenset(map(id, found.tensors))
        self._modules, self._kinds, self._functions = found.modules, found.kinds, found.functions
        self._cells, self._places = found.cells, [*found.places.values()]
        self.integers = [t for t in found.tensors if not t.is_floating_point()]
        self._views = [*[t.values() for t in found.tables], *found.lists]  # live
        self._count = sum(map(len, self._views))
        self._keys = [*chain.from_iterable(self._tables)]
        self._kept = [*chain.from_iterable(self._views), *self._single()]
        self._forms = self._form()
        if len(self._kept) > _MOST:
            raise Unwatchable(f"it can reach more than {_MOST} objects")
        if any(self._empty):
            raise Unwatchable("there are hooks for all modules")

    def unchanged(self) -> bool:
        """Whether everything is as it was."""
        return (
            not any(self._empty)
            and sum(map(len, self._views)) == self._count
            and all(map(is_, chain(chain.from_iterable(self._views), self._single()), self._kept))
            and [*chain.from_iterable(self._tables)] == self._keys
            and self._form() == self._forms
        )

    def versions(self) -> list[int]:
        """How often tensors were written to."""
        return [*map(_version, self.tensors)]

    def _single(self) -> list[Any]:
        """What is compared by identity besides what tables and lists hold."""
        found: list[Any] = [*map(type, self._modules), *map(_table, self._modules), *map(_order, self._kinds)]
        found += map(_content, self._cells)
        found += [table.get(name, ABSENT) for table, name in self._places]
        found += chain.from_iterable(map(_parts, self._functions))
        return found

    def _form(self) -> list[Any]:
        """What is compared by value."""
        return [*map(_form, self.tensors), *map(_strides, self.tensors), *map(_version, self.integers)]
