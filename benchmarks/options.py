"""Makes the options of commands from what they set: the fields of settings, or the parameters of the command itself."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass, fields
from functools import wraps
from pathlib import Path
from typing import Any

import click

from benchmarks.suite import json_option, quickly, threads_option
from dacergnn.cli.options import data_option, device_option, names, numbers, rates_option

Command = Callable[..., Any]
SHARED = {"device": device_option, "path": json_option, "rates": rates_option, "threads": threads_option}
"""Options that mean the same in all commands, by what they set."""


@dataclass(frozen=True)
class Setting:
    """Describes a value that an option sets: its name, default, type as it is written, and what it is."""

    name: str
    default: Any
    kind: str
    text: str

    def option(self, flag: str = "", least: int = 1) -> Command:
        """Returns the option; lists are between commas.

        Args:
            least: The least that a whole number may be, or its default if that is less.
        """
        several = isinstance(self.default, tuple)
        if self.name == "data" and self.default:
            return data_option(*(self.default if several else (self.default,)))
        if self.name in SHARED and not several and self.default != "cuda":
            return SHARED[self.name]
        flag = "--" + (flag or self.name.removesuffix("_s").replace("_", "-"))
        about: dict[str, Any] = {"default": self.default, "show_default": True, "help": self.text or None}
        if several:
            listed, parsed = ",".join(map(str, self.default)), numbers if "int" in self.kind else names
            about |= {"default": listed, "show_default": bool(listed), "callback": parsed}
        elif isinstance(self.default, bool):
            flag = f"{flag}/--no-{flag.removeprefix('--')}"
        elif self.default is None:
            about["type"] = click.Path(path_type=Path) if "Path" in self.kind else int
        elif isinstance(self.default, int):
            about["type"] = click.IntRange(min(self.default, least))
        return click.option(flag, self.name, **about)


def settings(made: type[Any], **flags: str) -> Callable[[Command], Command]:
    """Gives a command an option for each documented field of settings, and calls it with these settings.

    Args:
        made: A data class, whose docstring describes what has an option; fields may be such classes themselves.
        flags: Names of options by the field, where they are others.
    """

    def decorated(function: Command) -> Command:
        @wraps(function)
        def run(**given: Any) -> None:
            chosen = _made(made, given)
            function(settings=chosen, **given)

        for own in reversed([*_settings_of(made)]):
            run = own.option(flags.get(own.name, ""), least=0)(run)  # settings check themselves
        return run

    return decorated


def question(**least: Any) -> Callable[[Command], click.Command]:
    """Makes a command of a function, with an option for each parameter, and --quick (`quickly`)."""

    def decorated(function: Command) -> click.Command:
        texts, run = described(function), quickly(**least)(function)
        for name, parameter in reversed([*inspect.signature(function).parameters.items()]):
            run = Setting(name, parameter.default, str(parameter.annotation), texts.get(name, "")).option()(run)
        return click.command(help=inspect.cleandoc(function.__doc__ or "").partition("\n\nArgs:")[0])(run)

    return decorated


def described(target: Any) -> dict[str, str]:
    """Returns what a docstring says of each argument, as a sentence."""
    texts: dict[str, str] = {}
    name = ""
    for line in inspect.cleandoc(target.__doc__ or "").partition("Args:\n")[2].splitlines():
        if not line.strip():
            break
        if line.startswith("     "):
            texts[name] += f" {line.strip()}"
        else:
            name, _, text = line.strip().partition(": ")
            texts[name] = text
    return texts


def _settings_of(made: type[Any]) -> Iterator[Setting]:
    texts = described(made)
    for field in fields(made):
        if field.default_factory is not MISSING:
            yield from _settings_of(field.default_factory)  # pyright: ignore[reportArgumentType]
        elif field.name in texts and not callable(field.default):
            yield Setting(field.name, field.default, str(field.type), texts[field.name])


def _made(made: type[Any], given: dict[str, Any]) -> Any:
    """Returns settings from the values of their options, which are taken from what is given."""
    nested = {f.name: f.default_factory for f in fields(made) if f.default_factory is not MISSING}
    own = {name: given.pop(name) for name in described(made) if name in given}
    return made(**own, **{name: _made(one, given) for name, one in nested.items()})  # pyright: ignore[reportArgumentType]
