"""Exports a model as a package of AOTInductor, and the operators of its layers as a library for torch in C++."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import fx, nn
from torch.utils import _pytree as pytree

from dacergnn.deploy.capture import capture
from dacergnn.deploy.linking import include_options
from dacergnn.deploy.operators import carried_programs, operators_code
from dacergnn.deploy.processors import processor, run_tool
from dacergnn.errors import DacergnnError, UnsupportedMachineError
from dacergnn.progress import working

_OPTIONS: dict[str, Any] = {"aot_inductor.check_lowerbound": False}
"""Options of the compiler: empty batches are no error where a process has torch check all inputs."""
_FIRST_TORCH = (2, 13)
_TARGET = "-DTORCH_TARGET_VERSION=0x020d000000000000ULL"
"""Allows nothing in the library that a later torch may lack."""


@dataclass(frozen=True)
class ExportedPackage:
    """Describes the files of an exported model: the package, and the library of the operators that it calls."""

    package: Path
    operators: Path


def export_package(
    model: nn.Module,
    folder: str | Path,
    *,
    example: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    dynamic_shapes: Any = None,
    name: str = "model",
) -> ExportedPackage:
    """Exports a model as ``<name>.pt2`` and ``lib<name>_operators.so``, which torch runs in C++ without Python.

    A process loads the library first (``dlopen``, or ``torch.ops.load_library``), then the package
    (``torch::inductor::AOTIModelPackageLoader``, or ``torch._inductor.aoti_load_package``). Libraries of several models
    go together. In a process that has imported this package, its own operators run in place of those of the library.

    Args:
        model: A model in eval mode, with layers that `optimize` has compiled.
        folder: Where the files are written; it is made if it is missing.
        example: The arguments of a call.
        kwargs: The keyword arguments of that call.
        dynamic_shapes: The sizes that may differ, as for `torch.export.export`. By default those are the numbers of
            edges of tensors [2, E], and the first axis of all other tensors.
        name: The name of the files.

    Raises:
        ArrayError: The model is in training mode.
        UnsupportedCallError: torch cannot trace the model, or a program has no form in a C library.
        UnsupportedMachineError: The installed torch is too old.
        DacergnnError: The name is wrong.
    """
    if re.fullmatch(r"\w+", name, re.ASCII) is None:
        raise DacergnnError(f"name={name!r}: use letters, digits and _.")
    _check_torch()
    from torch._inductor import aoti_compile_and_package  # takes seconds to import

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    made = ExportedPackage(folder / f"{name}.pt2", folder / f"lib{name}_operators.so")
    with working(f"packaging {type(model).__name__}"):
        program = capture(model, example, kwargs, dynamic_shapes)
        share_calls(program.graph)
        build_operators([program], made.operators)
        aoti_compile_and_package(program, package_path=str(made.package), inductor_configs=_OPTIONS)
    return made


def share_calls(graph: fx.Graph) -> None:
    """Makes equal calls of our operators one call, so that the layers of a model sort the edges once."""
    known: dict[object, fx.Node] = {}
    for node in list(graph.nodes):
        if node.op != "call_function" or getattr(node.target, "namespace", None) != "dacergnn":
            continue
        leaves, spec = pytree.tree_flatten((node.args, node.kwargs))
        first = known.setdefault((node.target, str(spec), *map(_key, leaves)), node)
        if first is not node and not _is_open(node):
            node.replace_all_uses_with(first)
            graph.erase_node(node)


def _key(leaf: Any) -> object:
    return leaf if isinstance(leaf, fx.Node) else (type(leaf), leaf)


def _is_open(node: fx.Node) -> bool:
    """Returns whether an operation finds sizes itself; each of these has a symbol of its own."""
    return node.target is torch.ops.dacergnn.with_loops.default


def _check_torch() -> None:
    version = tuple([int(part) for part in torch.__version__.split(".")[:2]])
    if version < _FIRST_TORCH:
        raise UnsupportedMachineError(
            f"torch {torch.__version__} is too old for libraries of operators; install torch "
            f"{'.'.join(map(str, _FIRST_TORCH))} or newer, or use dacergnn.export, which needs no torch."
        )


def build_operators(programs: Sequence[torch.export.ExportedProgram], library: Path) -> None:
    """Writes the library of operators that exported programs call; it finds torch in the process that loads it."""
    carried = dict.fromkeys(known for program in programs for known in carried_programs(program.graph))
    code = operators_code(list(carried))
    torch_folder = Path(torch.__file__).parent
    with tempfile.TemporaryDirectory() as work:
        source = Path(work) / "operators.cpp"
        source.write_text(code)
        run_tool([*_command(torch_folder), str(source), "-o", str(library), *_libraries(torch_folder)])


def _command(torch_folder: Path) -> Iterable[str]:
    yield from processor("native").command
    yield from ("-fvisibility=hidden", "-fvisibility-inlines-hidden", _TARGET, "-Wl,-z,nodelete", "-Wl,-s")
    yield from (*include_options(), f"-I{torch_folder / 'include'}")


def _libraries(torch_folder: Path) -> Iterable[str]:
    yield from (f"-L{torch_folder / 'lib'}", "-Wl,--no-as-needed", "-ltorch_cpu")
