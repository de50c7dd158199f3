"""Defines `dacergnn forecast`, which tells without a device how fast the kernels of a layer should be on one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from dacergnn.bench.measure import MODES
from dacergnn.cli.layers import layer_options, plan_option
from dacergnn.config import Config
from dacergnn.errors import DacergnnError
from dacergnn.plan import Plan
from dacergnn.profiling.devices import DATA_SHEETS, PRECISIONS, Device, first_of, named

if TYPE_CHECKING:
    from dacergnn.profiling.forecast import Forecast
    from dacergnn.profiling.operator_forecast import OperatorForecast


@click.command()
@layer_options
@plan_option
@click.option("--mode", type=click.Choice(MODES), default="train", show_default=True,
              help="Forward alone, or forward and backward, with gradients of the features, too.")  # fmt: skip
@click.option("--gpu", metavar="NAME", help=f"Device, with the figures of its data sheet: {', '.join(DATA_SHEETS)}. "
              "By default the first of --arch, else h100.")  # fmt: skip
@click.option("--arch", type=int, help="Compute capability to build for, such as 90; that of the device by default.")
@click.option("--precision", type=click.Choice(PRECISIONS), default="float32", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def forecast(
    model: str, data: str, features: int, heads: int, plan: Plan | None, mode: str, gpu: str | None, arch: int | None,
    precision: str, as_json: bool,
) -> None:  # fmt: skip
    """Forecast the times of a layer's CUDA kernels on a device that need not be there.

    The kernels are compiled by nvcc. Their registers and shared memory give the occupancy and the bytes in flight;
    from these and the modelled work follows the time, with the assumptions that docs/gpu.md lists.
    """
    import torch

    import dacergnn
    from dacergnn.cli.named_layers import native_layer

    device = named(gpu or ("h100" if arch is None else first_of(arch)), precision)
    if arch is not None and arch > device.architecture:
        raise DacergnnError(
            f"arch: code for compute capability {arch} does not run on {device.name}, which has {device.architecture}; "
            "name a newer device with --gpu, or leave --arch out."
        )
    graph = dacergnn.datasets.resolve(data).graph
    config = Config(plan=plan, implementation="cuda", cuda_arch=(arch or device.architecture,))
    layer = native_layer(model, graph, features, heads, config)
    if precision == "bfloat16":
        layer = layer.to(torch.bfloat16)
    made = forecast_of(layer, graph, mode, device, tf32=precision == "tf32")
    click.echo(made.to_json() if as_json else str(made))


def forecast_of(layer: Any, graph: Any, mode: str, device: Device, *, tf32: bool = False) -> Forecast:
    """Returns the forecast of a native layer on a graph; nothing runs."""
    from dacergnn.profiling.forecast import Forecast
    from dacergnn.profiling.operator_forecast import forecast as operators_of
    from dacergnn.runtime.clocks import ProgramWithClocks
    from dacergnn.sdfg_passes import compile_program

    compiled, arrays = layer.compiled(layer.program(), layer.dtype, graph), layer.arrays(graph)
    wrt = [n for n in compiled.inputs if n == "x" or arrays[n].requires_grad] if mode == "train" else []
    compilation = compile_program(
        compiled.sdfg, wrt, compiled.config, compiled.index_type, compiled.profile, keep=False
    )
    operators: list[OperatorForecast] = []
    for role, sdfg in compilation.by_role.items():
        program, (architecture,) = ProgramWithClocks.of(sdfg, compilation.saved), compiled.config.cuda_arch
        operators += operators_of(program, [graph.sizes], device, role=role, architecture=architecture, tf32=tf32)
    return Forecast(device, tuple(replace(operator, program=compiled.name) for operator in operators))
