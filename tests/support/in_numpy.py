"""Lets a test of a folder whose layers are compiled run its own in NumPy, unless all tests are to run compiled."""

from __future__ import annotations

import os

import pytest

from tests.support import interpreted


def run_in_numpy() -> None:
    """Makes NumPy the target until the next test, which starts with that of its folder."""
    interpreted.set_default(os.environ.get("DACERGNN_TEST_TARGET", "interpreted"))


@pytest.fixture
def in_numpy() -> None:
    """For what does not ask about kernels."""
    run_in_numpy()
