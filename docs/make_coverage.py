"""Makes coverage.md: which layers of other libraries are compiled, and what the others are left for.

    python docs/make_coverage.py [names of layers]

Every class of `torch_geometric.nn.conv` and `dgl.nn.pytorch.conv` is made and called as `coverage_pyg.py` and
`coverage_dgl.py` say, as it is and compiled, and outputs and gradients of inputs and parameters are compared. With
names (`GATConv` means that of both libraries), prints what it finds and writes nothing.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import coverage_dgl
import coverage_pyg
import dgl
import torch
import torch_geometric
from coverage_inputs import Case
from torch import Tensor, nn
from torch_geometric.nn import conv

import dacergnn
from dacergnn.errors import DacergnnError
from dacergnn.modules.compiled_parts import compiled_parts
from dacergnn.modules.core import Core
from dacergnn.modules.layer_core import LayerCore

TOLERANCES = {torch.float32: 2e-4, torch.float64: 1e-9}


@dataclass
class Finding:
    """What became of one layer: compiled, or why not."""

    name: str
    compiled: bool
    reason: str


def convert(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, Tensor) and value.is_floating_point():
        return value.to(dtype).requires_grad_()
    if isinstance(value, dict):
        return {k: convert(v, dtype) for k, v in value.items()}
    return value


def leaves(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value] if value.is_floating_point() else []
    if isinstance(value, dict):
        value = list(value.values())
    return [t for v in value for t in leaves(v)] if isinstance(value, tuple | list) else []


def outcome(layer: nn.Module, args: tuple[Any, ...]) -> list[Tensor]:
    """Outputs, and gradients of a weighted sum of them by inputs and parameters."""
    torch.manual_seed(7)
    outputs = leaves(layer(*args))
    total = sum((o * torch.arange(1.0, o.numel() + 1, dtype=o.dtype).cos().view(o.shape)).sum() for o in outputs)
    wrt = [t for t in [*leaves(args), *layer.parameters()] if t.requires_grad]
    if not isinstance(total, Tensor) or not total.requires_grad:
        return outputs
    found = torch.autograd.grad(total, wrt, allow_unused=True)
    return [*outputs, *[torch.zeros_like(t) if g is None else g for t, g in zip(wrt, found, strict=True)]]


@dataclass
class Library:
    """Layers of a library: names, how to make and call them, what some need that is not here."""

    title: str
    names: Sequence[str]
    cases: dict[str, Case]
    needs: dict[str, str]


LIBRARIES = {
    "torch_geometric.nn.conv": Library(
        f"PyTorch Geometric {torch_geometric.__version__}", conv.__all__, coverage_pyg.CASES, coverage_pyg.NEEDS
    ),
    "dgl.nn": Library(f"DGL {dgl.__version__}", coverage_dgl.NAMES, coverage_dgl.CASES, coverage_dgl.NEEDS),
}


def examine(library: Library, name: str) -> Finding:
    if name in library.needs:
        return Finding(name, False, library.needs[name])
    torch.manual_seed(3)
    try:
        layer, args = library.cases[name]()
    except ImportError as error:
        return Finding(name, False, f"needs {error.name or error}")
    layer.train()
    worst, parts = 0.0, list[Core]()
    for dtype, tolerance in TOLERANCES.items():
        layer = layer.to(dtype)
        given = tuple(convert(a, dtype) for a in args)
        try:
            expected = outcome(layer, given)
        except (RuntimeError, dgl.DGLError):
            if dtype is torch.float32:
                raise
            continue  # the layer itself makes float32 tensors
        ours = dacergnn.optimize(layer, on_unsupported="ignore")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = outcome(ours, given)
        except DacergnnError as error:
            return Finding(name, False, f"ERROR {error}")
        parts = [p.part for p in compiled_parts(ours) if isinstance(p.part, Core)]
        if not parts:
            return Finding(name, False, "no message passing layer")
        reasons = [p.refusal for p in parts if p.refusal]
        for a, b in zip(found, expected, strict=True):
            worst = max(worst, float(((a - b).abs().max() / (1 + b.abs().max())).detach()) / tolerance)
        if worst > 1:
            return Finding(name, False, f"ERROR: off by {worst:.1g} tolerances in {dtype}")
        if reasons:
            return Finding(name, False, reasons[0])
        if not any(p.last_call for p in parts):
            return Finding(name, False, "nothing to compile in this call")
    has_front_end = isinstance(parts[0], LayerCore) and parts[0].frontend is not None
    return Finding(name, True, "front end" if has_front_end else "traced")


def table(findings: list[Finding]) -> str:
    rows = [f"| `{f.name}` | {'compiled' if f.compiled else 'original'} | {f.reason} |" for f in findings]
    return "\n".join(["| layer | runs | how, or why not |", "|---|---|---|", *rows])


HEAD = """# Coverage

Made by `docs/make_coverage.py`: every layer is called as it is and compiled, in float32 and, where it can, in float64,
and outputs and gradients of inputs and parameters are compared. Layers that are not compiled run as they are, with a
warning.
"Traced" layers have no front end of their own: their Python is run with recorded values.
"""
SECTION = """
## {title}

{compiled} of {total} classes of `{place}` are compiled.

{table}
"""


def main(names: list[str]) -> None:
    text = HEAD
    for place, library in LIBRARIES.items():
        findings: list[Finding] = []
        for name in library.names:
            if names and name not in names:
                continue
            start = time.time()
            findings.append(examine(library, name))
            finding = findings[-1]
            outcome = "compiled" if finding.compiled else "original"
            sys.stdout.write(f"{name}: {outcome}, {finding.reason} ({time.time() - start:.0f} s)\n")
            sys.stdout.flush()
        count = sum(f.compiled for f in findings)
        text += SECTION.format(
            title=library.title, place=place, compiled=count, total=len(findings), table=table(findings)
        )
    if not names:
        Path(__file__).with_name("coverage.md").write_text(text)


if __name__ == "__main__":
    main(sys.argv[1:])
