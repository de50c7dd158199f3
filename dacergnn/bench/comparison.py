"""Compares a model with the same model compiled, and caching strategies with each other, in times and memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from dacergnn.bench.environment import load, write_run
from dacergnn.bench.measure import MODES
from dacergnn.bench.picture import Panel, picture, save
from dacergnn.bench.runner import Limits, measure
from dacergnn.bench.scatter import Ratio, noted, ratio_cell, time_cell
from dacergnn.bench.strategies import ORIGINAL, Strategies
from dacergnn.bench.subject import Subject
from dacergnn.config import Config
from dacergnn.errors import DacergnnError
from dacergnn.json_lines import Row
from dacergnn.tables import Table


@dataclass(frozen=True)
class Comparison:
    """Holds a row for each candidate, the original first, and what was asked for.

    Attributes:
        rows: Status, times by mode, peak memory, the bytes that are saved for a backward, and the error.
        about: The subject, the number of threads, and the load of the machine before.
    """

    title: str
    rows: Sequence[Row]
    modes: Sequence[str]
    about: Row

    @property
    def ok(self) -> bool:
        """Tells whether all candidates are right."""
        return all(row["status"] == "ok" for row in self.rows)

    def text(self) -> str:
        """Returns the candidates as a table; gains are the original over a candidate."""
        measures = {f"{mode}_ms": f"{mode} ms" for mode in self.modes} | {"peak_mb": "peak MB"}
        columns = [heading for name in measures.values() for heading in (name, "gain")]
        headings = ("candidate", *columns, "saved MB", "error", "note")
        table = Table(f"{self.title}: gains are the original over a candidate", headings, words=("note",))
        for row in self.rows:
            cells: list[str] = []
            for field in measures:
                gain = Ratio.of(self.rows[0], row, field)
                cells += [time_cell(row, field), ratio_cell(gain)]
            note = row["note"] if row["status"] == "ok" else f"{row['status']}: {row['note']}"
            table.add_row(row["candidate"], *cells, time_cell(row, "saved_mb"), time_cell(row, "max_error"), note)
        return noted(table).text()

    def write(self, path: Path) -> None:
        """Appends the rows to a file of JSON lines, after a line on machine, versions, commit and command."""
        write_run(path, self.rows, **self.about)

    def plot(self, path: Path) -> None:
        """Draws times and peaks of memory side by side, as .png, .svg or .pdf.

        Raises:
            DacergnnError: matplotlib is not installed, or does not know the format.
        """
        names = [row["candidate"] for row in self.rows]
        times = {mode: [row.get(f"{mode}_ms") for row in self.rows] for mode in self.modes}
        peaks = {"peak MB of a training step": [row.get("peak_mb") for row in self.rows]}
        panels = [Panel("time", times, names, unit="ms"), Panel("memory", peaks, names, unit="MB")]
        save(picture(panels, self.title, what="a plot of candidates"), path)


def compare(
    subject: Subject,
    strategies: Sequence[str] = ("cache_all",),
    *,
    modes: Sequence[str] = MODES,
    threads: int = 2,
    repeat: int = 30,
    budget_s: float = 10.0,
    memory: bool = True,
    plan: str = "",
    progress: Callable[[str], None] = lambda line: None,
) -> Comparison:
    """Measures the original and the compiled model by each strategy, in turns, in processes of their own.

    Args:
        strategies: Values of `Config.caching`.
        modes: "infer" for a forward without gradients, "train" for a forward and a backward.
        repeat: The most rounds of the measurement.
        budget_s: Seconds for the rounds of one candidate.
        memory: Whether peaks of memory are measured, each in a process of its own.
        plan: A plan to compile by, as JSON; "" for none.
        progress: Called with a line that says what is being done.

    Raises:
        DacergnnError: A strategy or a mode is unknown, or no candidate runs.
    """
    for mode in modes:
        if mode not in MODES:
            raise DacergnnError(f"mode={mode!r} is not one of {', '.join(MODES)}.")
    candidates = [ORIGINAL, *(Config(caching=strategy).caching for strategy in strategies)]
    limits = Limits(tuple(modes), threads, repeat, budget_s, device=subject.device)
    before = load()
    weighed = candidates if memory else ()
    found = measure(Strategies(subject, plan), candidates, limits, weighed=weighed, progress=progress)
    if all(row["status"] == "failed" for row in found.values()):
        raise DacergnnError(f"{subject}: {found[ORIGINAL]['note']}")
    rows: list[Row] = [{"candidate": name, **row} for name, row in found.items()]
    return Comparison(
        str(subject), rows, tuple(modes), {"subject": asdict(subject), "threads": threads, "plan": plan, "load": before}
    )
