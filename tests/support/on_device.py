"""CUDA sources of kernel tests built by nvcc to run on a device, where DACERGNN_KERNELS_ON_DEVICE is set.

Arrays lie in pinned memory of the host, which kernels reach under the address that the host has for it: what tests do
with NumPy arrays in emulation they do here, with the kernels' own machine code.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path
from typing import Any

import torch

from dacergnn.native import cache as build_cache
from dacergnn.native import nvcc
from dacergnn.native.build import INCLUDE_FOLDER
from dacergnn.runtime.cuda_device import architectures

CHOSEN = bool(os.environ.get("DACERGNN_KERNELS_ON_DEVICE"))
HEAD = '#include "dacergnn/cuda/hubs.cuh"\n#line 1 "source"\n'
"""What stands before every source."""
SETTERS = """
extern "C" void dacergnn_set_call(char* workspace, int multiprocessors) {
    dacergnn::cuda::call = {nullptr, workspace, multiprocessors, nullptr};
}
extern "C" void dacergnn_set_least_chunk(int64_t rows) { dacergnn::cuda::least_chunk = rows; }
"""
"""What tests set, behind every source."""
_ACCESS = """
extern "C" const char* dacergnn_take_failure() {
    const char* failure = dacergnn::cuda::call.failure;
    dacergnn::cuda::call.failure = nullptr;
    const cudaError_t error = cudaDeviceSynchronize();
    return failure != nullptr || error == cudaSuccess ? failure : cudaGetErrorString(error);
}
extern "C" void dacergnn_emulation_seed(uint64_t) {}
extern "C" void dacergnn_emulation_shared_limit(uint64_t) {}
"""


def build_native(source: str, chosen: tuple[int, ...] | None = None) -> Path:
    """The library of a CUDA source for the devices of this machine, or those ``chosen``; builds are kept by content."""
    code = HEAD + source + SETTERS + _ACCESS
    headers = sorted(p for p in (INCLUDE_FOLDER / "dacergnn" / "cuda").rglob("*") if p.is_file())
    command = [*nvcc.command(architectures(chosen)), f"-I{INCLUDE_FOLDER}"]
    contents = b"".join(h.read_bytes() for h in headers)
    key = hashlib.sha256("\n".join([*command, code]).encode() + contents).hexdigest()[:20]

    def build(folder: Path) -> None:
        (folder / "source.cu").write_text(code)
        full = [*command, str(folder / "source.cu"), "-o", str(folder / build_cache.LIBRARY)]
        run = subprocess.run(full, capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stderr

    return build_cache.lookup(key, "native") or build_cache.store(key, "native", build)


def pinned(array: Any) -> Any:
    """A copy in pinned memory, aligned to 16 bytes."""
    memory = torch.empty(max(array.nbytes, 16), dtype=torch.uint8, pin_memory=True)
    copy = memory.numpy()[: array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy
