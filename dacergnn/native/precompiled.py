"""Keeps the headers of kernels in compiled form, one for each compiler and its flags, which builds read in no time.

They are entries of the build cache. A compiled header changes nothing but the time of a build: where it cannot be made,
or g++ refuses it, builds read the headers themselves.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from threading import Lock

from dacergnn.errors import DacergnnError
from dacergnn.native import cache

KERNELS = "include/dacergnn/kernels.h"
"""The name by which generated code includes all headers of kernels."""
_NAME = "headers"
_COMPILED = "kernels.h.gch"
_KEPT = 8
"""Number of entries that are kept, the latest, since each has some 30 MB."""
_lock = Lock()
_known: dict[tuple[Path, str], Path | None] = {}
"""Compiled headers by the folder of the cache and their key; None where there are none."""
log = logging.getLogger("dacergnn.build")


def _renew() -> None:
    """Replaces the lock, which another thread may have held when this process was forked."""
    global _lock
    _lock = Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


def reads_kernels(code: str) -> bool:
    """Tells whether code includes the headers of kernels before other ones of ours, which may say how to read them."""
    return code.partition('"include/dacergnn/')[2].startswith("kernels.h")


def options(key: str, compile_header: Callable[[Path], bool]) -> list[str]:
    """Returns the options by which g++ reads the compiled headers first; none where there are none.

    Args:
        key: A hash of all that they depend on.
        compile_header: Compiles `KERNELS` to a file, and returns whether that worked.
    """
    place = cache.cache_folder(), key
    with _lock:  # programs that are built at the same time wait for the same headers
        found = _known.get(place)
        if place not in _known or (found is not None and not found.is_file()):  # others may have cleared the cache
            found = _known[place] = _find(key, compile_header)
    return [] if found is None else ["-include", str(found.with_suffix(""))]


def refuse(key: str) -> None:
    """Lets later builds of this process do without the compiled headers of a key."""
    _known[cache.cache_folder(), key] = None


def _find(key: str, compile_header: Callable[[Path], bool]) -> Path | None:
    def build(folder: Path) -> None:
        if not compile_header(folder / _COMPILED):
            raise DacergnnError("the compiler does not do it.")

    try:
        found = cache.lookup(key, _NAME, _COMPILED)
        if found is None:
            found = cache.store(key, _NAME, build, _COMPILED)
            cache.keep_latest(_COMPILED, _KEPT)
    except DacergnnError as error:
        log.info("the headers of kernels are not compiled ahead: %s", error)
        return None
    return found
