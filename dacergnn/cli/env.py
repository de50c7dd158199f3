"""Defines `dacergnn env`, which shows what results depend on."""

from __future__ import annotations

import json
from pathlib import Path

import click

from dacergnn.bench.environment import described, environment
from dacergnn.bench.rates import measure_rates, precision
from dacergnn.cli.options import device_option


@click.command()
@click.option("--rates/--no-rates", default=True, help="Measure copy bandwidth and GEMM rate (a few seconds).")
@device_option
@click.option("--save", "path", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Write the measured rates to this file, for --rates and Rates.load.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def env(rates: bool, device: str, path: Path | None, as_json: bool) -> None:
    """Show versions, compiler, processor, device, and the measured copy bandwidth and GEMM rate of one of the two.

    Rates are those of float32, on a device without TF32.
    """
    if path is not None and not rates:
        raise click.UsageError("--save writes the rates that --no-rates leaves out; leave one of the two out.")
    facts = environment()
    if rates:
        with precision("float32"):
            measured = measure_rates(device=device)
        facts |= described(measured)
        if path is not None:
            measured.save(path)
    if as_json:
        click.echo(json.dumps(facts, indent=2))
        return
    widest = max(map(len, facts))
    for name, value in facts.items():
        click.echo(f"{name:{widest}}  {value}")
