"""The Traversal library node."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dace
import dace.library
from dace import properties

from dacergnn.errors import VerificationError
from dacergnn.library_nodes.device_code import DeviceCode
from dacergnn.library_nodes.node import GraphOperator, RunTimeProperty
from dacergnn.library_nodes.traversal.expansions.cpu import ExpandTraversalCPU, traversal_kernel
from dacergnn.library_nodes.traversal.expansions.cuda import ExpandTraversalCUDA, cuda_scratch, device_kernel
from dacergnn.library_nodes.traversal.expansions.nest_kernel import USUAL, NestKernel, Sharing
from dacergnn.library_nodes.traversal.expansions.pure import ExpandTraversalPure
from dacergnn.library_nodes.traversal.in_place import in_place
from dacergnn.library_nodes.traversal.nest import problem

if TYPE_CHECKING:
    from dace.data import Data


@dace.library.node
class Traversal(GraphOperator):
    """A loop nest whose body is a list of statements, each over its row space.

    A statement with its target in its own row is a map (ApplyEdge, ApplyVertex, Scatter); one with a target
    that a map leads to is a reduction (Gather). With several statements, ``space`` is the mapping: the row space
    that threads share out, under which the others nest (`traversal.nest`). Reductions run over the rows grouped by
    their target, so no two threads write one row and results do not depend on the number of threads.
    """

    implementations = {"pure": ExpandTraversalPure, "cpu": ExpandTraversalCPU, "cuda": ExpandTraversalCUDA}
    default_implementation = "cpu"
    run_time = Sharing._fields

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
        default=USUAL.tile_rows,
        desc="Rows that the loops of a nest run over before the next ones (select_schedule)",
    )
    hub_rows = RunTimeProperty(
        dtype=int,
        default=USUAL.hub_rows,
        desc="Rows from which on a group is very long; 0: by the number of all rows (select_schedule)",
    )
    chunks = RunTimeProperty(
        dtype=int,
        default=USUAL.chunks,
        desc="Parts into which a loop is cut for each thread, for a balance (select_schedule)",
    )

    adjacency = properties.Property(
        dtype=str,
        default="csr",
        choices=["csr", "csc", "coo", "ell", "hybrid"],
        desc="Sparse format of the edges that the CPU kernel runs on (select_adjacency)",
    )

    def scheme(self, implementation: str, arrays: dict[str, Data]) -> list[str]:
        if implementation == "pure":
            return super().scheme(implementation, arrays)
        if implementation == "cuda":
            return device_kernel(self, arrays).encodings
        kernel = traversal_kernel(self, arrays)
        kernel.code()
        return kernel.encodings

    def scratch(self, implementation: str, arrays: dict[str, Data]) -> dict[str, int]:
        return cuda_scratch(self, arrays) if implementation == "cuda" else {}

    def in_place(self, implementation: str, arrays: dict[str, Data]) -> set[tuple[str, str]]:
        kernel = traversal_kernel(self, arrays) if (implementation, self.adjacency) == ("cpu", "csr") else None
        return in_place(kernel) if isinstance(kernel, NestKernel) else set()

    def device_code(self, arrays: dict[str, Data]) -> DeviceCode:
        return device_kernel(self, arrays).code

    def validate(self, sdfg: dace.SDFG, state: dace.SDFGState) -> None:
        super().validate(sdfg, state)
        statements = self.statements
        found = problem(self.space, statements) if len(statements) > 1 else None
        if found is not None:
            raise VerificationError(f"{self.label}: {found}.")
        for name in self.run_time:
            value = getattr(self, name)
            if not (isinstance(value, int) and -(1 << 63) <= value < 1 << 63):
                raise VerificationError(f"{self.label}: {name} is {value}; set it to an integer of 64 bits.")
