"""Defines `dacergnn view`, which saves the SDFGs of every step, and shows them in DaCe's viewer."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from dacergnn.cli.html import write_page
from dacergnn.cli.layers import compiled_layer, layer_options, plan_option
from dacergnn.plan import Plan


@click.command()
@layer_options
@plan_option
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=Path("sdfg"), show_default=True)
@click.option("--html", type=click.Path(dir_okay=False, path_type=Path), help="Write one self-contained page too.")
@click.option("--open/--no-open", "open_viewer", default=True, help="Open DaCe's viewer.")
def view(
    model: str, data: str, features: int, heads: int, plan: Plan | None, out: Path, html: Path | None, open_viewer: bool
) -> None:
    """Save the SDFGs of every step of a layer, and open DaCe's viewer on them."""
    layer: Any = compiled_layer(model, data, features, heads, plan)
    layer.save_sdfg(out)
    show(saved_steps(out), html, open_viewer, title=f"{model} on {data}")


def saved_steps(folder: Path) -> dict[str, Path]:
    """Returns name of a step -> its file, for every SDFG below `folder`, in the order of their numbers."""
    files = sorted([*folder.rglob("*.sdfg"), *folder.rglob("*.sdfgz")])
    return {str(file.relative_to(folder).with_suffix("")): file for file in files}


def show(steps: dict[str, Path], html: Path | None, open_viewer: bool, title: str) -> None:
    """Lists the files, writes the page if asked for, and opens the last step (or the page)."""
    for file in steps.values():
        click.echo(str(file))
    if html is not None:
        write_page(html, steps, title)
        click.echo(f"{html}: all {len(steps)} steps in one page")
    if not open_viewer or not steps:
        return
    if html is not None and not inside_vscode(os.environ):
        click.launch(str(html))
        return
    import dace
    from dace.cli import sdfv

    sdfv.view(dace.SDFG.from_file(str(list(steps.values())[-1])), verbose=False)


def inside_vscode(environment: Iterable[str]) -> bool:
    """Tells whether DaCe's viewer would open in VS Code, whose extension shows SDFG files."""
    return any(name.startswith("VSCODE_") and "IPC" in name for name in environment)
