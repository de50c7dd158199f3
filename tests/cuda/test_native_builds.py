"""Programs and the sources of kernel tests build for devices; none is needed for that."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

import dacergnn
from dacergnn import Config
from dacergnn.native.cache import LIBRARY
from tests.cuda.segment_gemm_source import HEAD
from tests.cuda.test_segment_gemm import CONFIGS
from tests.modules.layers import arguments, rgcn
from tests.support.nvcc import needs_nvcc
from tests.support.on_device import build_native

pytestmark = pytest.mark.check


def test_products_build_for_a_device() -> None:
    needs_nvcc()
    config = CONFIGS[3]
    library = ctypes.CDLL(str(build_native(HEAD + config.functions(), (90,))))
    for name in (f"gemm0_{config.name}", f"outer_{config.name}", "dacergnn_take_failure", "dacergnn_set_call"):
        assert hasattr(library, name)


def test_calls_build_for_devices_that_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One library holds the code of all of them, and the PTX of the newest."""
    needs_nvcc()
    monkeypatch.setenv("DACERGNN_CACHE_DIR", str(tmp_path))
    layer, call = rgcn(), arguments()
    compiled = dacergnn.optimize(layer, config=Config(cuda_arch=(80, 90), tune="off"))
    with torch.no_grad():
        torch.testing.assert_close(compiled(*call), layer(*call), rtol=1e-4, atol=1e-5)
    (source,) = tmp_path.rglob("program.cu")
    library = source.with_name(LIBRARY)
    assert hasattr(ctypes.CDLL(str(library)), "call_rgcn")
    dump = shutil.which("cuobjdump")
    if dump is not None:
        listed = [subprocess.run([dump, f, library], capture_output=True, text=True).stdout for f in ("-lelf", "-lptx")]
        assert ["sm_80" in listed[0], "sm_90" in listed[0], "sm_90" in listed[1]] == [True] * 3
