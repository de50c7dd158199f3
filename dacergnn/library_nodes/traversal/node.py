"""Defines the Traversal library node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dace
import dace.library
from dace import properties

from dacergnn.errors import VerificationError
from dacergnn.library_nodes.node import GraphOperator, RunTimeProperty
from dacergnn.library_nodes.place import at
from dacergnn.library_nodes.plan import Arrays, OperatorPlan
from dacergnn.library_nodes.traversal.nest import problem
from dacergnn.library_nodes.traversal.plan import RUN_TIME, Body, Schedule
from dacergnn.target import Target

if TYPE_CHECKING:
    pass


@dace.library.node
class Traversal(GraphOperator):
    """Represents a loop nest whose body is a list of statements, each over its row space.

    A statement with its target in its own row is a map (ApplyEdge, ApplyVertex, Scatter). One whose target is a row
    that an index map leads to is a reduction (Gather). With several statements, ``space`` is the mapping: the row space
    that threads share out, under which the others nest (`traversal.nest`). Reductions run over the rows grouped by
    their target, so no two threads write one row and results do not depend on the number of threads.
    """

    implementations: dict[str, Any] = {}
    default_implementation = "cpu"
    run_time = RUN_TIME
    schedule_properties = ("schedule_by", "split_hubs", *RUN_TIME)

    schedule_by = properties.Property(
        dtype=str,
        default="groups",
        choices=["groups", "edges"],
        desc="Whether narrow sums run group by group or row by row (select_schedule)",
    )
    split_hubs = properties.Property(
        dtype=bool, default=False, desc="Whether all threads share the rows of very long groups (select_schedule)"
    )
    tile_rows = RunTimeProperty(
        dtype=int,
        default=4096,
        desc="Rows that the loops of a nest run over before the next ones (select_schedule)",
    )
    hub_rows = RunTimeProperty(
        dtype=int,
        default=0,
        desc="Rows from which on a group is very long; 0: by the number of all rows (select_schedule)",
    )
    chunks = RunTimeProperty(
        dtype=int,
        default=16,
        desc="Parts into which a loop is cut for each thread, for a balance (select_schedule)",
    )

    adjacency = properties.Property(
        dtype=str,
        default="csr",
        choices=["csr", "csc", "coo", "ell", "hybrid"],
        desc="Sparse format of the edges that the CPU kernel runs on (select_adjacency)",
    )

    def _plan(self, target: Target, arrays: Arrays) -> OperatorPlan:
        schedule = Schedule(self.schedule_by == "edges", self.split_hubs, self.adjacency)
        return target.plan_nest(Body(self.space, self.statements, arrays, tuple(self.locals)), schedule)

    def validate(self, sdfg: dace.SDFG, state: dace.SDFGState) -> None:
        super().validate(sdfg, state)
        statements = self.statements
        reason = problem(self.space, statements) if len(statements) > 1 else None
        with at(self.place):
            if reason is not None:
                raise VerificationError(f"{self.name}: {reason}.")
            for name in self.run_time:
                value = getattr(self, name)
                if not (isinstance(value, int) and -(1 << 63) <= value < 1 << 63):
                    raise VerificationError(f"{self.name}: {name} is {value}; set it to an integer of 64 bits.")
