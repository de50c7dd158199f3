"""Lists the papers, and the figures and tables of each that can be measured here."""

from __future__ import annotations

from importlib import import_module

from benchmarks.papers.artefact import Artefact
from dacergnn.errors import DacergnnError

PAPERS = ("hector", "pigeon", "cor", "zhang", "singh", "ablation")
"""Names of the papers, which are names of modules as well; the last one is what each of our own passes gains."""


def artefacts(paper: str) -> dict[str, Artefact]:
    """Returns the figures and tables of a paper by name, such as "figure 8"."""
    return import_module(f"benchmarks.papers.{paper}").ARTEFACTS


def chosen(paper: str, figures: tuple[int, ...], tables: tuple[int, ...]) -> dict[str, Artefact]:
    """Returns figures and tables by their numbers; all, if there are no numbers.

    Raises:
        DacergnnError: The paper has no such figure or table, or it cannot be measured.
    """
    every = artefacts(paper)
    names = [f"figure {n}" for n in figures] + [f"table {n}" for n in tables]
    for name in names:
        if name not in every:
            kind, _, number = name.partition(" ")
            known = ", ".join(every)
            raise DacergnnError(f"{kind}={number}: {paper} has none that can be measured; choose from {known}.")
    return {name: every[name] for name in names} if names else every
