"""Makes the rows of candidates: a model on a graph in one mode."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from benchmarks.named import Named
from benchmarks.relational.settings import BenchSettings
from benchmarks.rows import OURS
from dacergnn.json_lines import Row

if TYPE_CHECKING:
    from benchmarks.relational.experiment import Layers


def fields_of(settings: BenchSettings, case: Layers, candidate: Named) -> Row:
    """Returns the fields by which the rows of a candidate and its variants are known."""
    about = {name: value for name, value in asdict(case).items() if name != "tiny"}
    about |= {"threads": settings.threads, "plan": settings.plan}
    return about | {"library": candidate.library, "base": candidate.base.name}


def row_of(candidate: Named, function: str, found: Row, mode: str) -> Row:
    """Returns what was found of a candidate, with times under the names that all modes have.

    Args:
        function: The reference function that it computes; "" for another one.
    """
    row: Row = {
        "name": candidate.name,
        "library": candidate.library,
        "compiled": candidate.compiled,
        "replayed": candidate.replayed,
        "function": "same" if function else "of comparable cost",
        "ms": None,
        "max_error": None,
        "peak_mb": None,
    }
    same = {"same_as": found["same_as"].name} if "same_as" in found else {}
    return row | {key.removeprefix(f"{mode}_"): value for key, value in found.items()} | same


def is_complete(settings: BenchSettings, row: Row) -> bool:
    """Tells whether a row has all that settings ask for; ours is measured again until it has a time."""
    asked = settings.compiled <= row["tried_compiled"] and settings.memory <= row["tried_memory"]
    return asked and (row["library"] != OURS or row["replayed"] or row["ms"] is not None)
