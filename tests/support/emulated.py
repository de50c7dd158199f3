"""CUDA sources built by g++ to run in emulation: every thread of a block a fiber, faults as exceptions.

With DACERGNN_KERNELS_ON_DEVICE they are built by nvcc and run on a device instead (`on_device`).

With the address sanitizer, which ends the process at the first fault::

    DACERGNN_EMULATION_SANITIZER=address ASAN_OPTIONS=detect_leaks=0 \\
        LD_PRELOAD=$(g++ -print-file-name=libasan.so) pytest tests/cuda
"""

from __future__ import annotations

import ctypes
import hashlib
import mmap
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dacergnn.errors import DacergnnError
from dacergnn.native import cache as build_cache
from dacergnn.native.build import INCLUDE_FOLDER, compiler
from tests.support import on_device

EMULATION = Path(__file__).resolve().parents[1] / "emulation"
_SANITIZER = os.environ.get("DACERGNN_EMULATION_SANITIZER", "thread")
_BOTH_FLAGS = (
    *("-x", "c++", "-std=c++20", "-g1", "-fPIC", "-Wall", "-Wextra", "-Werror"),
    "-fno-omit-frame-pointer",  # to say where a thread was
    "-fno-gnu-unique",  # or libraries in one process share the variables of the emulation
)
_KERNEL_FLAGS = (
    *(*_BOTH_FLAGS, "-O0", "-shared", "-DDACERGNN_EMULATE_CUDA", "-Wno-unknown-pragmas"),
    "-fstack-clash-protection",  # large frames touch the page that guards a stack
    f"-fsanitize={_SANITIZER}",
    # The thread sanitizer without its library: the emulation has the functions that are called at every access.
    *("--param=tsan-instrument-func-entry-exit=0", "-Wl,--no-as-needed"),
    *(["-nodefaultlibs", "-lstdc++", "-lm", "-lgcc_s", "-lc"] if _SANITIZER == "thread" else []),
    *(f"-I{EMULATION}", f"-I{INCLUDE_FOLDER.parent}", f"-I{INCLUDE_FOLDER}"),
)
# Without the products: whether they take TF32 factors is for the source to say, before it includes them.
_HEADERS = "".join(f'#include "include/dacergnn/{name}"\n' for name in ("scalar.h", "cuda/traversal.cuh"))
# A null pointer, or one that has wrapped around, is a fault of memory where it is used.
_UNDEFINED = (*("-fsanitize=undefined", "-fno-sanitize=null,pointer-overflow", "-fsanitize-undefined-trap-on-error"),)
"""Stop at indices beyond arrays, wrong alignment and shifts; what is built takes a tenth longer for them."""
_ACCESS = """
extern "C" const char* dacergnn_take_failure() {
    const char* failure = dacergnn::cuda::call.failure;
    dacergnn::cuda::call.failure = nullptr;
    return failure;
}
"""
_NO_ACCESS = 0  # PROT_NONE of mprotect
_GUARD = 16 * mmap.PAGESIZE
Array = npt.NDArray[Any]


class EmulationError(DacergnnError):
    """Threads of a kernel did what CUDA leaves undefined; the message names thread, block and place."""


class EmulatedLibrary(ctypes.CDLL):
    """A library whose functions launch kernels: calls of them raise EmulationError where one fails."""

    def __getattr__(self, name: str) -> Any:
        function = super().__getattr__(name)
        if not name.startswith("dacergnn_"):
            function.errcheck = self._check
        return function

    def seed(self, seed: int) -> None:
        """Choose the order of threads, warps and blocks, and what shared memory holds at first; 0: ascending order."""
        self.dacergnn_emulation_seed(ctypes.c_uint64(seed))

    def limit_shared(self, kib: int) -> None:
        """Set how much shared memory a block may have."""
        self.dacergnn_emulation_shared_limit(ctypes.c_uint64(1024 * kib))

    def set_call(self, workspace: Array | None = None, multiprocessors: int = 4) -> None:
        """Set what the caller of a program sets: scratch memory, number of multiprocessors."""
        pointer = None if workspace is None else workspace.ctypes.data
        self.dacergnn_set_call(ctypes.c_void_p(pointer), multiprocessors)

    def set_least_chunk(self, rows: int) -> None:
        """Set how many rows a group may have that several blocks do not share, where they share any."""
        self.dacergnn_set_least_chunk(ctypes.c_int64(rows))

    def _check(self, result: Any, _function: Any, _arguments: Any) -> Any:
        take = self.dacergnn_take_failure
        take.restype = ctypes.c_char_p
        failure = take()
        if failure is not None:
            raise EmulationError(re.sub(r" \[((?:0x\w+ ?)+)\]", self._places, failure.decode()))
        return result

    def _places(self, addresses: re.Match[str]) -> str:
        """Lines of source for addresses in this library, without those of the emulation itself."""
        command = ["addr2line", "--inlines", "--exe", self._name, *addresses[1].split()]
        if shutil.which(command[0]) is None:
            return ""
        lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n")
        places = [Path(line.split(" ")[0]) for line in lines if ":" in line and "?" not in line]
        return f" [{', '.join(p.name for p in places if p.parent != EMULATION and p.suffix[:2] != '.h')}]"


