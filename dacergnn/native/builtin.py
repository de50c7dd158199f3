"""Makes built-in functions of Python from C functions; calls cost less than with ctypes, which converts arguments."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

_FASTCALL = 0x80  # METH_FASTCALL: the function takes its owner, an array of objects and their number


class _MethodDef(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


_new_function = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.POINTER(_MethodDef), ctypes.py_object, ctypes.py_object)(
    ("PyCFunction_NewEx", ctypes.pythonapi)
)


def builtin(library: ctypes.CDLL, name: str, owner: object = None) -> Callable[..., Any]:
    """Returns the built-in function for ``void *name(void *owner, void *const *arguments, ptrdiff_t count)`` of a
    library.

    It runs under Python's lock, and returns a new reference.
    """
    address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    definition = _MethodDef(name.encode(), address, _FASTCALL, None)
    return _new_function(definition, owner, definition)  # has its definition for a module, and so keeps it alive
