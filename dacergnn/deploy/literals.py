"""Texts and bytes as literals of C++."""

from __future__ import annotations

_MOST = 4000
"""The most letters of a literal; compilers need not take longer ones, but they join literals."""


def literal(text: str | bytes) -> str:
    """Returns a text, or bytes, as a literal of C++, in pieces that every compiler takes."""
    letters = [_letter(value) for value in (text.encode() if isinstance(text, str) else text)]
    pieces = ["".join(letters[i : i + _MOST]) for i in range(0, len(letters), _MOST)] or [""]
    return "\n".join(f'"{piece}"' for piece in pieces)


def _letter(value: int) -> str:
    letter = chr(value)
    return letter if 32 <= value < 127 and letter not in '"\\?' else f"\\{value:03o}"
