"""The nonzeros of sparse features: their checked positions in the order of rows."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dacergnn.errors import ArrayError
from dacergnn.graph.checks import IndexRange, check_extremes, extremes
from dacergnn.graph.sorting import ascends, stable_order

_LAYOUTS = (torch.sparse_csr, torch.sparse_coo)


@dataclass(frozen=True)
class Nonzeros:
    """Holds the entries of a sparse matrix of ``shape``, by row; entries in the same position are summed.

    ``starts`` [rows + 1] delimits the rows in ``columns`` [Z]. ``order`` [Z] is the position of each entry in the
    tensor's own values, None if these are in order.
    """

    shape: tuple[int, int]
    starts: Tensor
    columns: Tensor
    order: Tensor | None

    def values(self, x: Tensor) -> Tensor:
        """Returns [Z] the values of a tensor with these entries, in order."""
        own = x.values() if x.layout is torch.sparse_csr else x._values()
        return own.contiguous() if self.order is None else own.index_select(0, self.order)


def check_sparse(name: str, x: Tensor, rows: int, device: torch.device) -> None:
    """Raises ArrayError unless ``x`` is a CSR or COO matrix of ``rows`` rows on ``device`` that needs no gradient."""
    if x.layout not in _LAYOUTS:
        raise ArrayError(name, f"has the layout {x.layout}; convert it with .to_sparse_csr()")
    if x.dim() != 2 or (x.layout is torch.sparse_coo and x.dense_dim() != 0):
        raise ArrayError(name, f"is sparse with shape {list(x.shape)}; sparse features are matrices of numbers")
    if x.shape[0] != rows:
        raise ArrayError(name, f"has {x.shape[0]} rows, but the graph has {rows} nodes; give each node a row")
    if x.device != device:
        raise ArrayError(name, f"is on {x.device}, but the graph is on {device}; move it with .to({str(device)!r})")
    if x.requires_grad and torch.is_grad_enabled():
        raise ArrayError(name, "is sparse and requires a gradient, which has no sparse form; pass x.detach(), or "
                         "x.to_dense() if it is to be trained")  # fmt: skip


def nonzeros_of(name: str, x: Tensor) -> Nonzeros:
    """Returns the nonzeros of a tensor that `check_sparse` took; may raise ArrayError or GraphError for its indices."""
    rows, columns = x.shape
    with torch.no_grad():
        if x.layout is torch.sparse_csr:
            starts, col_indices, order = x.crow_indices(), x.col_indices(), None
            counts = starts.diff()
            delimits = starts.numel() == rows + 1 and col_indices.numel() == x.values().numel()
            low, high = 0, -1
            if delimits:
                ends = torch.stack([starts[0] == 0, starts[-1] == len(col_indices), (counts >= 0).all()])
                low, high, delimits = torch.cat((extremes(col_indices), ends.all().reshape(1))).tolist()
            if not delimits:
                raise ArrayError(name, "has row pointers that do not ascend from 0 to the number of its column "
                                 "indices; make it with check_invariants=True to see where")  # fmt: skip
            check_extremes(IndexRange(f"{name}.col_indices()", col_indices, columns, "columns", "size"), low, high)
            return Nonzeros((rows, columns), starts.clone(), col_indices.clone(), None)
        indices = x._indices()
        *ends, in_order = torch.cat((extremes(*indices), ascends(indices[0]).reshape(1))).tolist()
        check_extremes(IndexRange(f"{name}.indices()[0]", indices[0], rows, "rows", "size"), *ends[:2])
        check_extremes(IndexRange(f"{name}.indices()[1]", indices[1], columns, "columns", "size"), *ends[2:])
        order = None if in_order else stable_order([(indices[0], rows)], ask=False)
        if order is not None:
            indices = indices.index_select(1, order)
        starts = torch.searchsorted(indices[0].contiguous(), torch.arange(rows + 1, device=x.device))
        return Nonzeros((rows, columns), starts, indices[1].clone(), order)
