"""Schedule selection: how a traversal's threads walk its groups (Hector 3.3.2; vertex- or edge-balanced mapping).

Precondition: a fused inter-operator SDFG.

- ``schedule_by``: "groups" runs a loop over the rows of each group, which keeps a sum in a register; "edges" runs one
  loop over all rows of a tile and adds each value to the sum of its group, which costs a load and a store a row and no
  mispredicted branch a group. Only sums of a few elements have the choice.
- ``split_hubs``: all threads share the rows of each group of very many, chunk by chunk, also in nests of three levels.
  That takes a second form of the kernel, so only where the graph has such a group. On devices, several blocks of
  threads share them, also in products that sum up rows, in one launch more for every loop over a group.
- ``tile_rows``: rows that the loops of a nest run over one after the other, as many as have their scratch in the cache.
- ``hub_rows``: rows of the longest group that is no hub, where hubs are divided; 0 goes by the number of all rows.
- ``chunks``: parts into which loops are cut for each thread.

On the CPU, the last three (`RUN_TIME`) are arguments of the kernel: programs that differ in nothing else share a build.

Saves, for groups of two edges, about two fifths of the time of their sums; of a hub of h edges, the time of
h (1 - 1/P) edges on P threads. Tiles save little: from 256 rows on times differ by about 2 %, while tiles of 64 narrow
rows cost 4 %.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import dace

from dacergnn.cost import has_hubs, tile_rows
from dacergnn.graph.spaces import MAPS
from dacergnn.library_nodes import SegmentGemm, Traversal
from dacergnn.library_nodes.segment_gemm.expansions.cuda import pair_path
from dacergnn.library_nodes.traversal.expansions.cpu import traversal_kernel
from dacergnn.library_nodes.traversal.expansions.nest_kernel import NestKernel, Sharing
from dacergnn.library_nodes.traversal.nest import Levels
from dacergnn.program import Program
from dacergnn.sdfg_passes.base import Pass
from dacergnn.sdfg_passes.context import Context

BRANCH = 4.0
"""Time of the mispredicted branch that ends a short group, in additions to a sum in memory."""
_YES_NO = ("no", "yes")
_TILES = ("64", "256", "1024", "4096")
_HUB_ROWS = ("0", "1024", "4096", "16384", "65536")
_CHUNKS = ("1", "4", "16", "64")
RUN_TIME = Sharing._fields
"""Ends of the questions whose answers need no build of their own on the CPU."""


@dataclass(frozen=True)
class SelectSchedule(Pass):
    """Fixes the schedule of every operator; counts those that get another one than they had.

    A plan names the operator by the array that it writes first: "out/schedule_by".
    """

    name: ClassVar[str] = "select_schedule"

    def run(self, sdfg: dace.SDFG, context: Context) -> int:
        sizes, longest = context.profile.sizes, context.profile.longest
        implementation, choices = context.implementation, context.choices
        divided = partial(has_hubs, sizes, longest, implementation)
        changed = 0
        program = Program(sdfg)
        traversals: list[Any] = [o for o in program.operators if isinstance(o, Traversal)]
        for operator in traversals:
            levels = Levels.of(operator.space, operator.statements)
            if len(levels.spaces) == 1:
                continue
            before = _schedule(operator)
            outer, inner = levels.spaces[0], levels.spaces[-1]
            asked = choices.of(operator.statements[0].target.name)
            by = "edges" if sizes[inner] < BRANCH * sizes[outer] else "groups"
            operator.schedule_by = asked.ask("schedule_by", ("groups", "edges"), by)
            arrays = operator.arrays(sdfg, program.state)
            kernel = traversal_kernel(operator, arrays)
            if isinstance(kernel, NestKernel):
                hubs = divided(inner, outer, levels.up(inner, outer) or "")
                operator.split_hubs = asked.ask("split_hubs", _YES_NO, _YES_NO[hubs]) == "yes"
                item = max(arrays[s.target.name].dtype.bytes for s in operator.statements)
                tiles = tile_rows(kernel.kept_elements * item)
                operator.tile_rows = int(asked.ask("tile_rows", sorted({*_TILES, str(tiles)}, key=int), str(tiles)))
                if implementation == "cpu":
                    operator.hub_rows = int(asked.ask("hub_rows", _HUB_ROWS, "0")) if operator.split_hubs else 0
                    operator.chunks = int(asked.ask("chunks", _CHUNKS, "16"))
            changed += before != _schedule(operator)
        if implementation == "cuda":
            for product in (o for o in program.operators if isinstance(o, SegmentGemm)):
                changed += _divide_sums(product, divided)
        return changed


def _schedule(operator: Any) -> tuple[object, ...]:
    return operator.schedule_by, operator.split_hubs, *(getattr(operator, name) for name in RUN_TIME)


def _divide_sums(product: Any, divided: Callable[[str, str, str], bool]) -> bool:
    """Returns whether it changed that several blocks share the sums of a product."""
    statement, gemm = product.gemm
    space, path, before = statement.space, statement.target.path, product.split_hubs
    if gemm.kind == "linear" and path:
        summed = pair_path(statement) or path
        product.split_hubs = divided(space, MAPS[space, summed], summed)
    return product.split_hubs != before
