"""Defines `dacergnn view`, which saves the SDFGs of every step, and opens the page that shows them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import click

from dacergnn.cli.layers import layer_options, plan_option
from dacergnn.plan import Plan


@click.command()
@layer_options
@plan_option
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=Path("sdfg"), show_default=True)
@click.option("--open/--no-open", "open_page", default=True, help="Open the page that shows the steps.")
@click.option(
    "--dace", is_flag=True, help="Open the SDFGs that run in DaCe's viewer, too; in VS Code's terminal, in VS Code."
)
def view(
    model: str, data: str, features: int, heads: int, plan: Plan | None, out: Path, open_page: bool, dace: bool
) -> None:
    """Save the SDFGs of every step of a layer, and a page that shows the steps; open the page."""
    from dacergnn.cli.named_layers import compiled_layer
    from dacergnn.modules.sdfg_files import PAGE

    layer: Any = compiled_layer(model, data, features, heads, plan)
    files = layer.save_sdfg(out)
    for path in (*files, out / PAGE):
        click.echo(str(path))
    if open_page:
        click.launch(str(out / PAGE))
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
