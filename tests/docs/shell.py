"""Checks command lines of the documentation without running them."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import re
import runpy
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click

from benchmarks.commands import main as laboratory
from dacergnn.cli import main
from dacergnn.config import TYPICAL_RATES

ROOT = Path(__file__).resolve().parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
OTHERS = {"cd", "chmod", "code", "export", "git", "xz"}
"""Programs whose arguments are not looked at."""
FILE = re.compile(r"[\w/-]+\.(jsonl?|npz|sdfg)")


def lines(block: str) -> Iterator[list[str]]:
    """Yields the words of each command of a block, without comments and variables in front of the program.

    A block with prompts holds output, too, which is left out.
    """
    text = block.replace("\\\n", " ")
    found = text.splitlines()
    prompted = [line[2:] for line in found if line.startswith("$ ")]
    for line in prompted or found:
        words = shlex.split(line, comments=True)
        while words and re.match(r"[A-Z_]+=", words[0]):
            words.pop(0)
        if words:
            yield words


def check(words: list[str]) -> None:
    """Raises AssertionError, or an error of click, if a command line asks for something that there is not."""
    program, *arguments = words
    program = program.removeprefix(".venv/bin/")
    if program == "dacergnn":
        parse(main, arguments)
    elif program in ("python", "python3") and arguments[0] == "-c":
        compile(arguments[1], "-c", "exec")
    elif program in ("python", "python3"):
        check_python(arguments)
    elif program == "make":
        check_make(arguments)
    elif program in ("pip", "pytest"):
        check_paths(program, arguments)
    elif program.startswith("scripts/"):
        check_options(ROOT / program, arguments)
    else:
        assert program in OTHERS, f"{program} is no program that the documentation knows"


def parse(command: click.Command, arguments: list[str], parent: click.Context | None = None) -> None:
    """Parses arguments as a command of click does, and runs nothing.

    There need not be a device, nor the files that an earlier command of the page would write.
    """
    arguments = ["cpu" if word == "cuda" else word for word in arguments]
    arguments = [str(ROOT / word) if "/" in word and (ROOT / word).exists() else word for word in arguments]
    for option, file in itertools.pairwise([command.name or "", *arguments]):
        if option == "--rates":
            TYPICAL_RATES["cpu"].save(file)
        elif FILE.fullmatch(file):
            Path(file).parent.mkdir(parents=True, exist_ok=True)
            Path(file).write_text("{}")
        elif file == "folder":
            Path(file).mkdir(exist_ok=True)
    if isinstance(command, click.Group) and arguments and not arguments[0].startswith("-"):
        context = click.Context(command, parent)
        _, found, rest = command.resolve_command(context, arguments)
        assert found is not None
        return parse(found, rest, context)
    with contextlib.suppress(click.exceptions.Exit):  # --help
        command.make_context(command.name, [*arguments], parent)
    return None


def check_python(arguments: list[str]) -> None:
    """Checks a module, or a script in a folder of the repository; one without a folder is the reader's own."""
    name, *options = arguments
    if name != "-m":
        return check_script(ROOT / name, options) if "/" in name else None
    name, *options = options
    if name in ("dacergnn", "pip", "pytest"):
        return check([name, *options])
    if name == "benchmarks":
        return parse(laboratory, options)
    spec = importlib.util.find_spec(name)
    assert spec is not None, f"there is no module {name}"
    path = Path(spec.origin or "")
    return check_script(path, options) if path.parent.parent == ROOT else None


def check_script(path: Path, options: list[str]) -> None:
    assert path.is_file(), f"there is no {path}"
    if "@click.command" not in path.read_text():
        return check_options(path, options)
    commands = [value for value in runpy.run_path(str(path)).values() if isinstance(value, click.Command)]
    return parse(commands[-1], options)


def check_options(path: Path, arguments: list[str]) -> None:
    """Holds the options of a script without click against its text."""
    text = path.read_text()
    for option in (word.partition("=")[0] for word in arguments if word.startswith("--")):
        assert re.search(rf"(?<![\w-]){option}(?![\w-])", text), f"{path.name} has no option {option}"


def check_make(arguments: list[str]) -> None:
    text = (ROOT / "Makefile").read_text()
    for word in arguments:
        name, equals, _ = word.partition("=")
        known = re.search(rf"\b{name}( \?=|\))" if equals else rf"^{name}:", text, re.MULTILINE)
        assert known, f"the Makefile has no {name}"


def check_paths(program: str, arguments: list[str]) -> None:
    """Checks extras that pip is to install, and files and folders that pytest is to run."""
    for word in arguments:
        extras = re.fullmatch(r"(?:dacergnn|\.)\[([\w,-]+)\]", word)
        if program == "pip" and extras:
            unknown = set(extras[1].split(",")) - set(EXTRAS)
            assert not unknown, f"the package has no extras {unknown}"
        if program == "pytest" and "/" in word:
            assert (ROOT / word.partition("::")[0]).exists(), f"there is no {word}"
