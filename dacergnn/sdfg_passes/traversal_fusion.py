"""Fuses traversals: statements over different row spaces run in one loop nest (Hector 3.2.4, 3.2.5; Zhang 5).

Precondition: an inter-operator SDFG. Gradients have been generated, since that takes one statement in each operator.

Before, five loops::

    for e in g.edges(): e["att"] = leakyrelu(e["q"] + e["k"], 0.2)
    for n in g.dst_nodes():
        for e in n.incoming_edges(): n["total"] += exp(e["att"])
    for e in g.edges(): e["weight"] = exp(e["att"]) / e.dst["total"]
    for n in g.dst_nodes():
        for e in n.incoming_edges(): n["out"] += e["weight"] * e.src["h"]
    for n in g.dst_nodes(): n["y"] = n["out"] + bias

After, one loop over destinations, in which att, total, weight and out are locals::

    for n in g.dst_nodes():
        for e in n.incoming_edges():
            e["att"] = leakyrelu(e["q"] + e["k"], 0.2)
            n["total"] += exp(e["att"])
        for e in n.incoming_edges():
            e["weight"] = exp(e["att"]) / n["total"]
            n["out"] += e["weight"] * e.src["h"]
        n["y"] = n["out"] + bias

Saves: for every array of row space S and width M that becomes local, one write and a read for each reader,
(1 + readers) S M values. For every array that several of the statements read, it saves all reads but one.

Pairs of operators are merged as long as that lowers the traffic that `_traffic` counts, the best pair first. E rows
visited by destination or source lie apart in memory, so streaming them in the order of edges is cheaper. A statement
over edges joins nodes only where it saves more than that. On devices, blocks of threads share hubs only in nests of two
levels. If the graph has hubs, their rows are therefore not summed up in a loop inside another one.

Before that, loops that make or read wide rows of a product join the product (`wide_rows`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import ClassVar

import dace

from dacergnn.cost import has_hubs
from dacergnn.errors import ProgramError
from dacergnn.graph.spaces import FEATURE_SPACES, ROW_SPACES, TYPE_PATHS, kind, part
from dacergnn.library_nodes import GraphOperator, Statement, Traversal
from dacergnn.library_nodes.access import is_few, order_name
from dacergnn.library_nodes.form import size
from dacergnn.library_nodes.traversal.nest import CHAINS, Levels, chain, problem, reached
from dacergnn.library_nodes.traversal.storage import NARROW
from dacergnn.program import Program
from dacergnn.program.view import StatementGroup
from dacergnn.sdfg_passes.base import Pass
from dacergnn.sdfg_passes.context import Context
from dacergnn.sdfg_passes.questions import KEEP, Questions
from dacergnn.sdfg_passes.wide_rows import keep_wide_rows
from dacergnn.target import find

# Costs of moving a row of w values, in values streamed; measured on narrow rows in cache and wide rows in memory.
_WIDTH_APART, _ROW_APART = 1.25, 4.0  # reading a row by an index, or in another order than rows have in memory
_ROW_TWICE = 10.0  # reading by an index in such an order, where no neighbors share a line
_WIDTH_SCATTERED, _ROW_SCATTERED = 2.0, 8.0  # writing in such an order
_ONE_BY_ONE = 4.0  # computing a few values between wide rows, where they do not vectorize
_SCRATCH = 0.5  # keeping a value for another loop of the nest
_WIDEST = 1024  # elements of a row that fits on the stack with others
_LOCAL_WIDTH = 16  # elements of a row below which several loops of a nest may use a local array


@dataclass(frozen=True)
class TraversalFusion(Pass):
    """Merges traversals wherever that saves traffic; counts the mergers and the wide rows that products keep.

    A plan names the groups of statements by the arrays that they write and the mapping: "a+b:ND c+d:E". A launch on a
    device takes longer than a loop on a processor.
    """

    name: ClassVar[str] = "traversal_fusion"

    def run(self, sdfg: dace.SDFG, context: Context) -> int:
        kept = keep_wide_rows(Program(sdfg), context)
        profile = context.profile
        fusion = _Fusion(Program(sdfg), profile.sizes, context.implementation, profile.longest)
        merged = fusion.run(context.questions)
        if merged:
            fusion.write()
        return kept + merged


@dataclass(eq=False)
class _Unit:
    """Describes a present or future operator: its statements by their place in the program, and its mapping."""

    statements: dict[int, Statement]
    mapping: str
    operator: GraphOperator | None = None  # the present operator of a unit that stays as it is
    fusible: bool = True

    @cached_property
    def body(self) -> list[Statement]:
        return [self.statements[k] for k in sorted(self.statements)]

    @cached_property
    def targets(self) -> set[str]:
        return {s.target.name for s in self.statements.values()}

    @cached_property
    def reads(self) -> set[str]:
        return {r.name for s in self.statements.values() for r in s.reads}

    @cached_property
    def rows(self) -> set[str]:
        """Returns the arrays that it reads, other than weights."""
        return {r.name for s in self.statements.values() for r in s.reads if not is_few(r.path)}


class _Fusion:
    def __init__(
        self, program: Program, sizes: Mapping[str, int], implementation: str, longest: Mapping[str, int]
    ) -> None:
        self.program = program
        self.implementation, self.longest = implementation, longest
        self.start = find(implementation).start
        self.sizes = sizes
        self.units: list[_Unit] = []
        count = 0
        for operator in program.operators:
            body = operator.statements
            statements = {count + k: s for k, s in enumerate(body)}
            count += len(body)
            fusible = isinstance(operator, Traversal) and self._fusible(body)
            self.units.append(_Unit(statements, operator.space, operator, fusible))

    def _fusible(self, body: Sequence[Statement]) -> bool:
        return all(
            s.target.path not in TYPE_PATHS
            and (not s.target.path or kind(reached(s.space, s.target.path)) in CHAINS)
            and size(self.program.shape(s.target.name)) <= _WIDEST
            for s in body
        )

    def run(self, questions: Questions) -> int:
        """Merges the best pair until none gains, or the groups of a plan; returns the number of mergers."""
        before = len(self.units)
        answer = questions.given("groups")
        if answer is not None:
            self._group(answer)
            questions.note("groups", [answer], answer)
            return before - len(self.units)
        stages = [self.groups]
        while (best := self._best()) is not None:
            one, other, union = best
            self._merge([one, other], union)
            stages.append(self.groups)
        questions.note("groups", stages, stages[-1])
        return before - len(self.units)

    def _merge(self, units: Sequence[_Unit], union: _Unit) -> None:
        self.units[self.units.index(units[0])] = union
        for unit in units[1:]:
            self.units.remove(unit)

    @property
    def groups(self) -> str:
        """Returns the merged units as text, in the form that plans use."""
        merged = [u for u in self.units if u.operator is None]
        return " ".join(f"{'+'.join(s.target.name for s in u.body)}:{u.mapping}" for u in merged) or KEEP

    def _group(self, groups: str) -> None:
        """Merges the groups that the text names; raises ProgramError where that cannot be."""
        for group in groups.split() if groups != KEEP else ():
            names, _, mapping = group.partition(":")
            wanted = set(names.split("+"))
            units = [u for u in self.units if u.targets & wanted]
            union = _Unit({k: s for u in units for k, s in u.statements.items()}, mapping)
            if union.targets != wanted or len(units) < 2 or not all(u.fusible and _suits(mapping, u) for u in units):
                raise ProgramError(f'plan: "{group}" is no group of statements that fit one loop of this program.')
            why = problem(mapping, union.body)
            if why is not None:
                raise ProgramError(f'plan: "{group}" cannot be one loop: {why}')
            self._merge(units, union)
        if any(i in after for i, after in enumerate(self._reachability())):
            raise ProgramError(f'plan: "{groups}" needs results of loops before they have run.')

    def _best(self) -> tuple[_Unit, _Unit, _Unit] | None:
        after = self._reachability()
        best: tuple[float, tuple[_Unit, _Unit, _Unit]] | None = None
        cost = {u: self._traffic(u) for u in self.units if u.fusible}
        for i, j in combinations(range(len(self.units)), 2):
            one, other = self.units[i], self.units[j]
            if not (one.fusible and other.fusible and self._related(one, other)) or self._apart(after, i, j):
                continue
            for mapping in _mappings(one, other):
                union = _Unit({**one.statements, **other.statements}, mapping)
                if problem(mapping, union.body) is not None or self._keeps_hubs_whole(union):
                    continue
                gain = cost[one] + cost[other] - self._traffic(union)
                if gain > 1e-9 and (best is None or gain > best[0] + 1e-9):
                    best = gain, (one, other, union)
        return None if best is None else best[1]

    def _related(self, one: _Unit, other: _Unit) -> bool:
        """Returns whether two units share an array, other than weights."""
        return bool(one.targets & other.reads or other.targets & one.reads or one.rows & other.rows)

    def _reachability(self) -> list[set[int]]:
        """Returns for every unit the units that depend on it."""
        producer = {name: k for k, unit in enumerate(self.units) for name in unit.targets}
        next_to = [set[int]() for _ in self.units]
        for k, unit in enumerate(self.units):
            for name in unit.reads & producer.keys():
                if producer[name] != k:
                    next_to[producer[name]].add(k)
        after = [set[int]() for _ in self.units]
        for k in range(len(self.units)):
            stack = list(next_to[k])
            while stack:
                j = stack.pop()
                if j not in after[k]:
                    after[k].add(j)
                    stack += next_to[j]
        return after

    def _apart(self, after: list[set[int]], i: int, j: int) -> bool:
        """Returns whether a third unit depends on one of two units and is needed by the other."""
        return any(j in after[k] for k in after[i] - {j}) or any(i in after[k] for k in after[j] - {i})

    def _keeps_hubs_whole(self, unit: _Unit) -> bool:
        """Returns whether one block would have to sum up a hub, because an inner loop has another one inside."""
        if find(self.implementation).divides_inner_loops:
            return False
        levels = Levels.of(unit.mapping, unit.body)
        outer, between, inner = levels.spaces[0], levels.spaces[1:-1], levels.spaces[-1]
        nested = any(s.target.path and reached(s.space, s.target.path) in between for s in unit.body)
        path = levels.up(inner, outer) or ""
        return nested and has_hubs(self.sizes, self.longest, self.implementation, inner, outer, path)

    # Costs of a unit

    def local_arrays(self, unit: _Unit) -> list[str]:
        """Returns arrays that nothing outside of the unit touches, unless they are wide and several loops use them."""
        outside = {n for u in self.units if not u.targets <= unit.targets for n in u.reads}
        body, arrays = unit.body, self.program.sdfg.arrays
        names = [s.target.name for s in body if arrays[s.target.name].transient]
        return [n for n in names if n not in outside and self._stays(n, body)]

    def _stays(self, name: str, body: Sequence[Statement]) -> bool:
        """Returns whether an array fits on the stack or in scratch: it is narrow, belongs to the rows that threads
        share out, or its readers need no finished sums over other rows."""
        if size(self.program.shape(name)) < _LOCAL_WIDTH:
            return True
        writer = next(s for s in body if s.target.name == name)
        home = reached(writer.space, writer.target.path)
        deeper = [s for s in body if s.target.path and reached(s.space, s.target.path) != home]
        later = {s.target.name for s in deeper}
        readers = [s for s in body if any(r.name == name for r in s.reads)]
        return home in ("ND", "NS") or all(later.isdisjoint(r.name for r in s.reads) for s in readers)

    def _traffic(self, unit: _Unit) -> float:
        """Returns the values that a unit moves to and from memory, with weights for those out of order."""
        body = unit.body
        levels = Levels.of(unit.mapping, body)
        kept = set(self.local_arrays(unit)) if len(body) > 1 else set[str]()
        total, seen = self.start, set[tuple[str, str, str]]()
        for statement in body:
            space, target = statement.space, statement.target
            apart = self._is_apart(levels, space)
            home = reached(space, target.path)
            if target.name not in kept:
                width = size(self.program.shape(target.name))
                scattered = apart and home == space
                total += self.sizes[home] * (_WIDTH_SCATTERED * width + _ROW_SCATTERED if scattered else width)
            for ref in statement.reads:
                key = (ref.name, ref.path, space)
                if key not in seen and ref.name not in unit.targets and ref.path not in TYPE_PATHS:
                    seen.add(key)
                    total += self._read(levels, space, ref.path, size(self.program.shape(ref.name)), apart)
            if apart:
                total += self.sizes[space] * _SCRATCH
        if len(levels.spaces) == 1:
            narrow = [s for s in body if self._is_narrow(s)]
            total += len(narrow) * self.sizes[unit.mapping] * _ONE_BY_ONE * (len(narrow) < len(body))
        return total

    def _is_narrow(self, statement: Statement) -> bool:
        return all(size(self.program.shape(r)) <= NARROW for r in (*statement.reads, statement.target))

    def _is_apart(self, levels: Levels, space: str) -> bool:
        """Returns whether a nest visits the rows of a space in another order than they have in memory."""
        path = levels.up(space, levels.spaces[0])
        if path is None or order_name(space, path) is None:
            return False
        return path != "dst" or self.sizes["R"] > 1  # edges of one type are in order of their destinations

    def _read(self, levels: Levels, space: str, path: str, width: int, apart: bool) -> float:
        """Returns the cost, in values, of reading a row of this width for every row of a space."""
        rows = self.sizes[space]
        if path == "":
            return rows * (width * _WIDTH_APART + _ROW_APART if apart else width)
        outer = [s for s in levels.spaces if levels.up(space, s) == path]
        if outer and outer[0] == levels.spaces[0]:
            return self.sizes[outer[0]] * width
        # In the order of edges, and in that of destinations, edges of a (destination, type) pair are adjacent.
        sides = {"NS": ("srcpair",), "U": ("srcpair", "src"), "ND": ("dstpair",)}.get(kind(levels.spaces[0]))
        if kind(space) == "E" and path in (sides or ("dstpair", "dst")):
            pairs = self.sizes[("U" if path.startswith("src") else "V") + part(space)]
            return pairs * (width + (_ROW_TWICE if apart else 1.0)) + rows
        return rows * (width * _WIDTH_APART + (_ROW_TWICE if apart else _ROW_APART))

    # The result

    def write(self) -> None:
        """Puts the units in the place of the operators, in an order in which they can run."""
        waiting = sorted(self.units, key=lambda u: max(u.statements))
        ordered: list[_Unit] = []
        while waiting:
            missing = {n for u in waiting for n in u.targets}
            ready = next(u for u in waiting if not (u.reads - u.targets) & missing)
            waiting.remove(ready)
            ordered.append(ready)
        self.program.regroup(
            [u.operator or StatementGroup(tuple(u.body), u.mapping, tuple(self.local_arrays(u))) for u in ordered]
        )


def _mappings(one: _Unit, other: _Unit) -> list[str]:
    """Returns the row spaces that both units may be shared out by, the innermost first."""
    order = ("E", "V", "U", "ND", "NS", "R", "T", "RNS", "ONE", *FEATURE_SPACES)
    mappings = sorted(ROW_SPACES, key=lambda space: order.index(kind(space)))
    return [m for m in mappings if _suits(m, one) and _suits(m, other)]


def _suits(mapping: str, unit: _Unit) -> bool:
    spaces = [space for s in unit.statements.values() for space in (s.space, reached(s.space, s.target.path))]
    return set(chain(mapping, spaces)).issuperset(spaces)
