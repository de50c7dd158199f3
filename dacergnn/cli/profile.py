"""Defines `dacergnn profile`, which measures the operators of a model one by one."""

from __future__ import annotations

from pathlib import Path

import click

from dacergnn.bench.measure import MODES
from dacergnn.cli.layers import layer_options, plan_option, source_argument
from dacergnn.cli.options import names
from dacergnn.config import Config
from dacergnn.errors import DacergnnError
from dacergnn.plan import Plan


def _some(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[str, ...] | None:
    return None if value is None else names(context, parameter, value)


@click.command()
@source_argument
@layer_options
@plan_option
@click.option("--mode", type=click.Choice(MODES), default="train", show_default=True,
              help="Forward alone, or forward and backward, with gradients of the features, too.")  # fmt: skip
@click.option("--passes", callback=_some, help="Passes to compile with, comma-separated; all if left out.")
@click.option("--device", type=click.Choice(("cpu", "cuda")), default="cpu", show_default=True)
@click.option("--wide", is_flag=True, help="Show all columns, in parts if the terminal is too narrow.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--plot", "picture", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Draw the times, stacked by operator, as .png, .svg or .pdf.")  # fmt: skip
@click.option("--sdfg", "folder", type=click.Path(file_okay=False, path_type=Path), metavar="FOLDER",
              help="Write the SDFGs that ran, with the times for DaCe's extension for VS Code.")  # fmt: skip
def profile(
    source: str, model: str, data: str, features: int, heads: int, plan: Plan | None, mode: str,
    passes: tuple[str, ...] | None, device: str, wide: bool, as_json: bool, picture: Path | None, folder: Path | None,
) -> None:  # fmt: skip
    """Measure the operators of a model: time, FLOPs, bytes, and their share of the roofline.

    SOURCE is MODULE:FUNCTION, a function without arguments that returns a model and the arguments of a call, as a
    tuple. Without it, the model is a layer (--layer) on a graph (--data).

    On a CUDA device, also show what their kernels take of it, and how fast they should be (docs/gpu.md).
    """
    import torch

    import dacergnn
    from dacergnn.cli.named_layers import model_of, native_layer

    if device == "cuda" and not torch.cuda.is_available():
        raise DacergnnError("device: torch finds no CUDA device here; leave --device out to run on the processor.")
    config = Config(plan=plan, passes=passes)
    if source:
        made, arguments = model_of(source, config, device)
    else:
        graph = dacergnn.datasets.resolve(data).graph.to(device)
        made = native_layer(model, graph, features, heads, config).to(device)
        arguments = torch.randn(graph.size("NS"), features, device=device, requires_grad=mode == "train"), graph
    with torch.set_grad_enabled(mode == "train"):
        measured = dacergnn.profile(made, *arguments)
    click.echo(measured.to_json() if as_json else measured.text(wide=wide))
    if picture is not None:
        measured.plot(picture, source or f"{model} on {data}")
    if folder is not None:
        measured.save_sdfg(folder)
