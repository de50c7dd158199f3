"""Reads the rows of candidates that were measured together; only such rows compare."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from benchmarks.named import Named
from dacergnn.bench.scatter import Ratio
from dacergnn.json_lines import Row

OURS = "ours"
"""The library of our candidates."""


@dataclass(frozen=True)
class Group:
    """Holds the rows of one measurement: all candidates of a case."""

    rows: tuple[Row, ...]

    def __getitem__(self, field: str) -> Any:
        """Returns what all rows share: the model, the graph, the mode."""
        return self.rows[0][field]

    @property
    def ours(self) -> list[Row]:
        """Returns our rows that are right."""
        return [row for row in self.rows if row["library"] == OURS and row["status"] == "ok"]

    @property
    def failed(self) -> dict[str, str]:
        """Returns why candidates have no time."""
        return {label(row): row["note"] for row in self.rows if row["status"] != "ok"}

    @property
    def times(self) -> dict[str, float]:
        """Returns the milliseconds of ours by name."""
        return {row["name"]: row["ms"] for row in self.ours}

    def named(self, name: str) -> Row | None:
        """Returns our row of a name."""
        return next((row for row in self.ours if row["name"] == name), None)

    def peers(self, *kinds: str, replayed: bool = False) -> list[Row]:
        """Returns the right rows of others.

        Args:
            kinds: Libraries, or "compiled" for libraries through torch.compile; all, if none are named.
            replayed: Whether replayed steps are among them.
        """
        others = (row for row in self.rows if row["library"] != OURS and row["status"] == "ok")
        return [
            row for row in others
            if (not kinds or kind_of(row) in kinds) and (replayed or not row.get("replayed"))
        ]  # fmt: skip

    def speedup(self, own: Row | None, field: str = "ms", *kinds: str) -> Ratio | None:
        """Returns the least value of the peers over one of ours; replayed steps compare with a replayed one alone."""
        return relative(least(self.peers(*kinds, replayed=bool((own or {}).get("replayed"))), field), own, field)

    def ratio(self, over: str, under: str, field: str = "ms") -> Ratio | None:
        """Returns the value of one of ours over that of another one, by their names."""
        return relative(self.named(over), self.named(under), field)


def grouped(rows: Iterable[Row], *fields: str) -> list[Group]:
    """Returns the rows by their measurement, in order: by these fields, or by the "group" of `run_cases`."""
    by_key: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        by_key.setdefault(tuple(row.get(name) for name in fields or ("group",)), []).append(row)
    return [Group(tuple(members)) for members in by_key.values()]


def flat(row: Row) -> list[Row]:
    """Returns the rows of a record; records of before hold a case of the relational suite, with its candidates."""
    if "candidates" not in row:
        return [row]
    case = {key: value for key, value in row.items() if key not in ("case", "candidates")} | row["case"]
    case |= {"group": json.dumps(row["case"]), "tried_compiled": row["compiled"], "tried_memory": row["memory"]}
    return [case | own | {"base": Named(own["library"], own["name"]).base.name} for own in row["candidates"]]


def least(rows: Iterable[Row], field: str) -> Row | None:
    """Returns the row with the smallest value of a field, among the rows that have one."""
    return min((row for row in rows if row.get(field) is not None), key=lambda row: row[field], default=None)


def relative(row: Row | None, base: Row | None, field: str) -> Ratio | None:
    """Returns a row's value over another's; None where one of both is not known."""
    return None if row is None or base is None else Ratio.of(row, base, field)


def kind_of(row: Row) -> str:
    """Returns the library of a candidate; "compiled" for its layers through torch.compile."""
    return "compiled" if row.get("compiled") else row["library"]


def label(row: Row) -> str:
    """Returns the name of a candidate; those of others begin with their library."""
    return row["name"] if row["library"] == OURS else f"{row['library']} {row['name']}".strip()
