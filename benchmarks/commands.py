"""Defines the command line of the laboratory, `python -m benchmarks`."""

from __future__ import annotations

import click

from dacergnn.cli import LazyGroup, Table

COMMANDS: Table = {
    "model": (
        "benchmarks.learned_model.command:model",
        "Collect samples of programs, and train and judge the models that choose plans.",
    ),
    "papers": (
        "benchmarks.papers.command:papers",
        "Measure figures and tables of papers on this machine, beside the papers' numbers.",
    ),
}


@click.group(cls=LazyGroup, table=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Measure what the papers show, suites of benchmarks, other libraries, and cost models."""
