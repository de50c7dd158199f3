"""Names of arrays: words of Python and C++ and names of graph encodings are not allowed."""

from __future__ import annotations

import keyword
import re

from dacergnn.graph.spaces import ROW_SPACES, is_encoding

_CPP_WORDS = """
alignas alignof and and_eq asm auto bitand bitor bool case catch char char8_t char16_t char32_t co_await co_return
co_yield compl concept const consteval const_cast constexpr constinit decltype default delete do double dynamic_cast
enum explicit export extern false float friend goto inline int long mutable namespace new noexcept not not_eq nullptr
operator or or_eq private protected public register reinterpret_cast requires short signed sizeof static static_assert
static_cast struct switch template this thread_local throw true typedef typeid typename union unsigned using virtual
void volatile wchar_t xor xor_eq
"""
_MACROS = """
BIG_ENDIAN BYTE_ORDER BUFSIZ EOF INFINITY LITTLE_ENDIAN MATH_ERREXCEPT MATH_ERRNO MAXFLOAT MB_CUR_MAX NAN NFDBITS NULL
PDP_ENDIAN RAND_MAX SIZE_MAX SIZE_WIDTH WCONTINUED WEXITED WNOHANG WNOWAIT WSTOPPED WUNTRACED alloca assert errno
issubnormal linux math_errhandling offsetof stderr stdin stdout unix
"""
_FAMILIES = re.compile(
    r"EXIT_|FD_|FP_|HUGE_VAL|M_\d?_?(E|LN|LOG|PI|SQRT)|SNAN|U?INT(\d+|MAX|PTR|_FAST|_LEAST)|W?(INT|CHAR)_M|W(INT|CHAR)_W"
    r"|PTRDIFF_|SIG_ATOMIC_|W(IF|EXIT|STOP|TERM)[A-Z]+$|(be|htobe|htole|le)(16|32|64)|DACE"
)
"""Beginnings of names of macros in headers of C."""
_RESERVED = frozenset((*_CPP_WORDS.split(), *keyword.kwlist))


def name_problem(name: str) -> str | None:
    """Returns why an array cannot have this name, as a sentence with the remedy; None if it can."""
    if not name.isidentifier() or not name.isascii() or name.startswith("_"):
        return f'"{name}" cannot name an array; names consist of letters, digits and _, and start with a letter'
    if name in _RESERVED:
        return f'"{name}" is a word of Python or C++; choose another name'
    if name in _MACROS.split() or _FAMILIES.match(name):
        return f'"{name}" is a macro in headers of C; choose another name'
    if is_encoding(name):
        return f'"{name}" reads like a graph encoding; choose a name that does not start with {name.split("_")[0]}_'
    return None


def sdfg_name(name: str) -> str:
    """Returns the name of an array in SDFGs, where names of row spaces are symbols, which no array can have."""
    return f"{name}_" if name in ROW_SPACES else name
