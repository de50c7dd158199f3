"""Estimates bytes and floating-point operations of programs on graphs from statements; sizes tiles and hubs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import dace

from dacergnn.config import Rates
from dacergnn.graph.spaces import MAPS, TYPE_PATHS, kind, part
from dacergnn.library_nodes import GraphOperator, row_shape, row_space
from dacergnn.library_nodes.form import WEIGHT_PRODUCTS, Const, Expr, Op, Ref, Shape, ShapeOf, Statement, size
from dacergnn.library_nodes.operators import OPERATORS
from dacergnn.library_nodes.parse import view_shape
from dacergnn.library_nodes.shapes import shape_of
from dacergnn.target import find

INDEX_BYTES = 4
ITEM = 4
"""Default bytes of an element: float32."""
# Row spaces that kernels multiply when they sum into end points: rows of an (end point, type) pair are added first.
_PAIRS = {"src": "U", "dst": "V"}

CACHE_BYTES = 64 << 20
"""Bytes of a table with gathered rows that stay in the last-level cache, which it shares with streamed data."""
LINE = 64
"""Bytes of a cache line: the least that comes from memory."""
SEEK = 128
"""Bytes that memory could stream while it looks up one row."""
_SCATTER = 3
"""Passes over a row to which a product is added out of order: a read, a write, and the wait for both."""
TILE_BYTES = 64 * 1024
"""Bytes that a tile's scratch may take: a quarter of a small L2 cache, which also holds rows that loops gather."""
TILE_ROWS = (64, 4096)
"""Least and most rows of a tile: fewer do not make up for starting its loops; more gain nothing."""


@dataclass(frozen=True)
class Cost:
    """Describes the operations and the memory traffic of a program.

    Attributes:
        flops: Floating-point operations.
        streamed: Bytes that are read or written once, in order.
        gathered: Bytes that are read row by row through an index.
        rows: Rows of these bytes that are looked up one by one.
        far: Bytes that memory could stream while it delivers rows that the cache does not hold.
    """

    flops: int = 0
    streamed: int = 0
    gathered: int = 0
    rows: int = 0
    far: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.flops + other.flops,
            self.streamed + other.streamed,
            self.gathered + other.gathered,
            self.rows + other.rows,
            self.far + other.far,
        )

    def __sub__(self, other: Cost) -> Cost:
        return Cost(
            self.flops - other.flops,
            self.streamed - other.streamed,
            self.gathered - other.gathered,
            self.rows - other.rows,
            self.far - other.far,
        )

    def seconds(self, rates: Rates) -> float:
        """Returns the time of a program whose parts do not overlap; rows from memory pass through the cache, too."""
        return (
            self.flops / rates.flops
            + (self.streamed + self.far) / rates.streamed
            + self.gathered / rates.gathered
            + self.rows / rates.rows
        )


