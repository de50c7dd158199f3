"""Replacements for DGL's innermost functions, which ask whether this thread is recording.

All functions of DGL that users import call these in the end, however they were imported. On a thread that does not
record, they call DGL's own functions with the same arguments.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from dacergnn.errors import UnsupportedCallError
from dacergnn.frontends.dgl import operators, udf
from dacergnn.frontends.dgl.recorder import recording
from dacergnn.frontends.symbolic.callers import LIBRARIES

_HOOKS: tuple[tuple[str, str, Callable[..., Any]], ...] = (
    ("dgl.ops.spmm", "gspmm_internal", operators.gspmm),
    ("dgl.ops.spmm", "gspmm_internal_hetero", operators.in_dgl),
    ("dgl.ops.sddmm", "gsddmm_internal", operators.gsddmm),
    ("dgl.ops.sddmm", "gsddmm_internal_hetero", operators.in_dgl),
    ("dgl.ops.edge_softmax", "edge_softmax_internal", operators.edge_softmax),
    ("dgl.ops.edge_softmax", "edge_softmax_hetero_internal", operators.in_dgl),
    ("dgl.backend", "gather_mm", operators.gather_mm),
    ("dgl.backend", "segment_mm", operators.segment_mm),
    ("dgl.backend", "segment_reduce", operators.in_dgl),
    ("dgl.backend", "replace_inf_with_zero", operators.replace_inf_with_zero),
    ("dgl.backend", "zerocopy_to_dgl_ndarray", operators.in_memory),
    ("dgl.backend.pytorch.tensor", "zerocopy_to_dgl_ndarray", operators.in_memory),
    ("dgl.core", "invoke_edge_udf", udf.edge_function),
    ("dgl.core", "invoke_udf_reduce", udf.reduce_function),
)
VERSION = "1.1"
"""The release of DGL that has these functions, with these arguments."""
_lock = threading.Lock()
_installed: list[bool] = []


def install() -> None:
    """Replaces the functions, unless that has been done.

    Raises:
        UnsupportedCallError: It is another release of DGL, whose inner functions may mean other things.
    """
    with _lock:
        if not _installed:
            dgl: Any = import_module("dgl")
            if not dgl.__version__.startswith(f"{VERSION}."):
                raise UnsupportedCallError(f"DGL {dgl.__version__} cannot be recorded; install DGL {VERSION}.3.")
            folder = Path(dgl.__path__[0])
            LIBRARIES.extend(str(part) for part in folder.iterdir() if part.name != "nn")
            for module, name, recorded in _HOOKS:
                _install(import_module(module), name, recorded)
            products: Any = import_module("dgl.ops.gather_mm")
            products.F = _Unsorted(products.F)
            _installed.append(True)


def _install(module: Any, name: str, recorded: Callable[..., Any]) -> None:
    original = getattr(module, name)

    @functools.wraps(original)
    def dispatching(*args: Any, **kwargs: Any) -> Any:
        recorder = recording()
        return original(*args, **kwargs) if recorder is None else recorded(recorder, original, *args, **kwargs)

    setattr(module, name, dispatching)


class _Unsorted:
    """Stands for DGL's backend in `dgl.ops.gather_mm`, which sorts wide rows by type to be faster.

    While this thread records, all rows look narrow to `gather_mm`, so that it leaves them as they are.
    """

    def __init__(self, backend: Any) -> None:
        self._backend = backend

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def shape(self, tensor: Any) -> Any:
        """Returns the shape of a tensor, with ones in place of the sizes while this thread records."""
        shape = self._backend.shape(tensor)
        return shape if recording() is None else (1,) * len(shape)
