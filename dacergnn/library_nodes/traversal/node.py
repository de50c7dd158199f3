"""The Traversal library node."""

from __future__ import annotations

import dace.library

from dacergnn.library_nodes.node import GraphOperator
from dacergnn.library_nodes.traversal.expansions.cpu import ExpandTraversalCPU
from dacergnn.library_nodes.traversal.expansions.pure import ExpandTraversalPure


@dace.library.node
class Traversal(GraphOperator):
    """A loop nest over the rows of ``space`` whose body is a list of statements.

    A statement with its target in its own row is a map (ApplyEdge, ApplyVertex, Scatter); one with a target
    that a map leads to is a reduction (Gather). Reductions run over the rows grouped by their target, so no
    two threads write one row and results do not depend on the number of threads.
    """

    implementations = {"pure": ExpandTraversalPure, "cpu": ExpandTraversalCPU}
    default_implementation = "cpu"
