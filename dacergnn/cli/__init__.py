"""Defines the command line. A command is imported when it runs, so that `dacergnn --help` imports none of them."""

from __future__ import annotations

import importlib
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import click

from dacergnn.errors import DacergnnError

Table = dict[str, tuple[str, str]]
"""Name of a command -> (module:attribute, one line of help)."""
COMMANDS: Table = {
    "bench": ("dacergnn.cli.bench:bench", "Compare a model as it is with the same model compiled: times and memory."),
    "cache": ("dacergnn.cli.cache:cache", "Show or empty the cache of builds."),
    "env": ("dacergnn.cli.env:env", "Show versions, compiler, processor and measured rates."),
    "explain": ("dacergnn.cli.explain:explain", "Show what becomes of a layer on a graph."),
    "export": ("dacergnn.cli.export:export", "Export a model as one C library without Python and torch."),
    "forecast": (
        "dacergnn.cli.forecast:forecast",
        "Forecast the times of a layer's kernels on a CUDA device that need not be there.",
    ),
    "profile": ("dacergnn.cli.profile:profile", "Measure the operators of a layer on a graph, one by one."),
    "tune": ("dacergnn.cli.tune:tune", "Choose plans of programs by measurements, and by models that learn from them."),
    "view": ("dacergnn.cli.view:view", "Save and show the SDFGs of a layer, step by step."),
}


def package_version() -> str:
    """Returns the version of the installed package."""
    try:
        return version("dacergnn")
    except PackageNotFoundError:
        return "not installed"


class LazyGroup(click.Group):
    """Imports each command on first use, and shows this package's errors as one sentence.

    Args:
        table: The commands.
    """

    def __init__(self, *args: Any, table: Table, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._table:
            return None
        module, attribute = self._table[cmd_name][0].split(":")
        return getattr(importlib.import_module(module), attribute)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self._table and not args[0].startswith("-"):
            ctx.fail(f"There is no command {args[0]!r}; the commands are {', '.join(self._table)}.")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_line) for name, (_, help_line) in self._table.items()])

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except DacergnnError as error:
            raise click.ClickException(str(error)) from error


@click.group(cls=LazyGroup, table=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_version(), prog_name="dacergnn")
def main() -> None:
    """A data-centric compiler for relational graph neural networks."""
