"""Compiles the sources of an exported model, and links them to one library."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dacergnn.deploy.processors import Processor, run_tool
from dacergnn.deploy.sources import Source
from dacergnn.native import build

INCLUDE_FOLDER = Path(__file__).parent / "include"


def include_options() -> list[str]:
    """Returns the options that name the folders of the headers of a library's C++."""
    return [*build.include_options(), f"-I{INCLUDE_FOLDER}"]


def link(sources: Sequence[Source], library: Path) -> None:
    """Builds a library.

    Raises:
        BuildError: A compiler or linker is missing, or rejects the sources.
    """
    command = [
        sources[0].kind.command[0], "-shared", "-fopenmp", "-static-libstdc++", "-static-libgcc",
        "-Wl,--gc-sections", "-Wl,--exclude-libs,ALL", "-Wl,-s", f"-Wl,-soname,{library.name}",
        *[str(_compiled(source)) for source in sources], "-o", str(library),
    ]  # fmt: skip
    run_tool(command)


def _compiled(source: Source) -> Path:
    made = source.path.with_suffix(".o")
    own = [option for option in source.kind.command if option != "-shared"]
    sections = ["-fvisibility=hidden", "-fvisibility-inlines-hidden", "-ffunction-sections", "-fdata-sections"]
    run_tool([*own, *sections, *source.options, "-c", *include_options(), str(source.path), "-o", str(made)])
    if source.entry is not None:
        _alone(source.kind, made, source.entry)
    return made


def _alone(kind: Processor, path: Path, entry: str) -> None:
    """Makes everything in an object local but one function.

    Otherwise the linker would take one copy of a template for all kinds of processors.
    """
    joined = path.with_suffix(".joined.o")
    run_tool([f"{kind.tools}ld", "-r", "--force-group-allocation", str(path), "-o", str(joined)])
    run_tool([f"{kind.tools}objcopy", f"--keep-global-symbol={entry}", str(joined), str(path)])
