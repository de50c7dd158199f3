"""Races builds of a program in the calls of its user: the default build against those that a model likes better.

Calls on one graph run the builds in turns. A build replaces the default if it is faster by more than two standard
errors over at least `LEAST` rounds; otherwise the default stays. No call is made for the sake of the race. A race ends
without a winner when its graph is gone, so that batches, each of which is another graph, start none.
"""

from __future__ import annotations

import atexit
import logging
import threading
import weakref
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import fmean, median, stdev
from typing import Generic, TypeVar

import torch

from dacergnn.graph import HeteroGraph
from dacergnn.modules.building import building

Build = TypeVar("Build")
WORTH_S = 1.0
"""Seconds that the calls of a build on one graph take in all before others are searched for."""
LEAST, MOST = 20, 60
"""Rounds after which a build may win, and after which the default stays."""
EARLY = 6
"""Rounds after which a build that is clearly slower leaves the race."""
UNTIMED = 2
"""Runs of a build before its time counts: they prepare memory and fill caches."""
INTERRUPTED = 2.0
"""A run that takes longer than so many times the median has been interrupted, and counts as the median."""
log = logging.getLogger("dacergnn.tuning")
_leaving = threading.Event()
_searches: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


@contextmanager
def searching() -> Generator[None]:
    """Lets a search work on SDFGs; if the interpreter exits, the thread of the search ends here."""
    with building():
        if _leaving.is_set():
            raise SystemExit
        yield


@atexit.register
def _end_searches() -> None:
    """Waits for the step that searches are at: a thread that Python stops inside C++ ends the process with an error."""
    _leaving.set()
    for thread in [*_searches]:
        thread.join()


@dataclass
class Runner(Generic[Build]):
    """Holds a build in a race, and the seconds of its runs."""

    build: Build
    seconds: list[float] = field(default_factory=list[float])
    runs: int = 0

    def note(self, seconds: float) -> None:
        """Takes the seconds of a run."""
        self.runs += 1
        if self.runs > UNTIMED:
            self.seconds.append(seconds)


def gain(default: Sequence[float], other: Sequence[float]) -> tuple[float, float]:
    """Returns by how many seconds a build is faster than the default, in the mean over rounds, and the standard error.

    Args:
        default: The seconds of the default, by round; two at least.
        other: The seconds of the other build in the same rounds.
    """
    pairs = zip(_without_interruptions(default), _without_interruptions(other), strict=True)
    gains = [a - b for a, b in pairs]
    return fmean(gains), stdev(gains) / len(gains) ** 0.5


def _without_interruptions(seconds: Sequence[float]) -> list[float]:
    middle = median(seconds)
    return [s if s <= INTERRUPTED * middle else middle for s in seconds]


class Contest(Generic[Build]):
    """Decides between builds of a program.

    Args:
        name: The name of the program, for messages.
        default: The build that calls begin with.
        search: Returns other builds for a graph; it runs in a thread of its own, each step within `searching`.
        settle: Called once with the build that all later calls run.
    """

    def __init__(
        self,
        name: str,
        default: Build,
        search: Callable[[HeteroGraph], Sequence[Build]],
        settle: Callable[[Build], None],
    ) -> None:
        self.name, self.default, self._search, self._settle = name, default, search, settle
        self.is_over = False
        self._spent: weakref.WeakKeyDictionary[HeteroGraph, float] = weakref.WeakKeyDictionary()
        self._searching = False
        self._runners: list[Runner[Build]] = []
        self._graph: Callable[[], HeteroGraph | None] = lambda: None
        self._lock = threading.Lock()

    def take(self, graph: HeteroGraph) -> tuple[Build, Runner[Build] | None]:
        """Returns the build for a call, and the runner that its seconds belong to."""
        if not self._runners or self._graph() is not graph or torch.are_deterministic_algorithms_enabled():
            return self.default, None
        with self._lock:
            runners = self._runners
            if not runners:
                return self.default, None
            # Rounds begin with different runners, so that none always runs behind the same one.
            lap = min(runner.runs for runner in runners)
            behind = [runner for runner in (*runners[lap % len(runners) :], *runners) if runner.runs == lap]
            return behind[0].build, behind[0]

    def note(self, runner: Runner[Build] | None, seconds: float, graph: HeteroGraph) -> None:
        """Takes the seconds of a call that `take` has chosen the build of."""
        if self.is_over or torch.are_deterministic_algorithms_enabled():
            return
        with self._lock:
            if runner is None:
                self._spent[graph] = self._spent.get(graph, 0.0) + seconds
                if self._spent[graph] > WORTH_S and not self._searching:
                    self._start(graph)
            else:
                runner.note(seconds)
                self._judge()

    def _start(self, graph: HeteroGraph) -> None:
        self._searching = True
        self._graph = weakref.ref(graph, self._abandon)
        thread = threading.Thread(target=self._find, args=(graph,), name="dacergnn-search", daemon=True)
        _searches.add(thread)
        thread.start()

    def _find(self, graph: HeteroGraph) -> None:
        others: Sequence[Build] = ()
        try:
            others = self._search(graph)
        except Exception as error:  # the user's calls go on with the default
            log.warning("no other plans for %s: %s", self.name, error)
        del graph
        with self._lock:
            if others:
                self._runners = [Runner(self.default), *map(Runner[Build], others)]
            else:
                self._end(self.default)

    def _abandon(self, _graph: object) -> None:
        """Ends a race whose graph is gone; that of another graph may follow.

        The garbage collector may call this while this very thread holds the lock, so that it does without.
        """
        if self._runners:
            self._runners, self._searching = [], False

    def _judge(self) -> None:
        """Ends the race if it is decided, after the last call of a round."""
        first, *others = self._runners
        rounds = min(len(runner.seconds) for runner in self._runners)
        if rounds < EARLY or any(len(runner.seconds) != rounds for runner in self._runners):
            return
        found = [(runner, *gain(first.seconds, runner.seconds)) for runner in others]
        better = [(mean, runner) for runner, mean, error in found if mean > 2 * error]
        if rounds >= LEAST and better:
            _, winner = max(better, key=lambda item: item[0])
            self._end(winner.build)
            return
        stay = [runner for runner, mean, error in found if mean > -2 * error]
        if rounds >= MOST or not stay:
            self._end(self.default)
        elif len(stay) < len(others):
            self._runners = [first, *stay]

    def _end(self, winner: Build) -> None:
        self.is_over, self._runners = True, []
        self._settle(winner)
