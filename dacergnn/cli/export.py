"""Defines `dacergnn export`, which makes a C library of an exported program or of a model that a function returns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dacergnn.errors import DacergnnError


@click.command()
@click.argument("source")
@click.option("--out", type=click.Path(path_type=Path), default=Path("exported"), show_default=True,
              help="Folder for the library, its header and its manifest.")  # fmt: skip
@click.option("--name", default="model", show_default=True, help="Name of the library, and prefix of its functions.")
@click.option("--weights", type=click.Choice(["inside", "beside"]), default="inside", show_default=True,
              help="Put the weights into the library, or into a file beside it (safetensors).")  # fmt: skip
@click.option("--target-cpu", "target_cpu", multiple=True, default=["native"], show_default=True, metavar="NAME",
              help="native, x86-64-v2, x86-64-v3, x86-64-v4 or aarch64. Several levels of x86-64 make one library, "
              "which chooses when it is loaded.")  # fmt: skip
@click.option("--cuda-arch", "cuda_arch", multiple=True, type=int, metavar="NUMBER",
              help="Compute capability without the dot, such as 90: the library runs on CUDA devices.")  # fmt: skip
def export(
    source: str, out: Path, name: str, weights: str, target_cpu: tuple[str, ...], cuda_arch: tuple[int, ...]
) -> None:
    """Export a model as one C library that needs neither Python nor torch.

    SOURCE is a file that torch.export.save wrote, or MODULE:FUNCTION, a function without arguments that returns a model
    in eval mode and the arguments of a call, as a tuple.
    """
    import dacergnn
    from dacergnn.bench.subject import made_by

    options: dict[str, Any] = {"name": name, "weights": weights, "target_cpu": list(target_cpu)}
    options["cuda_arch"] = cuda_arch or None
    if Path(source).is_file():
        made = dacergnn.export(dacergnn.load_exported(source), out, **options)
    elif ":" not in source:
        raise DacergnnError(f"{source} is no file; name one that torch.export.save wrote, or MODULE:FUNCTION.")
    else:
        model, example = made_by(source)
        made = dacergnn.export(model, out, example=example, **options)
    for path in (made.library, made.header, made.manifest, made.weights):
        if path is not None:
            click.echo(f"{path}  {path.stat().st_size:,} bytes")
