"""Chooses which arrays of the forward are saved for the backward, and which the backward computes again.

(Cached Operator Reordering, tables 1 to 3; Zhang et al., section 6.)

Precondition: a forward and the backward that `differentiate` made of it, which reads saved arrays; operators hold one
statement each. Both have been optimized except for fusion, so that clones have the order that was chosen for the
forward.

Before, with e["a"] saved, E rows::

    e["a"] = exp(e.src.s + e.dst.t)            # forward
    grad_s[e.src] += e["grad_a"] * e["a"]      # backward, reads a

After, the backward has a clone of the producer, whose result fusion makes local to the loop that reads it::

    e["a"] = exp(e.src.s + e.dst.t)            # backward, reads s and t
    grad_s[e.src] += e["grad_a"] * e["a"]

Clones read inputs of the program, saved arrays, or other recomputed arrays. The choice is a 0-1 program, where s_i and
r_i say whether array i is saved and recomputed. Every array that the backward reads has s_i + r_i >= 1, and
r_i <= s_j + r_j for every array j that its producer reads. The sum of s_i bytes_i stays within the budget. The time to
write and read saved arrays, and to run producers again, is minimized.

The backward that computes sums again may have a cheaper order of aggregation than the one that reads them. So this
order is chosen anew.

Saves: ``rows(i) * bytes(i)`` of memory for every array that is not saved.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import ClassVar

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from dacergnn.config import Rates, budget_of
from dacergnn.cost import statement_cost
from dacergnn.errors import ProgramError
from dacergnn.library_nodes.form import Expr, Op, Statement
from dacergnn.library_nodes.node import Typeclass
from dacergnn.program.listing import Listing
from dacergnn.runtime.free_memory import free_memory
from dacergnn.sdfg_passes.aggregation_order import AggregationOrder
from dacergnn.sdfg_passes.context import Context
from dacergnn.sdfg_passes.differentiate import Gradient
from dacergnn.sdfg_passes.questions import Questions
from dacergnn.target import find

ALIGNMENT = 64
"""Saved arrays begin at multiples of this many bytes."""
SAVE, RECOMPUTE = ANSWERS = ("save", "recompute")
"""Answers to the question of what becomes of an array."""


@dataclass(frozen=True)
class CacheOrRecompute:
    """Chooses what a forward saves; like a `Pass`, but it takes two programs and makes new ones.

    Args:
        caching: "cache_all", "recompute_all" or "papers" (saves results of reductions and products, and recomputes what
            takes a constant number of operations per element), or a limit on saved bytes: "budget:BYTES", "auto".
        cache: Names of arrays to save in any case, if the backward has a use for them.
        recompute: Names of arrays to compute again.
        orders: Passes that choose the order of aggregation of a backward which computes arrays again.
    """

    name: ClassVar[str] = "cache_or_recompute"
    caching: str = "cache_all"
    cache: tuple[str, ...] = ()
    recompute: tuple[str, ...] = ()
    orders: tuple[AggregationOrder, ...] = field(default=(), repr=False)

    def run(self, gradient: Gradient, results: Sequence[str], context: Context) -> Gradient:
        """Returns forward and backward after the choice; the same SDFGs where nothing changes.

        Args:
            gradient: Its forward returns ``results``, then the arrays that the backward reads.

        Raises:
            ProgramError: The forward computes no array of one of the names.
        """
        forward, backward, questions = gradient.forward, gradient.backward, context.questions
        before, after = Listing.of(forward), Listing.of(backward)
        dtype = forward.arrays[before.outputs[0]].dtype
        choice = _Choice(before, after, results, context.profile.sizes, dtype, context.rates)
        choice.force(self.cache, self.recompute)
        choice.follow(questions)
        again = choice.made(self.caching, self._budget(context.implementation))
        if again:
            _compute_again(before, after, again)
            after = self._reordered(after, context)
        saved = [n for n in after.inputs if before.producer(n) is not None]
        for name in (n for n in (*saved, *sorted(again)) if n not in results):
            questions.note(name, ANSWERS, RECOMPUTE if name in again else SAVE)
        if again:
            before.outputs = (*results, *(n for n in saved if n not in results))
            forward, backward = (p.build(s.name, dtype) for p, s in ((before, forward), (after, backward)))
        return replace(gradient, forward=forward, backward=backward, saved=saved)

    def _reordered(self, after: Listing, context: Context) -> Listing:
        """Returns a backward in its cheapest order of aggregation, without the inputs that this no longer reads."""
        for order in self.orders:
            after, taken = order.cheapest(after, context.of(order.name))
            if taken:
                read = {ref.name for statement in after.statements for ref in statement.reads}
                after.inputs = tuple(name for name in after.inputs if name in read)
        return after

    def _budget(self, implementation: str) -> float | None:
        """Returns the bytes that may be saved, for strategies that minimize time within them; None for others."""
        return free_memory(find(implementation).device) / 2 if self.caching == "auto" else budget_of(self.caching)


def _compute_again(before: Listing, after: Listing, again: set[str]) -> None:
    """Puts clones of the producers of ``again`` in front of the backward."""
    clones = [s for s in before.statements if s.target.name in again]
    read = dict.fromkeys(r.name for s in clones for r in s.reads)
    after.arrays |= {n: before.arrays[n] for n in (*again, *read)}
    after.statements = [*clones, *after.statements]
    after.inputs = tuple(dict.fromkeys(n for n in (*after.inputs, *read) if n not in again))


class _Choice:
    """Decides which of the arrays that the forward computes are saved, and which are computed again."""

    def __init__(
        self,
        before: Listing,
        after: Listing,
        results: Sequence[str],
        sizes: Mapping[str, int],
        dtype: Typeclass,
        rates: Rates,
    ) -> None:
        self.dtype = dtype
        self._producers = {s.target.name: s for s in before.statements}
        self._needed = [n for n in after.inputs if n in self._producers]
        self._free = {*results}
        """Results of the forward, which are kept anyway."""
        self._listing, self._sizes, self._rates = before, sizes, rates
        self._forced: dict[str, bool] = {}

    def force(self, cache: Collection[str], recompute: Collection[str]) -> None:
        """Decides that single arrays are saved (``cache``) or computed again (``recompute``)."""
        for option, names in (("cache", cache), ("recompute", recompute)):
            for name in names:
                if name not in self._producers:
                    known = ", ".join(self._producers)
                    raise ProgramError(f'{option}: "{name}" is no array that the forward computes; it has {known}.')
                self._forced[name] = option == "cache"

    def follow(self, questions: Questions) -> None:
        """Takes over the decisions of a plan."""
        answers = {name: questions.given(name) for name in self._producers}
        for name, answer in answers.items():
            if answer is not None:
                questions.note(name, ANSWERS, answer)
                self._forced[name] = answer == SAVE

    def made(self, strategy: str, budget: float | None) -> set[str]:
        """Returns the arrays to compute again."""
        if budget is not None:
            return self._cheapest(budget)
        again: set[str] = set()
        waiting = [n for n in self._needed if n not in self._free]
        while waiting:
            name = waiting.pop()
            if name in again or self._is_saved(name, strategy):
                continue
            again.add(name)
            waiting += [n for n in self._read(name) if n not in self._free]
        return again

    def _is_saved(self, name: str, strategy: str) -> bool:
        if name in self._forced:
            return self._forced[name]
        if strategy == "papers":
            return not _is_light(self._producers[name])
        return strategy == "cache_all"

    def _read(self, name: str) -> list[str]:
        """Returns the computed arrays that the producer of an array reads."""
        return [n for n in dict.fromkeys(r.name for r in self._producers[name].reads) if n in self._producers]

    def _bytes(self, name: str) -> int:
        rows = self._listing.arrays[name]
        return -(-self._sizes[rows.space] * prod(rows.shape) * self.dtype.bytes // ALIGNMENT) * ALIGNMENT

    def _seconds(self, statement: Statement) -> float:
        """Returns the time to run a statement again; the result of a light one is local to the loop that reads it."""
        own = {(ref.name, "") for ref in (*statement.reads, statement.target)} if _is_light(statement) else ()
        return statement_cost(
            statement, self._sizes, space=self._listing.space, shapes=self._listing.shape, item=self.dtype.bytes,
            at_hand=own,
        ).seconds(self._rates)  # fmt: skip

    def _cheapest(self, budget: float) -> set[str]:
        """Solves the 0-1 program over all s, then all r; returns the arrays to compute again."""
        names = [n for n in self._producers if n not in self._free]
        position = {n: i for i, n in enumerate(names)}
        count = len(names)
        if not count:
            return set()
        size = np.array([self._bytes(n) for n in names], dtype=np.float64)
        again = [self._seconds(self._producers[n]) for n in names]
        rows: list[np.ndarray] = []
        least: list[float] = []
        for name in self._needed:
            if name in position:
                rows.append(_row(2 * count, {position[name]: 1, count + position[name]: 1}))
                least.append(1)
        for name in names:
            for other in self._read(name):
                if other in position:
                    at = position[other]
                    rows.append(_row(2 * count, {at: 1, count + at: 1, count + position[name]: -1}))
                    least.append(0)
        if not rows:
            return set()
        # scipy's annotations lack bounds of more than one number.
        constraints = [LinearConstraint(np.array(rows), np.array(least), np.inf)]  # pyright: ignore[reportArgumentType]
        if budget < size.sum():
            constraints.append(LinearConstraint(np.concatenate([size, np.zeros(count)]), -np.inf, budget))
        allowed = np.ones(2 * count)
        for name, saved in self._forced.items():
            if name in position:
                allowed[position[name] + (count if saved else 0)] = 0
        cost = np.concatenate([2 * size / self._rates.streamed, again])
        bounds = Bounds(0, allowed)  # pyright: ignore[reportArgumentType]
        optimum = milp(cost / cost.max(), constraints=constraints, integrality=np.ones(2 * count), bounds=bounds)
        if optimum.x is None:
            raise ProgramError(f"budget: no choice of saved arrays takes {budget:.0f} bytes or less; {optimum.message}")
        return {n for n, chosen in zip(names, optimum.x[count:], strict=True) if chosen > 0.5}


def _row(length: int, entries: Mapping[int, float]) -> np.ndarray:
    row = np.zeros(length)
    for position, value in entries.items():
        row[position] += value
    return row


def _is_light(statement: Statement) -> bool:
    """Returns whether a statement takes constant work per element (Zhang et al.): no product and no reduction."""
    return statement.op == "=" and not statement.is_gemm and not _has_sum(statement.expr)


def _has_sum(expr: Expr) -> bool:
    return isinstance(expr, Op) and (expr.name in ("dot_prd", "sum") or any(map(_has_sum, expr.args)))
