"""Makes the plans of products on a device: sums of many rows take launches of their own, and scratch memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from dacergnn.graph.spaces import MAPS, kind, through
from dacergnn.library_nodes.access import group_path, index_name, ordered_index_name
from dacergnn.library_nodes.form import Statement
from dacergnn.library_nodes.plan import ALIGNMENT, in_order
from dacergnn.library_nodes.segment_gemm.plan import USUAL, GemmPlan, ProductBody, ProductSchedule, Segments, describe
from dacergnn.library_nodes.traversal.lanes import MAX_LANES, Lanes

MOST_BATCH, BATCH_BYTES = 4, 96
"""The most rows that a warp finishes at once, and the most bytes of what a lane reads for them at once."""
MOST_CHUNKS = 2048
"""The most partial sums of hubs (``kMostChunks`` of ``hubs.cuh``)."""
MOST_BLOCKS, PARTIAL_ELEMENTS = 512, 1 << 22
"""The most partial sums of a weight gradient; there are fewer if all together would have more than these elements."""


def pair_path(statement: Statement) -> str | None:
    """Returns the path to pairs of target and type, if the rows of a pair are added before they are multiplied."""
    path = statement.target.path
    summed = path in ("src", "dst") and kind(statement.space) == "E" and group_path(statement) == "etype"
    return f"{path}pair" if summed else None


@lru_cache(maxsize=512)
def plan_device_gemm(body: ProductBody, schedule: ProductSchedule = USUAL) -> GemmPlan:
    """Returns the plan of a product on a device."""
    plan = replace(describe(body), schedule=schedule)
    if plan.form in ("gather", "scatter"):
        shared = ("split_hubs",) if plan.form == "scatter" else ()
        plan = replace(plan, questions=(*shared, "row_tile", "least_blocks"))
    needs: list[tuple[str, int]] = []
    if plan.form == "outer":
        blocks, elements = outer_blocks(plan), plan.heads * plan.k * plan.m
        needs = [("ONE", blocks * elements), (plan.reached, elements)]
        plan = replace(plan, launches=2)
    elif plan.form == "scatter":
        plan, needs = _scattered(plan)
    scratch: dict[str, int] = {}
    for space, elements in needs:
        scratch[space] = scratch.get(space, 0) + elements * max(body.arrays.item, 4)  # sums have 32 bits at least
        scratch["ONE"] = scratch.get("ONE", 0) + ALIGNMENT
    encodings = in_order(dict.fromkeys(name for name in _encodings(plan) if name is not None))
    return replace(plan, scratch=scratch, encodings=encodings, at_once=_at_once(plan))


def _at_once(plan: GemmPlan) -> int:
    """Returns the number of rows that a warp finishes at once: one if it has memory for the rows of one only."""
    lanes = Lanes(MAX_LANES)
    held = [
        sum(lanes.held(plan.arrays.width(ref.name)) for ref in s.reads if not plan.is_at_hand(ref))
        for s in plan.epilogue
    ]
    room = BATCH_BYTES // (max(plan.arrays.item, 4) * max(held, default=0)) if any(held) else 0
    return 1 if plan.local_rows or room == 0 else min(MOST_BATCH, 1 << (room.bit_length() - 1))


def outer_blocks(plan: GemmPlan) -> int:
    """Returns the most partial sums that a weight gradient has."""
    return min(max(PARTIAL_ELEMENTS // (plan.heads * plan.k * plan.m), 8), MOST_BLOCKS)


def _scattered(plan: GemmPlan) -> tuple[GemmPlan, list[tuple[str, int]]]:
    """Returns the plan of a product whose results are added up, and the elements that it needs per row of a space."""
    path, group = plan.statement.target.path, group_path(plan.statement)
    hubs = [("ONE", MOST_CHUNKS * plan.heads * max(plan.k, plan.m))] if plan.hubs else []
    launches = 1 + plan.hubs
    # If a target has one type, its rows are added before the product, unless targets outnumber rows by far.
    typed = None if path in ("edge", "typedsrc") else through(plan.space, path, group)
    if typed is not None:
        segments = Segments.of(plan.reached, typed)
        plan = replace(plan, targets=_summed(plan, path), gathers=_gathers(plan, path))
        return replace(plan, form="sums", segments=segments, launches=launches), hubs
    pair = pair_path(plan.statement)
    if pair is None:
        segments = Segments.of(plan.space, group)
        return replace(plan, segments=segments, launches=launches + 1), [*hubs, (plan.space, plan.width)]
    pairs = MAPS[plan.space, pair]
    return (
        replace(
            plan,
            form="pairs",
            segments=Segments.of(pairs, "etype"),
            targets=Segments.of(pairs, path),
            summed=_summed(plan, pair),
            gathers=_gathers(plan, pair),
            launches=launches + 1,
        ),
        [*hubs, (pairs, plan.width)],
    )


def _gathers(plan: GemmPlan, order: str) -> tuple[str | None, str | None]:
    """Returns the encoding that lists gathered rows in the order in which they are added up."""
    path = plan.gemm.x.path
    own = plan.gathers[0] if path == "one" else ordered_index_name(plan.space, order, path)
    return own, plan.gathers[1]


def _summed(plan: GemmPlan, order: str) -> Segments:
    """Returns the rows that are added up by the row of their sum, with a list only if their scales need it."""
    segments = Segments.of(plan.space, order)
    return segments if plan.scales else replace(segments, order=None)


def _encodings(plan: GemmPlan) -> Iterator[str | None]:
    yield from plan.gathers
    for segments in (plan.segments, plan.targets, plan.summed):
        if segments is not None:
            yield from (segments.pointers, segments.order)
    for statement in plan.epilogue:
        for ref in statement.reads:
            if not plan.is_at_hand(ref):
                yield index_name(statement.space, ref.path)
