"""The oldest and the newest releases, each in a process of its own; docs/supported.md says what such runs find."""

from __future__ import annotations

from typing import Any

import pytest

from scripts import supported
from tests.support.compilers import needs

HERE = [one for one in supported.SETS if one.requirements or one.variables]


@pytest.mark.check
@pytest.mark.parametrize("one", HERE, ids=lambda one: one.name)
def test_a_set_passes(one: supported.Supported) -> None:
    if "CXX" in one.variables:
        needs(one.variables["CXX"])
    found: dict[str, Any] = supported.result(one)
    assert "passed" in found, found["reason"]
    assert found["failed"] == 0
    assert found["passed"] >= 15
    assert one.name == "DGL 2.1" or not found["reason"]


def test_the_page_has_every_set() -> None:
    page = (supported.ROOT / "docs" / "supported.md").read_text()
    assert all(f"| {one.name} |" in page for one in supported.SETS)
