"""Loads exported programs whose arguments are dictionaries with edge types for keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree


def load_exported(path: str | Path) -> torch.export.ExportedProgram:
    """Returns what `torch.export.load` returns, with edge types as keys again.

    A file holds dictionaries in JSON, which turns keys that are tuples into lists; torch then refuses every call.

    Raises:
        FileNotFoundError: There is no such file.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"{path}: there is no such file; name one that torch.export.save wrote.")
    program = torch.export.load(str(path))
    for module in program.module_call_graph:
        signature: Any = module.signature
        if signature is not None:
            signature.in_spec, signature.out_spec = _with_tuples(signature.in_spec), _with_tuples(signature.out_spec)
    return program


def _with_tuples(spec: Any) -> Any:
    """Returns the structure of arguments with tuples as keys, in place of lists."""
    if spec.is_leaf():
        return spec
    parts = spec.children() if hasattr(spec, "children") else spec.children_specs  # until torch 2.9
    children = list(map(_with_tuples, parts))
    context = spec.context
    if spec.type is dict:
        context = [tuple(key) if isinstance(key, list) else key for key in context]
    return pytree.TreeSpec(spec.type, context, children)
