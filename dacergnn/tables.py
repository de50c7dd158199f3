"""Prints tables that fit the terminal, or writes them as Markdown.

Words are folded, numbers stay whole. Columns that do not fit follow below, or are left out.
"""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Collection, Iterable, Sequence
from itertools import zip_longest

PIPE = 200
"""Columns of what is no terminal; the variable COLUMNS counts before it."""
_GAP = "  "
_WORD = 24
"""Words up to this length are not broken."""
_TEXT = 40
"""A column of words that may be left out is so before it gets narrower."""


def terminal_width() -> int:
    """Returns the columns of the terminal, 40 at least."""
    return max(shutil.get_terminal_size((PIPE, 24)).columns, 40)


class Table:
    """Holds rows of text below headings; ``print`` it, or take its `text` or `markdown`.

    Args:
        title: The first line; may be empty.
        headings: Names of the columns.
        keys: Number of first columns that name a row, and are repeated where a table continues below.
        words: Headings of columns that hold words; by default those of the keys. All others hold numbers.
        extra: Headings of columns that are left out where the table is too wide.
        rows: The first rows.
    """

    def __init__(
        self, title: str, headings: Sequence[str], keys: int = 1, *, words: Iterable[str] = (),
        extra: Collection[str] = (), rows: Iterable[Sequence[str]] = (),
    ) -> None:  # fmt: skip
        self.title, self.headings, self.keys = title, list(headings), keys
        self.words = {*headings[:keys], *words}
        self.extra = extra
        self.rows: list[tuple[str, ...]] = []
        """Cells of each row; a row without any is a line between sections."""
        self.notes: list[str] = []
        for row in rows:
            self.add_row(*row)

    def add_row(self, *cells: str) -> None:
        """Adds a row; what it lacks at its end is empty."""
        self.rows.append((*cells, *[""] * (len(self.headings) - len(cells))))

    def add_section(self) -> None:
        """Draws a line between the rows before and after."""
        self.rows.append(())

    def add_note(self, note: str) -> None:
        """Writes a sentence below the table, once."""
        if note not in self.notes:
            self.notes.append(note)

    def text(self, width: int | None = None, *, wide: bool = False) -> str:
        """Returns the table in lines of a width, by default the terminal's; no number is ever cut.

        Args:
            wide: Whether no column is left out: those that do not fit follow below, with the keys again.
        """
        width = width or terminal_width()
        shown, notes = [*range(len(self.headings))], list(self.notes)
        needed = self._least(shown) + sum(self._more_for_text(column) for column in shown)
        if not wide and self.extra and needed > width:
            left = [name for name in self.headings if name in self.extra]
            shown = [column for column in shown if self.headings[column] not in self.extra]
            notes.append(f"Left out for want of room: {', '.join(left)}; a wider terminal or --wide shows them.")
        lines = textwrap.wrap(self.title, width)
        for block in self._blocks(shown, width):
            lines += [*self._lines(block, self._widths(block, width)), ""]
        return "\n".join([*lines[:-1], *(line for note in notes for line in textwrap.wrap(note, width))])

    def __str__(self) -> str:
        return self.text()

    def markdown(self) -> str:
        """Returns the headings and rows in Markdown, with numbers to the right."""
        marks = ("---" if heading in self.words else "---:" for heading in self.headings)
        rows = [f"| {' | '.join(cells)} |" for cells in (self.headings, *filter(None, self.rows))]
        return "\n".join([rows[0], f"|{'|'.join(marks)}|", *rows[1:]])

    def _cells(self, column: int) -> list[str]:
        return [row[column] for row in self.rows if row]

    def _least_of(self, column: int) -> int:
        """Returns the columns that a column of the table needs: its longest number, or its longest word."""
        heading = max(map(len, _words(self.headings[column])), default=0)
        words = self.headings[column] in self.words
        pieces = (piece for cell in self._cells(column) for piece in (cell.split() if words else [cell]))
        longest = max(map(len, pieces), default=0)
        return max(heading, min(longest, _WORD) if words else longest)

    def _least(self, columns: Sequence[int]) -> int:
        return sum(map(self._least_of, columns)) + len(_GAP) * (len(columns) - 1)

    def _more_for_text(self, column: int) -> int:
        if self.headings[column] not in self.words.intersection(self.extra):
            return 0
        return max(min(self._most_of(column), _TEXT) - self._least_of(column), 0)

    def _most_of(self, column: int) -> int:
        return max((len(line) for cell in self._cells(column) for line in cell.splitlines()), default=0)

    def _blocks(self, columns: Sequence[int], width: int) -> list[list[int]]:
        """Divides columns into parts that fit the width, each of which begins with the keys."""
        keys, *others = list(columns[: self.keys]), *columns[self.keys :]
        blocks = [[*keys]]
        for column in others:
            if len(blocks[-1]) > len(keys) and self._least([*blocks[-1], column]) > width:
                blocks.append([*keys])
            blocks[-1].append(column)
        return blocks

    def _widths(self, columns: Sequence[int], width: int) -> list[int]:
        """Returns the width of each column: as wide as its cells, but for headings and words that have to be folded."""
        least = [self._least_of(column) for column in columns]
        widths = [max(low, self._most_of(column)) for low, column in zip(least, columns, strict=True)]
        room = width - len(_GAP) * (len(widths) - 1)
        unfolded = [max(own, len(self.headings[column])) for own, column in zip(widths, columns, strict=True)]
        if sum(unfolded) <= room:
            return unfolded
        while sum(widths) > room:
            foldable = [place for place, low in enumerate(least) if widths[place] > low]
            if not foldable:
                break
            widths[max(foldable, key=lambda place: widths[place])] -= 1
        return widths

    def _lines(self, columns: Sequence[int], widths: Sequence[int]) -> list[str]:
        left = [self.headings[column] in self.words for column in columns]
        heads = [_folded(" ".join(_words(self.headings[c])), w) for c, w in zip(columns, widths, strict=True)]
        depth = max(map(len, heads))
        rule = "─" * (sum(widths) + len(_GAP) * (len(widths) - 1))
        lines = [*_side_by_side([[""] * (depth - len(head)) + head for head in heads], widths, left), rule]
        for row in self.rows:
            cells = [_folded(row[c], w) for c, w in zip(columns, widths, strict=True)] if row else []
            lines += _side_by_side(cells, widths, left) if row else [rule]
        return lines


def _words(heading: str) -> list[str]:
    """Returns the words of a heading; what a ratio divides by keeps its sign."""
    return heading.replace("/ ", "/\u00a0").split(" ")


def _folded(cell: str, width: int) -> list[str]:
    return [part for line in cell.splitlines() for part in textwrap.wrap(line, width, break_on_hyphens=False)]


def _side_by_side(cells: Sequence[Sequence[str]], widths: Sequence[int], left: Sequence[bool]) -> list[str]:
    lines = zip_longest(*cells, fillvalue="")
    aligned = (
        [text.ljust(w) if words else text.rjust(w) for text, w, words in zip(line, widths, left, strict=True)]
        for line in lines
    )
    return [_GAP.join(line).rstrip() for line in aligned]
