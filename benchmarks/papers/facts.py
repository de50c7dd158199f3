"""Reads the numbers that papers give, which are typed in with their places (`facts/*.toml`)."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True)
class Fact:
    """Holds a number of a paper.

    Args:
        key: Name of the number, which `Found.summary` uses, too; "" if nothing here compares with it.
        what: What the number is.
        value: The number; for a range or a list, its text.
        place: Where the paper gives it.
    """

    key: str
    what: str
    value: float | str
    place: str


@dataclass(frozen=True)
class Paper:
    """Holds the facts of a paper.

    Args:
        title: Its title and venue.
        machine: The machine that it was measured on.
        facts: Its numbers, by figure or table.
    """

    title: str
    machine: str
    facts: dict[str, tuple[Fact, ...]]


@cache
def paper_facts(name: str) -> Paper:
    """Returns the facts of a paper, by the name of its command."""
    text = (files("benchmarks.papers") / "facts" / f"{name}.toml").read_text()
    content = tomllib.loads(text)
    facts = {
        key: tuple(Fact(f.get("key", ""), f["what"], f["value"], f["place"]) for f in part["facts"])
        for key, part in content.items()
        if isinstance(part, dict)
    }
    return Paper(content["title"], content["machine"], facts)
