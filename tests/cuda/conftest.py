"""On a device (DACERGNN_KERNELS_ON_DEVICE) only those tests run that are about kernels, not about their emulation."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.on_device import CHOSEN

ON_DEVICE = {
    "test_segment_gemm.py": (),
    "test_traversal.py": (),
    "test_platform.py": ("test_functions_over_a_warp", "test_wide_copies_wherever_they_start"),
}
"""Files, and of those that are not all about kernels the tests that are."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not CHOSEN:
        return
    other = pytest.mark.skip(reason="about the emulation, not about kernels")
    for item in items:
        if item.path.parent == Path(__file__).parent:
            names = ON_DEVICE.get(item.path.name)
            name = getattr(item, "originalname", item.name)
            if names is None or (names and name not in names) or "nvcc" in name or "compiles" in name:
                item.add_marker(other)
