"""The network of an exported program while it is read: constants, sizes, arrays, graphs and rows so far."""

from __future__ import annotations

import re
from typing import Any

import sympy
import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from dacergnn.config import Config
from dacergnn.deploy.network import Array, Constant, Input, SameSize, Step
from dacergnn.deploy.places import label_of
from dacergnn.deploy.row_programs import RowPrograms, Rows
from dacergnn.deploy.sizes import Size, size_of
from dacergnn.frontends.symbolic.call import Untranslatable

RECORDED = object()
"""Tells that rows hold an operation already."""


class NetworkBuilder:
    """Holds the steps for the nodes of an exported program that have been read, and what is known of these nodes.

    Args:
        config: How programs are compiled; None for the targets and plans that they were exported with.
    """

    def __init__(self, config: Config | None = None) -> None:
        self.config = config
        self.known: dict[fx.Node, Any] = {}
        self.steps: list[Step] = []
        self.inputs: list[Input] = []
        self.constants: dict[str, Constant] = {}
        self.rows = RowPrograms(lambda tensor: self.constant(tensor, "folded"), config or Config(tune="off"))
        self._open: dict[Size, Rows] = {}
        self._counts: dict[str, int] = {}
        self.made: dict[object, Any] = {}
        """Results of steps that would be equal, by what they depend on."""

    # Objects

    def name(self, prefix: str) -> str:
        """Returns a new name in C++."""
        self._counts[prefix] = self._counts.get(prefix, -1) + 1
        return f"{prefix}{self._counts[prefix]}"

    def constant(self, tensor: Tensor, hint: str) -> Constant:
        """Returns a tensor that is the same in all calls; only those that steps read are kept in the end."""
        base = "w_" + re.sub(r"\W+", "_", hint)
        name = base if base not in self.constants else self.name(f"{base}_")
        value = tensor.detach().cpu().contiguous()
        shape = tuple([sympy.Integer(size) for size in value.shape])
        made = self.constants[name] = Constant(name, value.dtype, shape, value=value)
        return made

    def array(self, node: fx.Node | Any, source: Array | None = None, start: Size | None = None) -> Array:
        """Returns an array for the value of a node (or of torch's fake tensor of it)."""
        value = node.meta["val"] if isinstance(node, fx.Node) else node
        shape = tuple([size_of(size) for size in value.shape])
        return Array(self.name("a"), value.dtype, shape, source, start)

    def get(self, node: Any) -> Any:
        """Returns what is known of a node; rows that are still recorded become an array."""
        known = self.known[node] if isinstance(node, fx.Node) else node
        if isinstance(known, Rows):
            self.close(known)
            known = self.known[node]
        return known

    def same_size(self, one: Size, other: Size) -> None:
        """Notes that two sizes that steps find are the same."""
        self.steps.append(SameSize(one, other))

    def needs_array(self, node: Any) -> Array:
        """Returns the array of a node; raises Untranslatable if it has none."""
        known = self.get(node)
        if not isinstance(known, Array):
            raise Untranslatable
        return known

    # Rows

    def close(self, rows: Rows) -> None:
        """Makes a step of recorded rows."""
        if self._open.get(rows.count) is not rows:
            return
        del self._open[rows.count]
        wanted = [n for n in rows.values if any(user not in rows.values for user in n.users)]
        arrays = [self.array(node) for node in wanted]
        step = self.rows.step(rows, wanted, arrays, label_of(wanted[-1]))
        if step is not None:
            self.steps.append(step)
        for node, array in zip(wanted, arrays, strict=True):
            self.known[node] = array

    def record(self, node: fx.Node) -> object:
        """Adds an operation to the rows of its size; raises Untranslatable if it is none on rows."""
        value = node.meta["val"]
        several = isinstance(value, tuple | list)
        first = value[0] if several else value
        if not isinstance(first, Tensor) or not first.dim():
            raise Untranslatable
        count = size_of(first.shape[0])
        rows = self._open.get(count) or Rows(count)
        operands = [n for n in node.all_input_nodes if isinstance(n.meta.get("val"), Tensor)]
        for operand in operands:
            known = self.known[operand]
            if isinstance(known, Rows) and known is not rows:
                self.close(known)
        rows = self._open.get(count) or rows  # closed rows are followed by new ones
        args, kwargs = pytree.tree_map_only(fx.Node, lambda n: self._operand(n, rows), (node.args, node.kwargs))
        args, kwargs = pytree.tree_map_only(torch.SymInt, self.rows.concrete, (args, kwargs))
        made = self.rows.record(node.target, _plain(args), _plain(kwargs))
        self._open[count] = rows
        if several:
            self.known[node] = [(rows, part) for part in made]
        else:
            rows.values[node], self.known[node] = made, rows
        return RECORDED

    def _operand(self, node: fx.Node, rows: Rows) -> Any:
        value = node.meta["val"]
        if isinstance(value, int | torch.SymInt):
            return self.rows.concrete(value)
        if node in rows.values:
            return rows.values[node]
        known = self.get(node)
        if not isinstance(known, Array):
            raise Untranslatable
        return self.rows.stand_in(known)


def _plain(value: Any) -> Any:
    """Returns arguments with lists in place of torch's lists that cannot change."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, tuple):
        return tuple([_plain(item) for item in value])
    return {k: _plain(v) for k, v in value.items()} if isinstance(value, dict) else value
