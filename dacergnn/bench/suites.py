"""Defines `dacergnn bench --suite NAME`, where each suite is a command with its own options."""

from __future__ import annotations

import importlib
from typing import Any

import click

SUITES = {
    "relational": "",
    "caching": "dacergnn.bench.caching.command:caching",
    "batches": "dacergnn.bench.batches.command:batches",
    "scale": "dacergnn.bench.scale.command:scale",
}
"""Name of a suite -> module:attribute of its command; the first suite is `SuiteCommand` itself."""


class SuiteCommand(click.Command):
    """Runs the first suite, or with ``--suite NAME`` the command of another suite."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        target = SUITES.get(_suite(args) or "", "")
        if not target:
            return super().make_context(info_name, args, parent, **extra)
        module, attribute = target.split(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command.make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        return super().invoke(ctx) if ctx.command is self else ctx.command.invoke(ctx)


def _suite(args: list[str]) -> str | None:
    """Returns the value of ``--suite``, which may be two arguments or one."""
    for position, argument in enumerate(args):
        name, _, value = argument.partition("=")
        if name == "--suite":
            return value or next(iter(args[position + 1 :]), None)
    return None


def suite_option(command: Any) -> Any:
    """Adds the option that chooses a suite; the chosen command does not receive its value."""
    names = click.Choice(list(SUITES))
    return click.option(
        "--suite",
        type=names,
        default=next(iter(SUITES)),
        expose_value=False,
        help="What to measure: relational layers, homogeneous ones by caching strategy, training on sampled batches, "
        "or steps within a limit of memory (dacergnn bench --suite caching --help).",
    )(command)
