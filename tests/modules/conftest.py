"""Builds of these tests are compiled quickly: they are about the modules around the kernels."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def quick_builds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXXFLAGS", "-O0")
