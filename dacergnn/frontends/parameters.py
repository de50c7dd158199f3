"""Parameters of a module and of those within it, read at every call without walking through the modules each time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import getitem
from typing import Any

from torch import Tensor, nn


@dataclass(frozen=True)
class _Walk:
    """Which modules were found on the way to the parameters: ``parents[i][names[i]] is children[i]``."""

    parents: list[dict[str, Any]]
    names: list[str]
    children: list[nn.Module]
    owners: list[dict[str, Any]]
    """The ``_parameters`` that the last modules hold."""

    @classmethod
    def along(cls, paths: Sequence[tuple[str, ...]], module: nn.Module) -> _Walk:
        """The walk from a module to the parameters at some paths; KeyError if there is no such module."""
        walk = cls([], [], [], [])
        found: dict[tuple[str, ...], Any] = {(): module}
        for path in paths:
            for end in range(1, len(path)):
                if path[:end] not in found:
                    parent, name = found[path[: end - 1]]._modules, path[end - 1]
                    found[path[:end]] = parent[name]
                    walk.parents.append(parent)
                    walk.names.append(name)
                    walk.children.append(parent[name])
            walk.owners.append(found[path[:-1]]._parameters)
        return walk


class Parameters:
    """Those of ``module`` at some paths: names of modules, then that of the parameter, as in ``("lin", "weight")``."""

    def __init__(self, module: nn.Module, paths: Sequence[tuple[str, ...]]) -> None:
        self.module = module
        self.paths = paths
        self._names = [path[-1] for path in paths]
        self._walk = _Walk.along(paths, module)

    def read(self, module: nn.Module) -> list[Tensor]:
        """The parameters of the moment, in the order of the paths; those of a stand-in if ``module`` is one.

        Raises:
            KeyError: There is no such module or parameter any more.
        """
        walk = self._walk
        if module is not self.module:
            walk = _Walk.along(self.paths, module)
        elif [*map(getitem, walk.parents, walk.names)] != walk.children:
            walk = self._walk = _Walk.along(self.paths, module)
        return [*map(getitem, walk.owners, self._names)]
