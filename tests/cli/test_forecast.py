"""`dacergnn forecast`."""

from __future__ import annotations

import json

import pytest

from dacergnn.native import nvcc
from tests.cli.test_cli import run
from tests.support.nvcc import needs_nvcc

LAYER = ("forecast", "--model", "rgcn", "--data", "aifb~0.02", "--features", "16")


@pytest.mark.check
def test_training() -> None:
    needs_nvcc()
    result = run(*LAYER, "--gpu", "a100")
    assert result.exit_code == 0, result.output
    for part in ("Forecast for a100: 108 multiprocessors", "forward of rgcn", "backward of rgcn", "grad_x", "roofline",
                 "The operators that lose the most time, forecast less bound:", "1."):  # fmt: skip
        assert part in result.output


@pytest.mark.check
def test_inference_as_json() -> None:
    needs_nvcc()
    found = json.loads(run(*LAYER, "--mode", "infer", "--arch", "80", "--precision", "bfloat16", "--json").output)
    assert found["device"]["name"] == "a100"
    assert {operator["role"] for operator in found["operators"]} == {"forward"}
    for operator in found["operators"]:
        assert operator["ms"] > operator["bound_ms"] > 0
        assert all(kernel["registers"] > 0 and 0 < kernel["occupancy"] <= 1 for kernel in operator["kernels"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--gpu", "v100"), "gpu: there is no 'v100' among the known devices; name one of h100"),
        (("--arch", "75"), "arch: no known device has compute capability 75, only 80, 89, 90; name a device"),
        (("--gpu", "a100", "--arch", "90"), "arch: code for compute capability 90 does not run on a100, which has 80"),
        (("--gpu", "h100", "--arch", "33"), "cuda_arch=(33,): pass compute capabilities without the dot, 80 or more"),
    ],
)
def test_errors(options: tuple[str, ...], message: str) -> None:
    result = run(*LAYER, *options)
    assert result.exit_code == 1
    assert message in result.output


@pytest.mark.check
def test_an_architecture_that_nvcc_does_not_know() -> None:
    needs_nvcc()
    assert "does not know compute capability 8.3" in run(*LAYER, "--arch", "83", "--gpu", "h100").output


def test_no_nvcc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NVCC", "/nowhere/nvcc")
    nvcc.compiler.cache_clear()
    nvcc.known.cache_clear()
    try:
        result = run(*LAYER)
    finally:
        nvcc.compiler.cache_clear()
    assert result.exit_code == 1
    assert 'The CUDA compiler "/nowhere/nvcc", which NVCC names, is not there; pip install' in result.output
