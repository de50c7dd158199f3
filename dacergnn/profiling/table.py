"""Prints profiles as tables."""

from __future__ import annotations

import textwrap
from itertools import groupby
from typing import TYPE_CHECKING

from dacergnn.bench.bound import BEATEN
from dacergnn.bench.scatter import NOTE, marked
from dacergnn.tables import Table, terminal_width

if TYPE_CHECKING:
    from dacergnn.profiling.result import OperatorProfile

WIDTH = 120
"""Columns of the table at the most: longer lines are hard to read."""
_HEADINGS = ("operator", "kind", "does", "ms", "GFLOP/s", "GB/s", "roofline")


def text(profile: OperatorProfile, *, wide: bool = False) -> str:
    """Returns a table of operators, the sums of programs, the time of the call, and what limits it.

    Args:
        wide: Whether what operators do is told on narrow terminals, too.
    """
    width = min(terminal_width(), WIDTH)
    table = Table("", _HEADINGS, words=("kind", "does"), extra=("does",))
    for (role, place), members in groupby(profile.operators, lambda operator: (operator.role, operator.place)):
        operators = [*members]
        runs = f", {operators[0].runs} runs" if operators[0].runs > 1 else ""
        total = sum(operator.ms for operator in operators)
        if table.rows:
            table.add_section()
        table.add_row(role, place + runs, "", f"{total:.3f}")
        for one in operators:
            figures = (
                marked(f"{one.ms:.3f}", one.scatters),
                f"{one.gflops:.1f}",
                f"{one.gbytes:.1f}",
                f"{one.roofline:.0%}",
            )
            table.add_row(", ".join(one.results), one.kind, "\n".join(one.statements), *figures)
    table.add_section()
    table.add_row("all", "", "", f"{profile.ms:.3f}", "", "", f"{profile.roofline:.0%}")
    call = marked(f"{profile.call_ms:.3f}", profile.call_scatters)
    if profile.ms <= profile.call_ms:
        share = f"its operators, {profile.ms / profile.call_ms:.1%} of that"
    else:
        share = f"its operators, measured apart with clocks between them, sum to {profile.ms:.3f} ms"
    notes = [f"The call takes {call} ms; {share}."]
    if profile.call_scatters or any(one.scatters for one in profile.operators):
        notes.append(NOTE)
    if any(one.roofline > 1 for one in profile.operators):
        notes.append(f"Above 100 %: {BEATEN}.")
    notes.append(profile.verdict)
    return "\n".join([table.text(width, wide=wide), "", *(textwrap.fill(note, width) for note in notes)])
