"""Features of the operators of compiled programs, for performance models (Singh et al., section II-C).

There are two kinds, as in the paper. Some features describe what an operator computes; the others describe how it runs
on a graph, and include the facts of the graph. A feature x without an upper bound is stored as log(1 + x).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dace
import numpy as np

from dacergnn.config import Rates
from dacergnn.cost import row_shapes
from dacergnn.library_nodes.form import Statement
from dacergnn.program import Program
from dacergnn.tuning import operations, schedules
from dacergnn.tuning.graph_facts import GraphFacts
from dacergnn.tuning.schedules import Scheduled

FEATURE_NAMES = ((*operations.COUNTS, *operations.SHARES), (*schedules.COUNTS, *schedules.SHARES))
"""Names, in order, of the features that no schedule changes and of the features that depend on schedule and graph."""
THREADS = 2
RATES = Rates(1.2e11, 2.0e10, 3.5e10, 3.5e8)
"""Rates of the machine by which features are computed; trained models expect these. Passes may use other rates."""

Floats = np.ndarray[Any, np.dtype[np.float32]]
Indices = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class ProgramFeatures:
    """Holds the features of a program on a graph, as models see it.

    Args:
        invariant: [operators, len(FEATURE_NAMES[0])] float32.
        dependent: [operators, len(FEATURE_NAMES[1])] float32.
        edges: [edges, 2] int64, the operator that writes an array and an operator that reads it.
        seconds: [operators] float32, the analytic cost plus the time to start.
    """

    invariant: Floats
    dependent: Floats
    edges: Indices
    seconds: Floats


@dataclass(frozen=True)
class Described:
    """Holds the features of programs that depend on no graph; `on` adds the others."""

    scheduled: tuple[Scheduled, ...]
    invariant: Floats
    edges: Indices

    def on(self, facts: GraphFacts, rates: Rates = RATES, threads: int = THREADS) -> ProgramFeatures:
        """Returns the features on a graph, for a machine with this number of threads and these rates."""
        rows = [self.of_operator(number, facts, rates, threads) for number in range(len(self.scheduled))]
        seconds = np.array([seconds for _, seconds in rows], np.float32)
        return ProgramFeatures(self.invariant, _stack([row for row, _ in rows], FEATURE_NAMES[1]), self.edges, seconds)

    def of_operator(
        self, number: int, facts: GraphFacts, rates: Rates = RATES, threads: int = THREADS
    ) -> tuple[Floats, float]:
        """Returns an operator's dependent features and analytic seconds, for the current schedule of its node."""
        counts, shares, seconds = self.scheduled[number].on(facts, rates, threads)
        return _vector(counts, shares, schedules.COUNTS, schedules.SHARES), seconds


def describe(*programs: dace.SDFG) -> Described:
    """Describes, operator by operator, compiled programs that run one after the other, such as forward and backward.

    A later program may read by name arrays that an earlier one has written, and may compute values again.
    """
    scheduled: list[Scheduled] = []
    invariant: list[Floats] = []
    edges: list[tuple[int, int]] = []
    producers: dict[str, int] = {}
    before: set[Statement] = set()
    for number, sdfg in enumerate(programs):
        operators, shapes = Program(sdfg).operators, row_shapes(sdfg)
        for operator in operators:
            position = len(scheduled)
            edges += [(producers[name], position) for name in operator.read_arrays if name in producers]
            producers |= dict.fromkeys(operator.written_arrays, position)
            schedule = Scheduled.of(sdfg, operator, before, number > 0)
            features = operations.invariant_features(schedule.works, shapes, schedule.item)
            invariant.append(_vector(*features, operations.COUNTS, operations.SHARES))
            scheduled.append(schedule)
        before.update(s for operator in operators for s in operator.statements)
    pairs = np.array(sorted({*edges}), np.int64).reshape(-1, 2)
    return Described(tuple(scheduled), _stack(invariant, FEATURE_NAMES[0]), pairs)


def _vector(
    counts: Mapping[str, float], shares: Mapping[str, float], names: Sequence[str], share_names: Sequence[str]
) -> Floats:
    logs = np.log1p(np.array([counts[name] for name in names], np.float64))
    return np.concatenate([logs, [shares[name] for name in share_names]]).astype(np.float32)


def _stack(rows: Sequence[Floats], names: Sequence[str]) -> Floats:
    return np.stack(rows) if rows else np.zeros((0, len(names)), np.float32)
