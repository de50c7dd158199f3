"""Features of an operator that depend on schedule and graph: its loops, threads, memory and cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import dace

from dacergnn.config import ADJACENCIES, Rates
from dacergnn.cost import Cost, Work, longest_undivided, operator_work, row_shapes
from dacergnn.graph.spaces import MAPS
from dacergnn.library_nodes.access import group_path
from dacergnn.library_nodes.form import ShapeOf, Statement, size
from dacergnn.library_nodes.node import GraphOperator
from dacergnn.library_nodes.shapes import row_elements
from dacergnn.library_nodes.traversal.nest import Levels
from dacergnn.library_nodes.traversal.plan import NestPlan
from dacergnn.sdfg_passes.listing_cost import START
from dacergnn.tuning import footprint, operations
from dacergnn.tuning.graph_facts import GRAPH_COUNTS, LENGTHS, QUANTILES, GraphFacts
from dacergnn.tuning.operations import ROWS, row_kind

VECTOR_BYTES = 64
SERIAL_WORK = 16384
"""The least number of element operations for which threads share a loop (`kSerialWork` of ``parallel.h``)."""
PRODUCT_BLOCKS = 16
"""The most blocks of a product per thread."""
GEMM_WORK = 32
"""Multiplications of a product that take the time of one element operation."""
NANO = 1e9

_FORMATS = ADJACENCIES[1:]
_TERMS = ("flops", "streamed", "far", "gathered", "rows")
COUNTS = (
    "rows_outer", "rows_middle", "rows_inner", "group_mean", *(f"group_{length}" for length in LENGTHS),
    "levels", "loops", "locals", "tile_rows", "tiles", "scratch_bytes", "tile_bytes", "chunks", "undivided", "slots",
    "padding",
    *_TERMS, *footprint.COUNTS,
    "vector_operations", "scalar_operations", "lanes", "work", "tasks", "rows_per_task", "tasks_per_thread", "waits",
    "again_flops", "flops_per_row",
    "intensity", "bytes_per_row", *(f"{term}_ns" for term in _TERMS), "ns", "ns_waiting", "roof_ns",
    *operations.TOTALS, *GRAPH_COUNTS,
)  # fmt: skip
SHARES = (
    *(f"over_{rows}" for rows in ROWS), "by_groups", "by_edges", *(f"format_{name}" for name in _FORMATS),
    "split_hubs", "has_hubs", *footprint.SHARES, "tile_fits_L2", "remainder", "serial", "balance",
    "again", "later", *(f"{term}_share" for term in _TERMS),
)  # fmt: skip


@dataclass(frozen=True)
class Scheduled:
    """Holds an operator with its schedule, and all that its features need besides a graph; `on` returns the features.

    Attributes:
        row_operations: For each of the works, the operations of one row by kind.
        spaces: Row spaces of its loops, from the outside in.
        group: Path from rows of the innermost loop to their group, "" for none.
        row_work: Element operations of one row, as kernels count them.
        again: Whether an earlier program has computed each of the statements before.
        later: Whether an earlier program runs before this one.
    """

    node: Any
    works: tuple[Work, ...]
    row_operations: tuple[Counter[str], ...]
    item: int
    widths: tuple[int, ...]
    spaces: tuple[str, ...]
    group: str
    row_work: int
    loops: int
    kept: int
    transient: frozenset[str]
    again: tuple[bool, ...]
    later: bool

    @classmethod
    def of(cls, sdfg: dace.SDFG, node: GraphOperator, before: Collection[Statement], later: bool) -> Scheduled:
        """Reads an operator of ``sdfg`` with its schedule; ``before`` are the statements of earlier programs."""
        shapes = row_shapes(sdfg)
        works = tuple(operator_work(sdfg, node))
        statements = node.statements
        product = next((work for work in works if work.statement.is_gemm), None)
        arrays = node.arrays(sdfg, next(iter(sdfg.states())))
        loops, kept = len(statements), 0
        if product is None:
            levels = Levels.of(node.space, statements)
            spaces, group = levels.spaces, levels.up(levels.spaces[-1], levels.spaces[0]) or ""
            plan = node.plan("cpu", arrays)
            if isinstance(plan, NestPlan):
                loops, kept = len(plan.loops), plan.kept_elements
        else:
            space, group = product.statement.space, group_path(product.statement)
            types = MAPS[space, group] if group else space
            spaces = (types, product.multiplied, space)
        item = arrays[statements[0].target.name].dtype.bytes
        return cls(
            node, works, tuple(operations.row_operations(work, shapes) for work in works), item,
            tuple(_columns(work, shapes) for work in works), spaces, group,
            _row_work(works, shapes), loops, kept * item,
            frozenset(name for name, desc in arrays.items() if desc.transient),
            tuple(s in before for s in statements), later,
        )  # fmt: skip

    def on(self, facts: GraphFacts, rates: Rates, threads: int) -> tuple[dict[str, float], dict[str, float], float]:
        """Returns features by `COUNTS` and by `SHARES`, and seconds: the analytic cost plus the time to start."""
        sizes = facts.sizes
        work_costs = [work.on(sizes) for work in self.works]
        cost = sum(work_costs, Cost())
        counts, shares = dict.fromkeys(COUNTS, 0.0), dict.fromkeys(SHARES, 0.0)
        seconds = cost.seconds(rates) + START
        self._loops(counts, shares, facts)
        counts.update(footprint.counts(self.works, self.transient, sizes))
        shares.update(footprint.fits(counts))
        self._threads(counts, shares, facts, threads)
        rows_of = [sizes[work.statement.space] for work in self.works]
        counts.update(operations.totals(zip(rows_of, self.row_operations, strict=True), threads))
        self._again(counts, shares, [work.flops for work in work_costs])
        self._compound(counts, shares, cost, rates)
        rows = max(counts["rows_inner"], 1.0)
        moved = cost.streamed + cost.gathered
        counts.update(
            ns=NANO * seconds, ns_waiting=NANO * seconds * counts["waits"], flops_per_row=cost.flops / rows,
            bytes_per_row=moved / rows, intensity=cost.flops / max(moved, 1),
        )  # fmt: skip
        return counts | facts.counts, shares, seconds

    def _loops(self, counts: dict[str, float], shares: dict[str, float], facts: GraphFacts) -> None:
        """Adds the extents of loops, the lengths of groups, tiles and formats."""
        node, sizes = self.node, facts.sizes
        rows = [sizes[space] for space in self.spaces]
        inner = rows[-1]
        counts.update(
            rows_outer=rows[0], rows_middle=rows[1] if len(rows) == 3 else 0, rows_inner=inner,
            group_mean=inner / max(rows[0], 1), levels=len(rows), loops=self.loops, locals=len(node.locals),
        )  # fmt: skip
        lengths = facts.quantiles.get(self.group, (0,) * len(QUANTILES))
        counts.update(zip((f"group_{length}" for length in LENGTHS), lengths, strict=True))
        shares[f"over_{row_kind(node.space)}"] = 1.0
        hubs = lengths[-1] > self._undivided(inner)
        shares.update(split_hubs=float(node.split_hubs), has_hubs=float(hubs))
        if self._is_product:
            return
        tile = node.tile_rows * self.kept
        counts.update(
            tile_rows=node.tile_rows, tiles=-(-inner // node.tile_rows), scratch_bytes=self.kept, tile_bytes=tile,
            chunks=node.chunks, undivided=self._undivided(inner),
        )  # fmt: skip
        shares[f"by_{node.schedule_by}"] = shares[f"format_{node.adjacency}"] = 1.0
        shares["tile_fits_L2"] = float(tile <= footprint.CACHES["L2"])
        if node.adjacency == "ell":
            counts.update(slots=rows[0] * lengths[-1], padding=rows[0] * lengths[-1] / max(inner, 1))

    def _threads(self, counts: dict[str, float], shares: dict[str, float], facts: GraphFacts, threads: int) -> None:
        """Adds how threads share rows, and how lanes of a vector share elements."""
        sizes = facts.sizes
        rows, items = counts["rows_inner"], counts["rows_inner"] if self._is_product else counts["rows_outer"]
        work = (rows + (0 if self._is_product else items)) * self.row_work
        serial = work < SERIAL_WORK
        blocks = PRODUCT_BLOCKS if self._is_product else self.node.chunks
        tasks = 1 if serial else max(1, min(items, work // (SERIAL_WORK // 4), blocks * threads))
        alone = 0 if self._is_product else counts[f"group_{LENGTHS[-1]}"]
        if self.node.split_hubs:
            alone = min(alone, self._undivided(int(rows)))
        shared = tasks / threads
        lanes = VECTOR_BYTES // self.item
        whole = sum(w.flops_on(sizes) * (width // lanes * lanes) / max(width, 1) for w, width in self._by_width)
        total = sum(w.flops_on(sizes) for w in self.works)
        counts.update(
            work=work, tasks=tasks, rows_per_task=rows / tasks, tasks_per_thread=shared,
            waits=max(1.0, alone * threads / max(rows, 1)), vector_operations=whole, scalar_operations=total - whole,
            lanes=min(lanes, max(self.widths)),
        )  # fmt: skip
        shares.update(
            serial=float(serial), balance=shared / -(-tasks // threads), remainder=max(self.widths) % lanes / lanes
        )

    def _again(self, counts: dict[str, float], shares: dict[str, float], flops: Sequence[int]) -> None:
        """Adds the work that an earlier program has done before."""
        again = sum(number for number, repeated in zip(flops, self.again, strict=True) if repeated)
        counts["again_flops"] = again
        shares.update(again=sum(self.again) / len(self.again), later=float(self.later))

    def _compound(self, counts: dict[str, float], shares: dict[str, float], cost: Cost, rates: Rates) -> None:
        """Adds the terms of the cost and their times; the longest is the time if all terms overlap."""
        times: dict[str, float] = {}
        for term in _TERMS:
            counts[term] = getattr(cost, term)
            times[term] = NANO * getattr(cost, term) / (rates.streamed if term == "far" else getattr(rates, term))
        total = max(sum(times.values()), 1e-3)
        for term, time in times.items():
            counts[f"{term}_ns"] = time
            shares[f"{term}_share"] = time / total
        counts["roof_ns"] = max(times.values())

    def _undivided(self, rows: int) -> int:
        """Returns the most rows of a group that threads do not share; ``rows`` are the rows of all groups."""
        return (not self._is_product and self.node.hub_rows) or longest_undivided(rows)

    @property
    def _is_product(self) -> bool:
        return any(work.statement.is_gemm for work in self.works)

    @property
    def _by_width(self) -> zip[tuple[Work, int]]:
        return zip(self.works, self.widths, strict=True)


def _columns(work: Work, shapes: ShapeOf) -> int:
    """Returns the elements of a row along which vectors run: a product's last axis, all elements of a map or a sum."""
    shape = shapes(work.statement.target)
    if work.statement.is_gemm:
        return shape[-1] if shape else 1
    return max([size(shape), *(size(shapes(ref)) for ref in work.statement.reads)])


def _row_work(works: Sequence[Work], shapes: ShapeOf) -> int:
    """Returns the work of one row as kernels estimate it."""
    product = next((work for work in works if work.statement.is_gemm), None)
    if product is not None:
        return -(-product.flops // (2 * GEMM_WORK))
    statements = [work.statement for work in works]
    return row_elements(shapes, [expr for s in statements for expr in (s.expr, s.target)])
