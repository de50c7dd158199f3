"""Systems without kernels: Windows, machines without a compiler. The package imports there, and originals run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import dacergnn
from dacergnn.errors import UnsupportedMachineError
from dacergnn.graph import HeteroGraph
from dacergnn.modules import RGCN
from dacergnn.native import build

pyg: Any = pytest.importorskip("torch_geometric.nn")
EDGES = torch.tensor([[0, 1, 2, 3, 1], [1, 2, 3, 0, 3]])
MISSING = 'The C++ compiler "g++" is not on PATH; install g++ (11 or newer), or set CXX to a C++ compiler.'
_WINDOWS = """
import ctypes, os, sys
import dace, torch
import torch_geometric.nn as pyg

for name in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[name] = None  # importing it raises ImportError
for name in ("fork", "geteuid", "getuid", "killpg", "register_at_fork", "sched_getaffinity", "uname"):
    delattr(os, name)
library = ctypes.CDLL
class OnWindows(library):
    def __init__(self, name, *args, **kwargs):
        if name is None:
            raise TypeError("bad argument type for built-in operation")
        super().__init__(name, *args, **kwargs)
ctypes.CDLL = OnWindows
sys.platform = "win32"

import dacergnn
layer, x, edges = pyg.SAGEConv(8, 8), torch.randn(4, 8), torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
print(torch.equal(dacergnn.optimize(layer)(x, edges), layer(x, edges)))
"""


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> Any:
    """While it lasts, no compiler is found."""
    known = (build.compiler, build._environment)  # pyright: ignore[reportPrivateUsage]
    for function in known:
        function.cache_clear()
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", "/nonexistent")
    yield
    for function in known:
        function.cache_clear()


def layers() -> list[tuple[Any, Tensor]]:
    """Returns a layer with a front end and one that is traced, each with features of a width of its own."""
    return [(pyg.SAGEConv(9, 7), torch.randn(4, 9)), (pyg.GraphConv(9, 7), torch.randn(4, 9))]


@pytest.mark.usefixtures("no_compiler")
def test_originals_run_without_a_compiler() -> None:
    for layer, x in layers():
        fast = dacergnn.optimize(layer)
        with pytest.warns(UserWarning, match=re.escape(f"{type(layer).__name__} runs uncompiled: {MISSING}")):
            out = fast(x, EDGES)
        torch.testing.assert_close(out, layer(x, EDGES))
        torch.testing.assert_close(fast(x, EDGES), layer(x, EDGES))  # without a second warning
        assert MISSING in " ".join(str(dacergnn.explain(fast)).split())


@pytest.mark.usefixtures("no_compiler")
def test_calls_raise_without_a_compiler() -> None:
    for layer, x in layers():
        with pytest.raises(UnsupportedMachineError) as error:
            dacergnn.optimize(layer, on_unsupported="error")(x, EDGES)
        assert str(error.value) == MISSING
    graph = HeteroGraph.from_arrays(EDGES, torch.zeros(5, dtype=torch.int64), num_nodes=4, num_edge_types=1)
    with pytest.raises(UnsupportedMachineError):
        RGCN(9, 7, 1)(torch.randn(4, 9), graph)


def test_windows() -> None:
    """The package imports and runs originals without what only POSIX systems have."""
    root = Path(dacergnn.__file__).parents[1]
    run = subprocess.run(
        [sys.executable, "-c", _WINDOWS], capture_output=True, text=True, check=False, cwd=root, timeout=300
    )
    assert run.stdout == "True\n", run.stderr
    assert "Kernels are not built on Windows; use Linux, or the Windows Subsystem for Linux" in run.stderr
