"""Lists the peers of a model: the libraries' layers, and plain PyTorch."""

from __future__ import annotations

import importlib
import os
from dataclasses import replace
from typing import Any

import torch

from benchmarks.named import COMPILED
from benchmarks.relational import plain_torch
from benchmarks.relational.candidate import Built, Candidate, Wrap
from benchmarks.relational.parameters import Parameters
from benchmarks.relational.problem import Problem
from dacergnn.errors import DacergnnError

LIBRARIES = {"pyg": "torch_geometric", "dgl": "dgl"}
"""Packages behind the names of the libraries."""
PLAIN = ("torch", "grouped")
"""Careful plain PyTorch, and the same with torch's products of groups."""


def candidates(model: str, against: tuple[str, ...], device: str = "cpu") -> list[Candidate]:
    """Returns all candidates of a model ("rgcn", "rgat", "hgt") from "pyg", "dgl", "torch" and "grouped".

    Raises DacergnnError for an unknown name, and where a named library is not installed.
    """
    layers: list[Candidate] = []
    for name in against:
        if name in PLAIN:
            layers += plain_torch.candidates(model, name, device)
        elif name in LIBRARIES:
            layers += [c for c in library_module(name).ALL if c.model == model]
        else:
            raise DacergnnError(f"against: '{name}' is unknown; choose from {', '.join((*LIBRARIES, *PLAIN))}")
    return layers


def library_module(name: str) -> Any:
    """Returns this package's module that wraps a library; raises DacergnnError where the library is missing."""
    os.environ.setdefault("DGLBACKEND", "pytorch")  # else DGL writes a settings file into the home folder
    try:
        importlib.import_module(LIBRARIES[name])
    except ImportError as error:
        raise DacergnnError(
            f"against: '{name}' needs {LIBRARIES[name]}, which cannot be imported here ({error}); "
            f"install it with pip install 'dacergnn[{name}]', or leave '{name}' out"
        ) from error
    return importlib.import_module(f"benchmarks.relational.peers_{name}")


def absence(name: str, device: torch.device) -> str:
    """Returns why a peer cannot run on a device of this machine; empty where it can."""
    if name == "torch":
        return ""
    if name == "grouped":
        return "" if hasattr(torch, "_grouped_mm") else f"torch {torch.__version__} has no _grouped_mm"
    try:
        library_module(name)
        if name == "dgl":
            importlib.import_module("dgl").graph(([0], [0])).to(device)  # builds without CUDA refuse
    except Exception as error:  # a library that does not load here raises what it likes
        return " ".join(str(error).split())[:200]
    return ""


def through_compiler(candidate: Candidate) -> Candidate:
    """Returns the same layer through torch.compile."""

    def build(problem: Problem, shared: Parameters, wrap: Wrap) -> Built:
        return candidate.build(problem, shared, lambda layer: wrap(torch.compile(layer)))

    return replace(candidate, name=candidate.name + COMPILED, build=build)
