"""Options are made from settings and parameters; cases are known by the fields of their rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
from click.testing import CliRunner

from benchmarks.options import question, settings
from benchmarks.suite import run_cases
from dacergnn.json_lines import Row


@dataclass(frozen=True)
class Bounds:
    """Bounds.

    Args:
        budget_s: Seconds
            of a case.
    """

    budget_s: float = 2.0
    most: int = 9


@dataclass(frozen=True)
class Chosen:
    """Settings.

    Args:
        models: Names.
        sizes: Numbers.
        memory: Peaks.
        bounds: No option, but those within.
    """

    models: tuple[str, ...] = ("a", "b")
    sizes: tuple[int, ...] = ()
    memory: bool = True
    bounds: Bounds = field(default_factory=Bounds)


def test_settings_have_options() -> None:
    found: list[Any] = []

    @click.command()
    @settings(Chosen, models="model")
    def measure(settings: Chosen) -> None:
        found.append(settings)

    options = ["--model", "c", "--sizes", "8,16", "--no-memory", "--budget", "1"]
    assert CliRunner().invoke(measure, options).exit_code == 0
    assert found == [Chosen(("c",), (8, 16), False, Bounds(1.0))]
    shown = " ".join(CliRunner().invoke(measure, ["--help"]).output.split())
    assert "Seconds of a case. [default: 2.0]" in shown
    assert "--most" not in shown, "it is not described"


def test_parameters_have_options() -> None:
    found: list[Any] = []

    @question(sizes=(3,), rounds=1)
    def measure(sizes: tuple[int, ...] = (), rounds: int = 5, table: Path | None = None) -> None:
        """Measure.

        Args:
            rounds: Runs of each.
        """
        found.append((sizes, rounds, table))

    assert CliRunner().invoke(measure, ["--quick", "--table", "x"]).exit_code == 0
    assert found == [((3,), 1, Path("x"))]
    assert CliRunner().invoke(measure, ["--rounds", "0"]).exit_code == 2
    shown = CliRunner().invoke(measure, ["--help"]).output
    assert "Runs of each." in shown
    assert "Args" not in shown


def test_a_case_is_known_if_all_its_rows_were_measured_together(tmp_path: Path) -> None:
    path, asked = tmp_path / "rows.jsonl", list[str]()

    def run(*names: str) -> list[Row]:
        def measured(case: str, _: object) -> list[Row]:
            asked.append("".join(names))
            return [{"case": case, "name": name, "extra": n} for name in names for n in range(2)]

        return run_cases(["c"], measured, path=path, fields=lambda c: [{"case": c, "name": n} for n in names])

    first = run("x", "y")
    assert run("x", "y") == first
    assert run("x") == first[:2]
    run("x", "z")
    run("y", "z")  # were measured apart
    assert asked == ["xy", "xz", "yz"]
