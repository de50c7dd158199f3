"""Parameters of a module and of its submodules, read without the cost of attribute access.

A parameter may be another attribute of its module: parametrizations and pruning compute it, or it is None.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import getitem
from typing import Any

from torch import Tensor, nn


class Attributes:
    """Reads the parameters of a module by name."""

    def __init__(self, module: Any) -> None:
        self._module, self._parameters = module, vars(module)["_parameters"]

    def __getitem__(self, name: str) -> Any:
        try:
            return self._parameters[name]
        except KeyError:
            return getattr(self._module, name)

    def get(self, name: str) -> Any:
        """Returns the attribute; None if there is none."""
        try:
            return self[name]
        except AttributeError:
            return None


@dataclass(frozen=True)
class _Walk:
    """Holds the modules on the way to the parameters: ``parents[i][names[i]] is children[i]``."""

    parents: list[dict[str, Any]]
    names: list[str]
    children: list[nn.Module]
    owners: list[Any]
    """The modules that have the parameters."""
    tables: list[dict[str, Any]]
    """The ``_parameters`` of these modules."""

    @classmethod
    def along(cls, paths: Sequence[tuple[str, ...]], module: nn.Module) -> _Walk:
        """Returns the walk from a module to the parameters at some paths; raises KeyError if a module is missing."""
        walk = cls([], [], [], [], [])
        modules: dict[tuple[str, ...], Any] = {(): module}
        for path in paths:
            for end in range(1, len(path)):
                if path[:end] not in modules:
                    parent, name = modules[path[: end - 1]]._modules, path[end - 1]
                    modules[path[:end]] = parent[name]
                    walk.parents.append(parent)
                    walk.names.append(name)
                    walk.children.append(parent[name])
            walk.owners.append(modules[path[:-1]])
            walk.tables.append(modules[path[:-1]]._parameters)
        return walk


class Parameters:
    """Reads parameters of ``module`` by paths: names of modules, then of the parameter, as in ``("lin", "weight")``."""

    def __init__(self, module: nn.Module, paths: Sequence[tuple[str, ...]]) -> None:
        self.module = module
        self.paths = paths
        self._names = [path[-1] for path in paths]
        self._walk = _Walk.along(paths, module)

    def read(self, module: nn.Module) -> list[Tensor]:
        """Returns the current parameters of ``module``, which may be a stand-in, in the order of the paths.

        Raises:
            KeyError: There is no such module any more.
            AttributeError: There is no such parameter any more.
        """
        walk = self._walk
        if module is not self.module:
            walk = _Walk.along(self.paths, module)
        elif [*map(getitem, walk.parents, walk.names)] != walk.children:
            walk = self._walk = _Walk.along(self.paths, module)
        try:
            return [*map(getitem, walk.tables, self._names)]
        except KeyError:
            return [*map(getattr, walk.owners, self._names)]
