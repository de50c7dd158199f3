"""Defines `dacergnn view`, which saves the SDFGs of every step, and opens the page that shows them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import click

from dacergnn.cli.layers import layer_options, plan_option, source_argument
from dacergnn.errors import DacergnnError
from dacergnn.plan import Plan


@click.command()
@source_argument
@layer_options
@plan_option
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=Path("sdfg"), show_default=True)
@click.option("--open/--no-open", "open_page", default=True, help="Open the page that shows the steps.")
@click.option(
    "--dace", is_flag=True, help="Open the SDFGs that run in DaCe's viewer, too; in VS Code's terminal, in VS Code."
)
def view(
    source: str, model: str, data: str, features: int, heads: int, plan: Plan | None, out: Path, open_page: bool,
    dace: bool,
) -> None:  # fmt: skip
    """Save the SDFGs of every step of a model, and a page that shows the steps; open the page.

    SOURCE is MODULE:FUNCTION, a function without arguments that returns a model and the arguments of a call, as a
    tuple. Without it, the model is a layer (--layer) on a graph (--data).
    A model that runs several programs has a folder and a page for each.
    """
    from dacergnn.cli.named_layers import compiled_model, programs_of
    from dacergnn.modules.sdfg_files import PAGE

    programs = programs_of(compiled_model(source, model, data, features, heads, plan))
    if not programs:
        raise DacergnnError(f"{source}: the call runs no compiled program; dacergnn explain {source} tells why.")
    for number, program in enumerate(programs):
        folder = out if len(programs) == 1 else out / f"{number}_{program.name}"
        files = program.save(folder)
        for path in (*files, folder / PAGE):
            click.echo(str(path))
        if open_page:
            click.launch(str(folder / PAGE))
        if dace:
            open_in_dace(files[-2:])


def open_in_dace(files: list[Path]) -> None:
    """Opens files in DaCe's viewer, or in VS Code if this is its terminal; the files, since DaCe writes copies anew."""
    from dace.cli import sdfv

    code = shutil.which("code") if os.environ.get("TERM_PROGRAM") == "vscode" else None
    if code is not None:
        subprocess.run([code, *files], check=False)
        return
    for path in files:
        text: Any = path.read_text(encoding="utf-8")
        sdfv.view(text, str(path), verbose=False)
