"""Makes coverage.md: which layers of other libraries are compiled, and what the others are left for; which models.

    python docs/make_coverage.py [names of layers] [models]

Every class of `torch_geometric.nn.conv` and `dgl.nn.pytorch.conv` is made and called as `coverage_pyg.py` and
`coverage_dgl.py` say, as it is and compiled, and outputs and gradients of inputs and parameters are compared. The
models of `coverage_models.py` are run, computed range by range, and exported. With names (`GATConv` means that of both
libraries, ``models`` all models), prints what it finds and writes nothing.
"""

from __future__ import annotations

import re
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import coverage_dgl
import coverage_pyg
import dgl
import torch
import torch_geometric
from coverage_inputs import Case
from coverage_models import Model, models
from torch import Tensor, nn
from torch_geometric.nn import conv

import dacergnn
from dacergnn.errors import DacergnnError
from dacergnn.modules.capture.captured_forward import CapturedForward
from dacergnn.modules.compiled_parts import compiled_parts
from dacergnn.modules.core import Core
from dacergnn.modules.graph_forward import compiled_forwards
from dacergnn.modules.layer_core import LayerCore
from dacergnn.tables import Table

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
    return Finding(name, True, "front end" if has_front_end else "captured")


def of_model(model: Model) -> tuple[str, str, str]:
    """Returns how a model runs, whether `inference` takes it, and whether it can be exported."""
    plain = model.module.eval()
    fast = dacergnn.optimize(plain, on_unsupported="ignore").eval()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        expected = plain(*model.args)
        for _ in range(2):
            compare(fast(*model.args), expected)
        forwards = [f for f in compiled_forwards(fast) if isinstance(f, CapturedForward)]
        parts = [p.part for p in compiled_parts(fast) if isinstance(p.part, Core)]
        if forwards and forwards[0].runs_whole:
            ran = "as one"
        else:
            ran = "layer by layer" if len(parts) > 1 else "one layer"
        if any(p.refusal for p in parts):
            ran += f": {next(p.refusal for p in parts if p.refusal)}"
        given = model.args[: len(model.args) - len(model.arrays)]
        ranges = tried(lambda: compare(inferred(fast, given, model.arrays), expected))
        with tempfile.TemporaryDirectory() as folder:
            exported = tried(lambda: dacergnn.export(fast, folder, example=model.args))
    return ran, ranges, exported


def inferred(model: nn.Module, given: tuple[Any, ...], arrays: dict[str, Tensor]) -> Any:
    """Results range by range; features come first, then edges."""
    if len(given) != 2:
        raise DacergnnError("it takes more than features and edges in this order")
    return dacergnn.inference(model, given[1], given[0], batch=7, **arrays)


def compare(found: Any, expected: Any) -> None:
    for a, b in zip(leaves(found), leaves(expected), strict=True):
        torch.testing.assert_close(a, b, rtol=2e-4, atol=2e-4)


def tried(run: Callable[[], object]) -> str:
    """Yes, or what prevents it."""
    try:
        run()
    except DacergnnError as error:
        return short(str(error))
    return "yes"


def short(reason: str) -> str:
    """The first sentence of a reason, without the folders of files, and with classes as code."""
    first = re.sub(r"/\S*/", "", re.split(r"\. |\n", reason)[0]).rstrip(".")
    return re.sub(r"\b(\w+Conv)\b", r"`\1`", first) + "."


def model_table() -> str:
    torch.manual_seed(0)
    table = Table("", ("model", "of", "runs", "`inference`", "`export`"), 5)
    for name, model in models().items():
        found = of_model(model)
        sys.stdout.write(f"{name}: {'; '.join(found)}\n")
        sys.stdout.flush()
        table.add_row(name, f"`{model.place}`", *found)
    return table.markdown()


def table(findings: list[Finding]) -> str:
    rows = [(f"`{f.name}`", "compiled" if f.compiled else "original", f.reason) for f in findings]
    return Table("", ("layer", "runs", "how, or why not"), 3, rows=rows).markdown()


HEAD = """# Coverage

Made by `docs/make_coverage.py`: every layer is called as it is and compiled, in float32 and, where it can, in float64,
and outputs and gradients of inputs and parameters are compared. Layers that are not compiled run as they are, with a
warning.
"Captured" layers have no front end of their own: torch captures their Python.
"""
SECTION = """
## {title}

{compiled} of {total} classes of `{place}` are compiled.

{table}
"""
MODELS = """
## Models

Whole models of the examples, of these pages and of the tests that train: whether torch captures them, so that they run
as one, whether `inference` computes them range by range, and whether they can be exported to C. In the last two columns
is yes, or the reason. Models of typed layers run as one where enough lies between these
([whole models](howto/whole_models.md)).

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
    if not names or "models" in names:
        text += MODELS.format(table=model_table())
    if not names:
        Path(__file__).with_name("coverage.md").write_text(text)


if __name__ == "__main__":
    main(sys.argv[1:])
