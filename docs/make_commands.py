"""Makes commands.md: what `--help` says of every command.

python docs/make_commands.py [--print]
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click
from pages import give

from benchmarks.commands import main as laboratory
from dacergnn.cli import main

HEAD = """# Command line

Made by `docs/make_commands.py`, from what `--help` prints. Every command runs as `python -m dacergnn`, too.
"""
LABORATORY = """
# Commands of the laboratory

These run in a checkout; no wheel has them.
"""


def sections(command: click.Command, path: str, parent: click.Context | None = None) -> Iterator[str]:
    """Yields a section for a command, and then those of its subcommands."""
    context = click.Context(command, parent, info_name=path.rpartition(" ")[2], terminal_width=80, max_content_width=80)
    text = inspect.cleandoc(command.get_help(context))
    yield f"\n## `{path}`\n\n```text\n{text}\n```\n"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            subcommand = command.get_command(context, name)
            assert subcommand is not None
            yield from sections(subcommand, f"{path} {name}", context)


if __name__ == "__main__":
    text = "".join(sections(main, "dacergnn"))
    give("commands.md", HEAD + text + LABORATORY + "".join(sections(laboratory, "python -m benchmarks")))