def gather_cost(rows: int, width: int, table: int) -> Cost:
    """Returns the cost of reading ``rows`` rows of ``width`` bytes in any order, out of ``table`` rows.

    As many rows as the cache has room for come from there, the others from memory, in whole lines.
    """
    lines = -(-width // LINE) * LINE
    return Cost(gathered=rows * width, rows=rows, far=_missed(rows * (SEEK + lines), min(table, rows) * width))


def _scatter_cost(rows: int, width: int, table: int) -> Cost:
    """Returns the cost of adding rows to a table of zeros, type by type, in table order for each type."""
    return Cost(streamed=table * width, gathered=_SCATTER * rows * width, far=_missed(2 * rows * width, table * width))


def _missed(count: int, held: int) -> int:
    """Returns how many of ``count`` bytes come from memory, if rows of ``held`` bytes are visited repeatedly."""
    return count * (held - CACHE_BYTES) // held if held > CACHE_BYTES else 0


def program_cost(sdfg: dace.SDFG, sizes: Mapping[str, int]) -> Cost:
    """Returns the cost of all operators of an SDFG on a graph with ``sizes[space]`` rows in every row space."""
    nodes = (node for state in sdfg.states() for node in state.nodes())
    return sum((operator_cost(sdfg, n, sizes) for n in nodes if isinstance(n, GraphOperator)), Cost())


def operator_cost(sdfg: dace.SDFG, node: GraphOperator, sizes: Mapping[str, int]) -> Cost:
    """Returns the cost of one operator of an SDFG.

    Arrays that are local to an operator cost no bytes; arrays that several of its statements read cost them once.
    """
    return sum((work.on(sizes) for work in operator_work(sdfg, node)), Cost())


def statement_cost(
    statement: Statement,
    sizes: Mapping[str, int],
    *,
    space: Callable[[str], str],
    shapes: ShapeOf,
    item: int = ITEM,
    at_hand: Collection[tuple[str, str]] = (),
) -> Cost:
    """Returns the cost of one statement with ``sizes[space]`` rows in every row space; see `statement_work`."""
    return statement_work(statement, space=space, shapes=shapes, item=item, at_hand=at_hand).on(sizes)


@dataclass(frozen=True)
class Access:
    """Describes how a statement reaches rows of an array.

    Attributes:
        ref: The reference that it reads or writes.
        way: "streamed": all rows of the array come once, in order; "gathered": each visit reads one row;
            "scattered": each visit adds to one row.
        visits: Row space with a row for every visit.
        table: Row space of the array.
        width: Bytes of a row.
        indexed: Whether an index tells where each row is.
    """

    statement: Statement
    ref: Ref
    way: str
    visits: str
    table: str
    width: int
    indexed: bool

    def on(self, sizes: Mapping[str, int]) -> Cost:
        """Returns the cost of the access on a graph with ``sizes``, without the index."""
        visits, table = sizes[self.visits], sizes[self.table]
        if self.way == "gathered":
            return read_cost(self.statement, self.ref, visits, self.width, table)
        return (
            _scatter_cost(visits, self.width, table) if self.way == "scattered" else Cost(streamed=table * self.width)
        )

    @property
    def in_order(self) -> bool:
        """Returns whether visits come in the order of the rows, so that none has to be looked up."""
        return self.way == "streamed" or (self.way == "gathered" and _is_in_order(self.statement, self.ref.path))

    def index_bytes(self, sizes: Mapping[str, int]) -> int:
        """Returns the bytes of the index that it reads."""
        return sizes[self.statement.space] * INDEX_BYTES if self.indexed else 0


@dataclass(frozen=True)
class Work:
    """Describes the work of a statement on any graph.

    Attributes:
        multiplied: Row space of the rows it computes: the statement's own, or the pairs that a product sums first.
        flops: Floating-point operations for each of these rows.
        sum_flops: Floating-point operations for each row of the statement that is summed first.
        accesses: Its accesses to rows, other than those at hand.
    """

    statement: Statement
    multiplied: str
    flops: int
    sum_flops: int
    accesses: tuple[Access, ...]

    def on(self, sizes: Mapping[str, int]) -> Cost:
        """Returns the cost on a graph with ``sizes[space]`` rows in every row space."""
        rows = tuple([sizes[space] for space in self._spaces])
        if rows not in self._costs:
            costs = [Cost(self.flops_on(sizes)), *(access.on(sizes) for access in self.accesses)]
            indices = sum(access.index_bytes(sizes) for access in self.accesses)
            self._costs[rows] = sum(costs, Cost(streamed=indices))
        return self._costs[rows]

    @cached_property
    def _spaces(self) -> tuple[str, ...]:
        """Returns the row spaces that the cost depends on."""
        reached = (space for access in self.accesses for space in (access.visits, access.table))
        return tuple(dict.fromkeys((self.multiplied, self.statement.space, *reached)))

    @cached_property
    def _costs(self) -> dict[tuple[int, ...], Cost]:
        """Returns the costs that are known, by the rows of these spaces: searches ask for the same ones often."""
        return {}

    def flops_on(self, sizes: Mapping[str, int]) -> int:
        """Returns the floating-point operations on a graph with ``sizes``."""
        return sizes[self.multiplied] * self.flops + sizes[self.statement.space] * self.sum_flops


def operator_work(sdfg: dace.SDFG, node: GraphOperator) -> list[Work]:
    """Returns the work of each statement of an operator; local and shared arrays count as in `operator_cost`."""
    works: list[Work] = []
    at_hand = {(name, path) for name in node.locals for path in ("", *(p for _, p in MAPS))}
    shapes = row_shapes(sdfg)
    for statement in node.statements:
        work = statement_work(
            statement,
            space=lambda name: row_space(sdfg.arrays[name]),
            shapes=shapes,
            item=sdfg.arrays[statement.target.name].dtype.bytes,
            at_hand=at_hand,
        )
        works.append(work)
        at_hand.update((r.name, r.path) for r in statement.reads)
        at_hand.update((statement.target.name, path) for path in ("", statement.target.path))
    return works


def row_shapes(sdfg: dace.SDFG) -> ShapeOf:
    """Returns a function that gives the row shapes of references to the arrays of an SDFG, and remembers them."""
    return lru_cache(maxsize=None)(lambda ref: view_shape(ref, row_shape(sdfg.arrays[ref.name])))


def statement_work(
    statement: Statement,
    *,
    space: Callable[[str], str],
    shapes: ShapeOf,
    item: int = ITEM,
    at_hand: Collection[tuple[str, str]] = (),
) -> Work:
    """Returns the work of one statement: it reads or writes every array it names, by an index where a map leads there.

    Args:
        space: Row space of an array by name.
        shapes: Row shape of a reference.
        item: Bytes of an element.
        at_hand: Arrays and paths whose rows are in registers or in the cache when the statement runs.
    """
    rows = {ref: (space(ref.name), shapes(ref)) for ref in (*statement.reads, statement.target)}
    known = frozenset(at_hand).intersection((ref.name, ref.path) for ref in rows)
    return _work_of(statement, tuple(rows.values()), item, known)


@lru_cache(maxsize=1 << 14)  # searches price programs that have most of their statements in common
def _work_of(
    statement: Statement, rows: tuple[tuple[str, Shape], ...], item: int, at_hand: frozenset[tuple[str, str]]
) -> Work:
    """Returns the work of a statement; ``rows`` are row space and row shape of its references in order."""
    by_ref = dict(zip(dict.fromkeys((*statement.reads, statement.target)), rows, strict=True))

    def shapes(ref: Ref) -> Shape:
        return by_ref[ref][1]

    pairs = _summed_first(statement)
    multiplied = pairs or statement.space
    typed = statement.is_gemm  # its rows come type by type
    accesses: list[Access] = []
    for ref, (table, shape) in by_ref.items():
        if (ref.name, ref.path) in at_hand:
            continue
        way, visits = "streamed", statement.space  # rows of types are few, or in order: once from memory
        if is_gathered(statement, ref):
            repeats = pairs is not None and _pairs(statement.space, ref.path) == pairs
            way, visits = "gathered", multiplied if repeats else statement.space
        elif ref == statement.target and ref.path in _PAIRS and typed:
            way, visits = "scattered", multiplied
        indexed = ref.path not in ("", "one") and not (typed and ref.path in TYPE_PATHS)
        accesses.append(Access(statement, ref, way, visits, table, size(shape) * item, indexed))
    sum_flops = 0 if pairs is None else _sum_flops(statement, shapes)
    return Work(statement, multiplied, _flops(statement, shapes), sum_flops, tuple(accesses))


def tile_rows(row_bytes: int) -> int:
    """Returns the rows of a tile with ``row_bytes`` of scratch per row: as many as stay in the cache between loops."""
    least, most = TILE_ROWS
    return min(max(TILE_BYTES // max(row_bytes, 1), least), most)


def longest_undivided(rows: int, implementation: str = "cpu") -> int:
    """Returns the rows of the longest group that is no hub, where groups have ``rows`` in all."""
    target = find(implementation)
    return max(rows // target.hub_parts, target.hub_rows)


def has_hubs(
    sizes: Mapping[str, int], longest: Mapping[str, int], implementation: str, space: str, outer: str, path: str
) -> bool:
    """Returns whether there is a hub: so many rows of ``space`` lead to a row of ``outer`` by ``path`` that threads
    should share them.

    Args:
        sizes: Rows of every row space.
        longest: Edges of the longest group by path; for paths that it leaves out, groups count as equally long.
    """
    known = longest.get(path, 0) if kind(space) == "E" else 0
    return max(known, sizes[space] // max(sizes[outer], 1)) > longest_undivided(sizes[space], implementation)


def read_cost(statement: Statement, ref: Ref, rows: int, width: int, table: int) -> Cost:
    """Returns the `gather_cost` of the rows that a statement reads through a reference.

    Rows that come in the order of the table need no look-up; products look theirs up while they multiply.
    """
    cost = gather_cost(rows, width, table)
    if _is_in_order(statement, ref.path):
        return Cost(gathered=cost.gathered)
    return cost if statement.gemm is None else replace(cost, rows=0)


def is_gathered(statement: Statement, ref: Ref) -> bool:
    """Returns whether the statement reads a row of the array through an index for each of its own rows."""
    return ref != statement.target and ref.path != "" and ref.path not in TYPE_PATHS


def _is_in_order(statement: Statement, path: str) -> bool:
    """Returns whether a path from the statement's rows, taken type by type, reaches rows in their own order."""
    rows = kind(statement.space)
    if rows != "E":
        return path == {"U": "src", "V": "dst"}.get(rows)
    return path in (("src", "srcpair") if statement.target.path in ("src", "srcpair") else ("dst", "dstpair", "edge"))


def _summed_first(statement: Statement) -> str | None:
    """Returns the row space of pairs that the kernel of a product over edges sums before it multiplies, if any."""
    gemm = statement.gemm
    space = statement.space
    if gemm is None or kind(space) != "E":
        return None
    if gemm.kind == "outer_prod":
        by_pairs = statement.target.path == "etype" and "dst" in (gemm.x.path, gemm.w.path)
        return _pairs(space, "dst") if by_pairs else None
    return _pairs(space, statement.target.path) if gemm.w.path == "etype" else None


def _pairs(space: str, path: str) -> str | None:
    """Returns the row space of pairs of a path's end point and a type, if the path leads to an end point."""
    return _PAIRS[path] + part(space) if path in _PAIRS else None


def _sum_flops(statement: Statement, shapes: ShapeOf) -> int:
    """Returns the FLOPs of adding one row to the sum that is multiplied, with its scale."""
    gemm = statement.gemm
    return 0 if gemm is None else (1 if gemm.scale is None else 2) * size(shapes(gemm.x))


def _flops(statement: Statement, shapes: ShapeOf) -> int:
    gemm = statement.gemm
    if gemm is not None and gemm.kind in WEIGHT_PRODUCTS:
        matrix = gemm.w if gemm.kind == "compose" else statement.target
        return 2 * shape_of(gemm.x, shapes)[0] * size(shapes(matrix))
    if gemm is not None:
        weights = statement.target if gemm.kind == "outer_prod" else gemm.w
        summed = gemm.scale is None or _summed_first(statement) is not None
        return 2 * size(shapes(weights)) + (0 if summed else size(shapes(gemm.x)))
    return _expression_flops(statement.expr, shapes) + (size(shapes(statement.target)) if statement.op != "=" else 0)


def _expression_flops(expr: Expr, shapes: ShapeOf) -> int:
    if isinstance(expr, Ref | Const):
        return 0
    inner = sum(_expression_flops(a, shapes) for a in expr.args)
    if expr.name == "sum_heads":
        return inner + size(shape_of(expr.args[0], shapes))
    if expr.name in ("dot_prd", "sum"):
        body = Op("mul", expr.args) if expr.name == "dot_prd" else expr.args[0]
        return inner + size(shape_of(body, shapes)) * (2 if expr.name == "dot_prd" else 1)
    return inner + (size(shape_of(expr, shapes)) if expr.name in OPERATORS and expr.name != "detach" else 0)
