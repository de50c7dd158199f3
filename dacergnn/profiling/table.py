"""Prints profiles as tables."""

from __future__ import annotations

from io import StringIO
from itertools import groupby
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dacergnn.bench.scatter import NOTE, marked

if TYPE_CHECKING:
    from dacergnn.profiling.result import OperatorProfile

WIDTH = 120
"""Columns of the table."""
_HEADINGS = ("operator", "kind", "does", "ms", "GFLOP/s", "GB/s", "roofline")


def text(profile: OperatorProfile) -> str:
    """Returns a table of operators, the sums of programs, the time of the call, and what limits it."""
    table = Table(box=box.SIMPLE, pad_edge=False)
    for heading in _HEADINGS:
        words = heading in _HEADINGS[:3]
        table.add_column(heading, justify="left" if words else "right", overflow="fold", no_wrap=not words)
    for (role, place), members in groupby(profile.operators, lambda operator: (operator.role, operator.place)):
        operators = [*members]
        runs = f", {operators[0].runs} runs" if operators[0].runs > 1 else ""
        total = sum(operator.ms for operator in operators)
        table.add_section()
        table.add_row(role, "", escape(place + runs), f"{total:.3f}")
        for one in operators:
            figures = (
                marked(f"{one.ms:.3f}", one.scatters),
                f"{one.gflops:.1f}",
                f"{one.gbytes:.1f}",
                f"{one.roofline:.0%}",
            )
            table.add_row(", ".join(one.results), one.kind, escape("\n".join(one.statements)), *figures)
    table.add_section()
    table.add_row("all", "", "", f"{profile.ms:.3f}", "", "", f"{profile.roofline:.0%}")
    output = StringIO()
    console = Console(file=output, width=WIDTH, highlight=False)
    console.print(table)
    call = marked(f"{profile.call_ms:.3f}", profile.call_scatters)
    if profile.ms <= profile.call_ms:
        share = f"its operators, {profile.ms / profile.call_ms:.1%} of that"
    else:
        share = f"its operators, measured apart with clocks between them, sum to {profile.ms:.3f} ms"
    console.print(f"The call takes {call} ms; {share}.", markup=False)
    if profile.call_scatters or any(one.scatters for one in profile.operators):
        console.print(NOTE, markup=False)
    console.print(profile.verdict, markup=False)
    return "\n".join(line.rstrip() for line in output.getvalue().splitlines())
