"""Sources of kernel tests build for a device as well, where `on_device` is asked for; no device is needed to build."""

from __future__ import annotations

import ctypes

from tests.cuda.segment_gemm_source import HEAD
from tests.cuda.test_segment_gemm import CONFIGS
from tests.support.nvcc import needs_nvcc
from tests.support.on_device import build_native


def test_products_build_for_a_device() -> None:
    needs_nvcc()
    config = CONFIGS[1]
    library = ctypes.CDLL(str(build_native(HEAD + config.functions(), (90,))))
    for name in (f"gemm0_{config.name}", f"outer_{config.name}", "dacergnn_take_failure", "dacergnn_set_call"):
        assert hasattr(library, name)
