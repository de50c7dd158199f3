"""Defines what functions of users get in place of DGL's batches: all edges, or all nodes and what reaches them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from dacergnn.frontends.dgl.ends import Ends
from dacergnn.frontends.dgl.mailbox import Mailbox
from dacergnn.frontends.dgl.refusals import unsupported


class Chosen(Mapping[str, Any]):
    """Holds the rows of a frame that an index names."""

    def __init__(self, frame: Mapping[str, Any], index: Tensor) -> None:
        self._frame, self._index = frame, index

    def __getitem__(self, key: str) -> Any:
        return self._frame[key][self._index]

    def __iter__(self) -> Iterator[str]:
        return iter(self._frame)

    def __len__(self) -> int:
        return len(self._frame)


class EdgeBatch:
    """Holds all edges of a relation."""

    def __init__(self, ends: Ends, src: Mapping[str, Any], data: Mapping[str, Any], dst: Mapping[str, Any]) -> None:
        self._ends = ends
        self.src, self.data, self.dst = Chosen(src, ends.src), data, Chosen(dst, ends.dst)

    def batch_size(self) -> int:
        """Returns the number of edges."""
        return self._ends.src.shape[0]

    def edges(self) -> tuple[Tensor, Tensor, Tensor]:
        """Returns sources, destinations and numbers of the edges."""
        ends = self._ends
        return ends.src, ends.dst, torch.arange(ends.src.shape[0], device=ends.src.device)

    def __len__(self) -> int:
        return self.batch_size()

    def __getattr__(self, name: str) -> Any:
        raise unsupported(f"{name} of a batch of edges")


class NodeBatch:
    """Holds nodes of a type, and messages if it is given to a reduce function."""

    def __init__(self, data: Mapping[str, Any], nodes: Tensor, mailbox: Mapping[str, Mailbox] | None = None) -> None:
        self.data, self.mailbox, self._nodes = data, mailbox, nodes

    def batch_size(self) -> int:
        """Returns the number of nodes."""
        return self._nodes.shape[0]

    def nodes(self) -> Tensor:
        """Returns the numbers of the nodes."""
        return self._nodes

    def __len__(self) -> int:
        return self.batch_size()

    def __getattr__(self, name: str) -> Any:
        raise unsupported(f"{name} of a batch of nodes")


def called_on_nodes(function: Any, ends: Ends, data: Mapping[str, Any], messages: Mapping[str, Tensor]) -> Any:
    """Returns what a reduce function gives for all nodes; as in DGL, it sees no nodes that no edge leads to."""
    rows = ends.rows
    if rows is None:
        nodes = torch.arange(ends.destinations, device=ends.dst.device)
        return function(NodeBatch(data, nodes, {k: Mailbox(ends, v) for k, v in messages.items()}))
    mail = {k: Mailbox(ends, v) for k, v in messages.items()}
    return {k: _spread(v, ends, mail) for k, v in function(NodeBatch(Chosen(data, rows), rows, mail)).items()}


def _spread(value: Any, ends: Ends, mail: Mapping[str, Mailbox]) -> Tensor:
    """Returns rows of all nodes for rows of those that edges lead to; the others hold zeros."""
    for box in mail.values():
        for rows, of_all in box.sums:
            if rows is value:  # zeros are there already
                return of_all
    assert ends.rows is not None
    zeros = torch.zeros((ends.destinations, *value.shape[1:]), dtype=value.dtype, device=value.device)
    return zeros.index_copy(0, ends.rows, value)
