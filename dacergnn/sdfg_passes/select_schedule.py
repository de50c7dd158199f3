"""Schedule selection: how a traversal's threads walk its groups (Hector 3.3.2; vertex- or edge-balanced mapping).

Precondition: a fused inter-operator SDFG. ``groups`` runs a loop over the rows of each group, which keeps a sum in a
register; ``edges`` runs one loop over all rows of a tile and adds each value to the sum of its group, which costs a
load and a store a row and no mispredicted branch a group. Only sums of a few elements have the choice.

Saves, for groups of two edges, about two fifths of the time of their sums.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dace

from dacergnn.library_nodes import Traversal
from dacergnn.library_nodes.traversal.nest import Levels
from dacergnn.program import Program

BRANCH = 4.0
"""Time of the mispredicted branch that ends a short group, in additions to a sum in memory."""


def select_schedule(sdfg: dace.SDFG, sizes: Mapping[str, int]) -> int:
    """Fix the schedule of every traversal of ``sdfg``, in place; returns how many got another one than they had."""
    changed = 0
    traversals: list[Any] = [o for o in Program(sdfg).operators if isinstance(o, Traversal)]
    for operator in traversals:
        spaces = Levels.of(operator.space, operator.statements).spaces
        short = len(spaces) > 1 and sizes[spaces[-1]] < BRANCH * sizes[spaces[0]]
        schedule = "edges" if short else "groups"
        changed += operator.schedule_by != schedule
        operator.schedule_by = schedule
    return changed