def compile_emulated(source: str) -> EmulatedLibrary:
    """The library of a CUDA source with ``extern "C"`` functions that launch kernels; builds are kept by content."""
    if on_device.CHOSEN:
        return EmulatedLibrary(str(on_device.build_native(source)))
    code = on_device.HEAD + source + on_device.SETTERS + _ACCESS
    return EmulatedLibrary(str(_build("emulated", code, _FLAGS, INCLUDE_FOLDER / "dacergnn" / "cuda", EMULATION)))


def _build(name: str, code: str, flags: Sequence[str], *includes: Path, made: str = build_cache.LIBRARY) -> Path:
    headers = sorted(file for folder in includes for file in folder.rglob("*") if file.is_file())
    contents = b"".join(h.read_bytes() for h in headers)
    path, version = compiler()
    key = hashlib.sha256("\n".join([version, *flags, code]).encode() + contents).hexdigest()[:20]

    def build(folder: Path) -> None:
        (folder / "source.cu").write_text(code)
        command = [path, *flags, str(folder / "source.cu"), "-o", str(folder / made)]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stderr

    return build_cache.lookup(key, name, made) or build_cache.store(key, name, build, made)


def device(array: Array) -> Array:
    """A copy, aligned to 16 bytes, between pages that cannot be touched; up to them there is rubbish.

    Reading beyond its end is a fault after 15 bytes at most, before its start after a page at most.
    """
    if on_device.CHOSEN:
        return on_device.pinned(array)
    used = -(-array.nbytes // 16) * 16
    end = _GUARD - (-used // mmap.PAGESIZE) * mmap.PAGESIZE
    raw = np.frombuffer(mmap.mmap(-1, end + _GUARD), np.uint8)
    raw[_GUARD:end] = 0xFF
    for guard in (raw, raw[end:]):
        address = ctypes.c_void_p(guard.ctypes.data)
        assert ctypes.CDLL(None).mprotect(address, ctypes.c_size_t(_GUARD), _NO_ACCESS) == 0
    copy = raw[end - used :][: array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def _emulation() -> Path:
    """The object file of the emulation itself, which no sanitizer but that of addresses looks at."""
    address = ["-fsanitize=address"] if _SANITIZER == "address" else []
    flags = (*_BOTH_FLAGS, "-O2", "-c", f"-I{EMULATION}", *address)
    return _build("emulation", '#include "emulation.cpp"\n', flags, EMULATION)


def _compile_flags(flags: tuple[str, ...]) -> tuple[str, ...]:
    if on_device.CHOSEN:
        return ()
    to_header = (*flags, "-c", "-x", "c++-header")
    header = _build("emulated_headers", _HEADERS, to_header, INCLUDE_FOLDER, EMULATION, made="emulated.h.gch")
    return (*flags, "-include", str(header.with_suffix("")))


COMPILE_FLAGS = _compile_flags(_KERNEL_FLAGS)
"""Options of g++ that make an object of a source of a layer, to run in emulation."""
LINK_FLAGS = () if on_device.CHOSEN else (*_KERNEL_FLAGS, "-x", "none", str(_emulation()))
"""Options of g++ that make a library of such objects."""


def library_flags(flags: tuple[str, ...]) -> tuple[str, ...]:
    """Returns what g++ needs besides a source to build a library that runs in emulation."""
    return (*flags, *LINK_FLAGS[-3:], "-x", "c++") if LINK_FLAGS else ()


_FLAGS = library_flags(_compile_flags((*_KERNEL_FLAGS, *_UNDEFINED)))
