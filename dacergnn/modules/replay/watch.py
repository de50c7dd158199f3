"""Tells whether everything that a forward can reach is as it was when a call was recorded."""

from __future__ import annotations

from typing import Any

from torch import nn

from dacergnn.modules.replay.reach import GLOBAL_HOOKS, Reach, Unwatchable
from dacergnn.modules.replay.snapshot import Forms, Snapshot

_MOST = 10_000


class Watch:
    """Describes the state that a forward can reach; every call compares it, by identity for the most part.

    For tensors, dtype, shape and the like are compared (`Forms`): only programs read floating-point numbers.

    Args:
        module: The module of the forward.
        others: Further objects that it can reach, by name.

    Raises:
        Unwatchable: Some of it has no state that can be compared, or does more than compute.
    """

    def __init__(self, module: nn.Module, others: dict[str, Any]) -> None:
        names = frozenset(("forward", "__call__"))
        while True:  # objects that are reached mention further names
            reach = Reach(module, names)
            self.own = frozenset(map(id, reach.tensors))
            """The ids of the module's tensors."""
            for name, value in others.items():
                reach.add(value, name)
            if reach.mentioned <= names:
                break
            names = frozenset(reach.mentioned)
        self.tensors = reach.tensors
        self.ids = frozenset(map(id, reach.tensors))
        self.integers = [t for t in reach.tensors if not t.is_floating_point()]
        self._snapshot = Snapshot(
            tables=reach.tables,
            sequences=reach.sequences,
            items=reach.places.values(),
            objects=reach.modules,
            classes=reach.kinds,
            cells=reach.cells,
            functions=reach.functions,
        )
        self._forms = Forms(reach.tensors)
        if len(self._snapshot.kept) > _MOST:
            raise Unwatchable(f"it can reach more than {_MOST} objects")
        if any(GLOBAL_HOOKS):
            raise Unwatchable("there are hooks for all modules")

    def unchanged(self) -> bool:
        """Returns whether everything is as it was."""
        return self._snapshot.unchanged() and self._forms.same(self.tensors)

    def versions(self) -> list[int]:
        """Returns how often each tensor was written to."""
        return [t._version for t in self.tensors]
