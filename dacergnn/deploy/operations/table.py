"""The table of operations that become steps of their own, and helpers to read their arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import fx

from dacergnn.deploy.builder import NetworkBuilder
from dacergnn.deploy.network import Array
from dacergnn.deploy.sizes import Size, size_of

Handler = Callable[[NetworkBuilder, fx.Node], Any]
OPERATIONS: dict[str, Handler] = {}
"""Maps names of torch's operations to functions that make steps of them, or raise Untranslatable."""


@dataclass(frozen=True)
class NodeTypes:
    """Stands for the types of nodes, which a graph knows itself."""


@dataclass(frozen=True)
class Repeated:
    """Stands for an index [N] that is repeated for every column."""

    index: Array


def handles(*names: str) -> Callable[[Handler], Handler]:
    """Enters a function into the table under the names of operations."""

    def register(handler: Handler) -> Handler:
        for name in names:
            OPERATIONS[name] = handler
        return handler

    return register


def arguments(node: fx.Node) -> dict[str, Any]:
    """Returns the arguments of an operation by name, with the defaults of those that are not given."""
    schema: Any = node.target._schema  # type: ignore[union-attr]
    given = dict(zip([argument.name for argument in schema.arguments], node.args, strict=False)) | dict(node.kwargs)
    return {a.name: given.get(a.name, a.default_value) for a in schema.arguments}


def value_of(node: Any) -> Any:
    """Returns the number or symbolic number of an argument."""
    return node.meta["val"] if isinstance(node, fx.Node) else node


def sizes_of(nodes: Sequence[Any]) -> tuple[Size, ...]:
    """Returns the numbers of several arguments as sizes."""
    return tuple([size_of(value_of(node)) for node in nodes])
