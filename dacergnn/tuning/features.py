"""Features of the operators of compiled programs, for performance models (Singh et al., section II-C).

Two kinds, as in the paper: those of what an operator computes, and those of how it does so on a graph, with the facts
of the graph itself. Numbers without a bound stand as log(1 + x).
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
"""Names of the features that no schedule changes, and of those that depend on schedule and graph, in order."""
THREADS = 2
RATES = Rates(1.2e11, 2.0e10, 3.5e10, 3.5e8)
"""Of the machine that features tell of, which a trained model has learned to read; passes may go by others."""

Floats = np.ndarray[Any, np.dtype[np.float32]]
Indices = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class ProgramFeatures:
    """A program on a graph, as models see it.

    Args:
        invariant: [operators, len(FEATURE_NAMES[0])] float32.
        dependent: [operators, len(FEATURE_NAMES[1])] float32.
        edges: [edges, 2] int64, the operator that writes an array and one that reads it.
        seconds: [operators] float32, by the analytic cost and the time to start.
    """

    invariant: Floats
    dependent: Floats
    edges: Indices
    seconds: Floats


@dataclass(frozen=True)
class Described:
    """Describes what features of programs depend on no graph; `on` adds the rest."""

    scheduled: tuple[Scheduled, ...]
    invariant: Floats
    edges: Indices

    def on(self, facts: GraphFacts, rates: Rates = RATES, threads: int = THREADS) -> ProgramFeatures:
        """The features on a graph, of a machine that runs them on so many threads at these rates."""
        rows = [self.of_operator(number, facts, rates, threads) for number in range(len(self.scheduled))]
        seconds = np.array([seconds for _, seconds in rows], np.float32)
        return ProgramFeatures(self.invariant, _stack([row for row, _ in rows], FEATURE_NAMES[1]), self.edges, seconds)

    def of_operator(
        self, number: int, facts: GraphFacts, rates: Rates = RATES, threads: int = THREADS
    ) -> tuple[Floats, float]:
        """A row of the features that depend on the schedule, as its node has it now, and analytic seconds."""
        counts, shares, seconds = self.scheduled[number].on(facts, rates, threads)
        return _vector(counts, shares, schedules.COUNTS, schedules.SHARES), seconds


def describe(*programs: dace.SDFG) -> Described:
    """Describe compiled programs that run one after the other, such as forward and backward, operator by operator.

    A later program may read by name what an earlier one has written, and may compute it again.
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
