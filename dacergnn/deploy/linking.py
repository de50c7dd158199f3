"""Compiles the sources of an exported model, and links them to one library."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dacergnn.deploy.processors import Processor, run_tool
from dacergnn.deploy.sources import Source
from dacergnn.native import build

_INCLUDE_FOLDER = Path(__file__).parent / "include"


def include_options() -> list[str]:
    """Returns the options that name the folders of the headers of a library's C++."""
    return [*build.include_options(), f"-I{_INCLUDE_FOLDER}"]


def link(sources: Sequence[Source], command: Sequence[str], library: Path) -> None:
    """Builds a library.

    Args:
        command: The command that joins objects to a library.

    Raises:
        BuildError: A compiler or linker is missing, or rejects the sources.
    """
    objects = [str(_compiled(source)) for source in sources]
    run_tool([*command, *objects, "-o", str(library)])


def _compiled(source: Source) -> Path:
    made = source.path.with_suffix(".o")
    own = [option for option in source.command if option != "-shared"]
    run_tool([*own, "-c", *include_options(), str(source.path), "-o", str(made)])
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
