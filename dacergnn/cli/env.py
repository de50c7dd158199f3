"""Defines `dacergnn env`, which shows what results depend on."""

from __future__ import annotations

import json

import click
from rich.console import Console
from rich.table import Table

from dacergnn.bench.environment import environment, measured_rates


@click.command()
@click.option("--rates/--no-rates", default=True, help="Measure copy bandwidth and GEMM rate (a few seconds).")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def env(rates: bool, as_json: bool) -> None:
    """Show versions, compiler, processor, threads, and the measured copy bandwidth and GEMM rate."""
    facts = environment() | (measured_rates() if rates else {})
    if as_json:
        click.echo(json.dumps(facts, indent=2))
        return
    table = Table("", "", show_header=False, box=None)
    for name, value in facts.items():
        table.add_row(f"[bold]{name}", str(value))
    Console().print(table)
