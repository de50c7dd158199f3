"""Remembers classes that are made of users' ones, for as long as somebody uses them."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import TypeVarTuple

from torch import nn

_Options = TypeVarTuple("_Options")


def made_once(
    make: Callable[[type[nn.Module], *_Options], type[nn.Module]],
) -> Callable[[type[nn.Module], *_Options], type[nn.Module]]:
    """Returns a function that makes a class of a class and options, unless one that it made of them is in use.

    Classes that users make in functions and notebooks go when they drop them, and what was made of them goes, too.
    """
    known: weakref.WeakKeyDictionary[type, dict[object, weakref.ref[type[nn.Module]]]] = weakref.WeakKeyDictionary()

    @functools.wraps(make)
    def found(base: type[nn.Module], *options: *_Options) -> type[nn.Module]:
        of_base = known.setdefault(base, {})
        reference = of_base.get(options)
        derived = None if reference is None else reference()
        if derived is None:
            derived = make(base, *options)
            of_base[options] = weakref.ref(derived)
        return derived

    return found
