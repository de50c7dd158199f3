"""Measurements are repeated while other work slows the machine down, and the least disturbed one counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from dacergnn.tuning.disturbance import ATTEMPTS, TOLERATED, Reference, Undisturbed


@pytest.fixture
def speed() -> list[float]:
    """Seconds of a reference computation, by their last value."""
    return [1.0]


@pytest.fixture
def undisturbed(speed: list[float]) -> Undisturbed:
    return Undisturbed(lambda: speed[-1])


def runs(speed: list[float], during: list[float]) -> Callable[[], int]:
    """Numbered runs, after each of which the reference takes so long."""
    numbers: Iterator[tuple[int, float]] = enumerate(during)

    def run() -> int:
        number, seconds = next(numbers)
        speed.append(seconds)
        return number

    return run


def test_undisturbed_ones_run_once(undisturbed: Undisturbed, speed: list[float]) -> None:
    assert undisturbed.measure(runs(speed, [TOLERATED])) == (0, TOLERATED)


def test_disturbed_ones_run_again(undisturbed: Undisturbed, speed: list[float]) -> None:
    """A run counts only where the machine is free before and after it."""
    assert undisturbed.measure(runs(speed, [3.0, 1.0, 1.2])) == (2, 1.2)


def test_the_least_disturbed_counts(undisturbed: Undisturbed, speed: list[float]) -> None:
    speed.append(9.0)
    assert undisturbed.measure(runs(speed, [5.0, 2.0, 1.5, 4.0][:ATTEMPTS])) == (2, 2.0)


def test_slowdowns_are_relative_to_the_fastest(undisturbed: Undisturbed, speed: list[float]) -> None:
    speed.append(0.5)
    assert undisturbed.slowdown() == 1.0
    speed.append(1.0)
    assert undisturbed.slowdown() == 2.0


def test_the_reference_takes_time() -> None:
    assert Reference()() > 0
