"""The build cache: holds shared libraries by content hash, is safe between processes, and rebuilds damaged entries.

It also holds compiled headers, which are entries like libraries, and plans: JSON files by a hash of the values that
they were computed from. Builds under way are folders of their own, locked by the process that makes them.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import platformdirs

from dacergnn.errors import CacheError
from dacergnn.native.cache_files import (
    claimed,
    holds,
    in_use,
    make_folder,
    readable,
    remove,
    share,
    total_size,
    work_folder,
    writable,
)
from dacergnn.native.trust import check_entry, check_folder

LIBRARY = "program.so"
_RECORD = "entry.json"
_PLAN = ".plan.json"
_UNDER_WAY = re.compile(r"(\w+_[0-9a-z]+|failed)\.\w{8}")
"""Names of what is not yet published: the name of the entry, and a suffix of `tempfile`."""
_OTHERS = ("failed.cpp", "failed.cu", "bench", "problems")
"""Names of what is kept besides builds and plans: code that a compiler has rejected, and folders of benchmarks."""
T = TypeVar("T")
log = logging.getLogger("dacergnn.cache")


@dataclass(frozen=True)
class Entry:
    """Describes a cached build or plan: its folder or file, the program's name, the size in bytes and the time when
    it was made."""

    path: Path
    name: str
    size: int
    made: float

    @classmethod
    def of(cls, path: Path) -> Entry:
        """Returns the entry at a path."""
        made = 0.0
        with suppress(OSError):  # other processes may remove it meanwhile
            made = path.lstat().st_mtime
        return cls(path, path.name.partition(".")[0].rsplit("_", 1)[0], total_size(path), made)


def cache_folder() -> Path:
    """Returns ``DACERGNN_CACHE_DIR``, else the user's cache directory.

    Raises:
        CacheError: It starts with the home of an unknown user.
    """
    configured = os.environ.get("DACERGNN_CACHE_DIR") or platformdirs.user_cache_dir("dacergnn")
    try:
        return Path(configured).expanduser()
    except RuntimeError as error:
        raise CacheError(
            f"The build cache is {configured!r}, but {error} Set DACERGNN_CACHE_DIR to a folder."
        ) from None


def _checksum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def lookup(key: str, name: str, made: str = LIBRARY) -> Path | None:
    """Returns the file ``made`` of an entry, or None if there is no entry; removes a damaged one.

    Raises:
        CacheError: The entry cannot be read, or others may have written it.
    """
    root = cache_folder()
    folder = root / f"{name}_{key}"
    with readable(folder):
        if not os.path.lexists(folder):
            return None
        check_folder(root)
        check_entry(folder, root)
        for file in (folder / _RECORD, folder / made):
            if os.path.lexists(file):
                check_entry(file, root)
        with suppress(FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError):
            record = json.loads((folder / _RECORD).read_text())
            if record["sha256"] == _checksum(folder / made):
                return folder / made
    log.warning("cache entry %s is damaged; building it again", folder)
    remove(folder)
    return None


def store(key: str, name: str, build: Callable[[Path], None], made: str = LIBRARY) -> Path:
    """Runs ``build(folder)``, which writes the file ``made`` to the folder, and publishes the result atomically.

    Raises:
        CacheError: The cache folder cannot be written, or others may write to it.
    """
    root = cache_folder()
    with writable(root):
        make_folder(root)
        check_folder(root)
    with writable(root), work_folder(root, f"{name}_{key}.") as folder:
        build(folder)
        record = {"name": name, "sha256": _checksum(folder / made)}
        (folder / _RECORD).write_text(json.dumps(record))
        for path in (folder, *folder.iterdir()):  # the cache may be made for many users
            share(path)
        final = root / f"{name}_{key}"
        try:
            folder.rename(final)
        except OSError:  # another process was first; its build is the same
            found = lookup(key, name, made)
            if found is None:
                raise
            return found
        return final / made


def keep_latest(made: str, count: int) -> None:
    """Removes all entries with a file ``made`` but the latest ones; builds that are reading them go on."""
    for entry in sorted((e for e in entries() if holds(e.path, made)), key=lambda e: e.made)[:-count]:
        remove(entry.path)


def keep_file(name: str, text: str, meaning: str) -> Path | None:
    """Writes a file of the cache, replacing an older one or a link; returns None if it cannot be written.

    Args:
        meaning: The meaning of the file, for the log.
    """
    root = cache_folder()
    try:
        make_folder(root)
        handle, temporary = tempfile.mkstemp(prefix=f"{name.partition('.')[0]}.", dir=root)
        try:
            with os.fdopen(handle, "w") as file:
                file.write(text)
            share(Path(temporary))
            return Path(temporary).replace(root / name)
        finally:
            Path(temporary).unlink(missing_ok=True)
    except OSError as error:
        log.info("%s cannot be kept in %s (%s)", meaning, root, error.strerror)
        return None


def lookup_plan(key: str, name: str, decode: Callable[[dict[str, Any]], T]) -> T | None:
    """Returns the result of ``decode`` for a plan, or None if there is no plan; removes a damaged one.

    Raises:
        CacheError: The plan cannot be read, or others may have written it.
    """
    root = cache_folder()
    file = root / f"{name}_{key}{_PLAN}"
    with readable(file):
        if not os.path.lexists(file):
            return None
        check_folder(root)
        check_entry(file, root)
        try:
            record = json.loads(file.read_text())
            if record["sha256"] == _text_checksum(record["plan"]):
                return decode(record["plan"])
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError):
            pass
    log.warning("cache entry %s is damaged; compiling the program again", file)
    remove(file)
    return None


def store_plan(key: str, name: str, plan: dict[str, Any]) -> None:
    """Publishes a plan atomically; a cache that cannot be written is left as it is."""
    text = json.dumps({"sha256": _text_checksum(plan), "plan": plan})
    keep_file(f"{name}_{key}{_PLAN}", text, f"the plan of {name}")


def _text_checksum(plan: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(plan).encode()).hexdigest()


def plans() -> list[Entry]:
    """Returns all plans, by name."""
    return [Entry.of(path) for path in _listed() if path.name.endswith(_PLAN)]


def entries() -> list[Entry]:
    """Returns all builds, by name."""
    return [Entry.of(path) for path in _listed() if holds(path, _RECORD) and not _UNDER_WAY.fullmatch(path.name)]


def unfinished() -> list[Entry]:
    """Returns the remains of processes that were ended: builds without a record, and plans that were not written in
    full."""
    return [Entry.of(path) for path in _listed() if _is_unfinished(path)]


def everything() -> list[Entry]:
    """Returns all that `clear` removes: builds, plans, remains, and what else is kept with them."""
    others = [Entry.of(path) for path in _listed() if path.name in _OTHERS]
    return [*entries(), *plans(), *unfinished(), *others]


def clear() -> int:
    """Removes `everything` (loaded libraries continue to work); returns how many are gone."""
    found = everything()
    for entry in found:
        with claimed(entry.path) as free:
            if free or not _UNDER_WAY.fullmatch(entry.path.name):  # others may lock what they can read
                remove(entry.path)
    return sum(not os.path.lexists(entry.path) for entry in found)


def _is_unfinished(path: Path) -> bool:
    if _UNDER_WAY.fullmatch(path.name):
        return not in_use(path)
    # A build that has lost its record.
    return holds(path, LIBRARY) and not holds(path, _RECORD)


def _listed() -> list[Path]:
    """Returns the files and folders of the cache, by name; leaves out links, which others may have planted."""
    root = cache_folder()
    with readable(root):
        try:
            return sorted(path for path in root.iterdir() if not path.is_symlink())
        except (FileNotFoundError, NotADirectoryError):
            return []
