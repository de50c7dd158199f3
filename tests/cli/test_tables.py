"""Tables in terminals of any width: no number is cut, whatever has to give way."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from dacergnn.cli.bars import progress_bar
from dacergnn.tables import Table, terminal_width

NUMBERS = ("1,234,567.891", "0.000123*", "98.7%", "12 (3), 4 left out")


def made(**options: object) -> Table:
    table = Table("Times", ("name of it", "does", "ms", "MB", "share", "ratio / ours"), words=("does",), **options)  # type: ignore[arg-type]
    table.add_row("a name", "e.dst['out'] += e['norm'] * linear(e.src['x'], W[e.etype])", *NUMBERS)
    table.add_section()
    table.add_row("all", "", "2")
    table.add_note("A note on what is above, which is longer than a narrow terminal.")
    return table


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("extra", [(), ("does",), ("does", "MB")])
@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_numbers_are_whole_at_any_width(width: int, extra: tuple[str, ...], wide: bool) -> None:
    text = made(extra=extra).text(width, wide=wide)
    assert max(map(len, text.splitlines())) <= width
    for number, heading in zip(NUMBERS, ("ms", "MB", "share", "ours"), strict=True):
        assert (number in text) == (wide or width == 200 or heading not in extra)
    assert ("Left out for want of room" in text.replace("\n", " ")) == (bool(extra) and not wide and width < 200)


def test_words_are_folded_and_the_keys_are_repeated() -> None:
    assert [line.partition(" ")[0] for line in made().text(40).splitlines()].count("all") == 3
    assert " ".join(made().text(80).split()).count("linear(e.src['x'],") == 1


def test_the_width_is_the_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert terminal_width() == 80
    assert max(map(len, str(made()).splitlines())) <= 80
    monkeypatch.setenv("COLUMNS", "3")
    assert terminal_width() == 40


def test_a_table_in_markdown() -> None:
    table = Table("not shown", ("name", "ms", "note"), words=("note",), rows=[("a", "1.0", "here")])
    table.add_section()
    table.add_row("b")
    assert table.markdown().splitlines() == [
        "| name | ms | note |",
        "|---|---:|---|",
        "| a | 1.0 | here |",
        "| b |  |  |",
    ]


def test_a_progress_bar_folds_words_and_keeps_numbers() -> None:
    file = StringIO()
    with progress_bar(Console(file=file, width=60, force_terminal=True, no_color=True)) as bar:
        bar.add_task(
            "rgcn on aifb, infer: building and validating pyg HeteroConv(SAGEConv) CSR", total=120, completed=37
        )
    shown = file.getvalue()
    assert "37/120" in shown
    assert "0:00:00 -:--:--" in shown
    assert "…" not in shown
