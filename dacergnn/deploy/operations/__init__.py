"""Operations that become steps of their own: those of graphs, those that move rows, and those that reduce over them."""

from __future__ import annotations

from dacergnn.deploy.operations import conditions, copies, graphs, row_functions, self_loops, views
from dacergnn.deploy.operations.table import OPERATIONS

__all__ = ["OPERATIONS", "conditions", "copies", "graphs", "row_functions", "self_loops", "views"]
