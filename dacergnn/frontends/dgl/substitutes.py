"""Tells torch what to capture in place of DGL's innermost functions, which call C code.

Outside of a capture, nothing of DGL is replaced. All functions of DGL that users import call these in the end, however
they were imported.
"""

from __future__ import annotations

import threading
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dacergnn.errors import UnsupportedCallError
from dacergnn.frontends.dgl.messages import at, combined, infinite, reduced, softmax
from dacergnn.frontends.dgl.refusals import unsupported
from dacergnn.frontends.dgl.stand_in import Index
from dacergnn.frontends.dgl.typed_products import typed_product
from dacergnn.frontends.substitution import replace, substitute
from dacergnn.frontends.symbolic.callers import LIBRARIES

VERSION = "1.1"
"""The release of DGL that has these functions, with these arguments."""
_lock = threading.Lock()
_installed: list[bool] = []


def install() -> None:
    """Tells torch about the substitutes, unless that has been done.

    Raises:
        UnsupportedCallError: It is another release of DGL, whose inner functions may mean other things.
    """
    with _lock:
        version: str = import_module("dgl").__version__
        if not version.startswith(f"{VERSION}."):
            raise UnsupportedCallError(f"DGL {version} cannot be captured; install DGL {VERSION}.3.")
        if not _installed:
            folder = Path(import_module("dgl").__path__[0])
            LIBRARIES.extend(str(part) for part in folder.iterdir() if part.name != "nn")
            inner: Any = import_module("dgl.backend.pytorch.sparse")
            for name, instead in (("gspmm", _gspmm), ("gsddmm", _gsddmm), ("edge_softmax", _edge_softmax),
                                     ("edge_softmax_hetero", _softmax_across)):  # fmt: skip
                substitute(getattr(inner, name), Index, instead)
            replace(import_module("dgl.ops.gather_mm").gather_mm, _gather_mm)
            replace(inner.segment_mm, _segment_mm)
            torch.compiler.allow_in_graph(typed_product)
            _installed.append(True)


def _gspmm(index: Index, op: str, reduction: str, lhs: Any, rhs: Any) -> Tensor:
    ends = index.only
    messages = combined(op, None if lhs is None else at(ends, "u", lhs), rhs)
    return infinite(ends, reduced(ends, messages, reduction), reduction)


def _gsddmm(index: Index, op: str, lhs: Any, rhs: Any, lhs_target: str = "u", rhs_target: str = "v") -> Tensor:
    ends = index.only
    left, right = (None if v is None else at(ends, t, v) for v, t in ((lhs, lhs_target), (rhs, rhs_target)))
    return combined(op, left, right)


def _edge_softmax(index: Index, logits: Tensor, eids: Any = "__ALL__", norm_by: str = "dst") -> Tensor:
    if not isinstance(eids, str):
        raise unsupported("a softmax over some edges")
    return softmax(logits, index.only.index(norm_by), index.only.count(norm_by))


def _softmax_across(index: Index, eids: Any, norm_by: str, *logits: Tensor) -> tuple[Tensor, ...]:
    """Returns the softmax over the edges of all relations that share a node."""
    kinds = [relation[0 if norm_by == "src" else 2] for relation in index.ends]
    ends, found = [*index.ends.values()], {}
    for kind in dict.fromkeys(kinds):
        places = [i for i, other in enumerate(kinds) if other == kind]
        nodes = torch.cat([ends[i].index(norm_by) for i in places])
        rows = softmax(torch.cat([logits[i] for i in places]), nodes, ends[places[0]].count(norm_by))
        start = 0
        for i in places:
            found[i] = rows[start : start + logits[i].shape[0]]
            start += logits[i].shape[0]
    return tuple([found[i] for i in range(len(kinds))])


def _gather_mm(a: Tensor, b: Tensor, *, idx_b: Tensor) -> Tensor:
    return typed_product(a, b, idx_b)


def _segment_mm(a: Tensor, b: Tensor, lengths: Tensor) -> Tensor:
    kinds, lengths = torch.arange(b.shape[0], device=a.device), lengths.to(a.device)
    return typed_product(a, b, torch.repeat_interleave(kinds, lengths, output_size=a.shape[0]))
