"""Holds what is known of the nodes of an exported program while it is read: arrays, graphs, and values that wait."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from dacergnn.config import Config
from dacergnn.deploy.network import Array
from dacergnn.deploy.parts import Parts
from dacergnn.deploy.places import label_of
from dacergnn.deploy.recorder import Recorder
from dacergnn.deploy.sizes import ZERO
from dacergnn.deploy.torch_functions import function_of
from dacergnn.frontends.symbolic.edges import EndIndex
from dacergnn.frontends.symbolic.expr import Untranslatable
from dacergnn.frontends.symbolic.value import Value
from dacergnn.modules.capture.structures import mapped


class NetworkBuilder(Parts):
    """Holds what is known of the nodes of an exported program that have been read.

    Args:
        config: How programs are compiled; None for the targets and plans that they were exported with.
    """

    def __init__(self, config: Config | None = None) -> None:
        super().__init__(config)
        self.known: dict[fx.Node, Any] = {}
        self.ends: dict[fx.Node, EndIndex] = {}
        """The nodes that hold ends or types of edges, beside the arrays of these integers."""
        self.recorder = Recorder(self)

    def get(self, node: Any) -> Any:
        """Returns what is known of a node; a value that waits becomes an array."""
        known = self.known.get(node) if isinstance(node, fx.Node) else node
        if type(known) is Value:
            known = self.known[node] = self.array(node, self.recorder.array(known), ZERO)
        return known

    def needs_array(self, node: Any) -> Array:
        """Returns the array of a node; raises Untranslatable if it has none."""
        known = self.get(node)
        if not isinstance(known, Array):
            raise Untranslatable
        return known

    def is_recorded(self, node: fx.Node) -> bool:
        """Tells whether a node is computed from values that wait, or from ends of edges."""
        return any(n in self.ends or type(self.known.get(n)) is Value for n in node.all_input_nodes)

    def record(self, node: fx.Node) -> Any:
        """Returns an operation on rows, or along edges, as a value; raises Untranslatable for another one."""
        function = function_of(node.target)
        if function is None or _computes_with_sizes(node):
            raise Untranslatable
        self.recorder.label = label_of(node)
        made = self.recorder.call(function, mapped(node.args, self._operand), mapped(node.kwargs, self._operand))
        values = node.meta["val"]
        # A norm of a batch has two more results in training.
        pairs = zip(made, values, strict=False) if isinstance(values, tuple | list) else [(made, values)]
        for one, value in pairs:
            shape, wide = [*map(self.recorder.number, value.shape)], any(map(_is_open, value.shape[1:]))
            if not isinstance(one, Value | EndIndex) or [*one.shape] != shape or one.dtype != value.dtype or wide:
                raise Untranslatable
        return made

    def _operand(self, node: Any) -> Any:
        if not isinstance(node, fx.Node):
            return self.recorder.number(node) if isinstance(node, torch.SymInt) else node
        value = node.meta["val"]
        if isinstance(value, int | torch.SymInt):
            return self.recorder.number(value)
        if node in self.ends:
            return self.ends[node]
        known = self.known[node]
        return known if type(known) is Value else self.recorder.stand_in(self.needs_array(node))


def _computes_with_sizes(node: fx.Node) -> bool:
    """Tells whether an operation takes an open size for a number: what stands for the size is none to compute with."""
    schema: Any = node.target._schema  # type: ignore[union-attr]
    kinds = {argument.name: str(argument.real_type) for argument in schema.arguments}
    given = dict(zip(kinds, node.args, strict=False)) | node.kwargs
    leaves = [leaf for name, value in given.items() if "int" not in kinds[name] for leaf in pytree.tree_leaves(value)]
    values = [leaf.meta.get("val") if isinstance(leaf, fx.Node) else leaf for leaf in leaves]
    return any(map(_is_open, values))


def _is_open(value: Any) -> bool:
    return isinstance(value, torch.SymInt | torch.SymFloat)
