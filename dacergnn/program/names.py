"""Names of arrays: words of Python and C++ and names of graph encodings are not allowed."""

from __future__ import annotations

import keyword

from dacergnn.graph.spaces import ROW_SPACES, is_encoding

_CPP_WORDS = """
alignas alignof asm auto bool case catch char concept const consteval constexpr constinit default delete do double
enum explicit export extern float friend goto inline int long mutable namespace new noexcept nullptr operator private
protected public register requires short signed sizeof static struct switch template this throw typedef typeid
typename union unsigned using virtual void volatile wchar_t
"""
_RESERVED = frozenset((*_CPP_WORDS.split(), *keyword.kwlist))


def name_problem(name: str) -> str | None:
    """Returns why an array cannot have this name, as a sentence with the remedy; None if it can."""
    if not name.isidentifier() or not name.isascii() or name.startswith("_"):
        return f'"{name}" cannot name an array; names consist of letters, digits and _, and start with a letter'
    if name in _RESERVED:
        return f'"{name}" is a word of Python or C++; choose another name'
    if is_encoding(name):
        return f'"{name}" reads like a graph encoding; choose a name that does not start with {name.split("_")[0]}_'
    return None


def sdfg_name(name: str) -> str:
    """Returns the name of an array in SDFGs, where names of row spaces are symbols, which no array can have."""
    return f"{name}_" if name in ROW_SPACES else name
