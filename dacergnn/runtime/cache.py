"""The build cache: shared libraries by content hash, safe between processes, damaged entries rebuilt.

Beside the libraries it holds plans: JSON files by a hash of what they were computed from.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import platformdirs

from dacergnn.errors import CacheError

LIBRARY = "program.so"
_RECORD = "entry.json"
_PLAN = ".plan.json"
T = TypeVar("T")
log = logging.getLogger("dacergnn.cache")


@dataclass(frozen=True)
class Entry:
    """A cached build or plan: its folder or file, the program's name and the size in bytes."""

    path: Path
    name: str
    size: int


def cache_folder() -> Path:
    """``DACERGNN_CACHE_DIR``, else the user's cache directory."""
    configured = os.environ.get("DACERGNN_CACHE_DIR")
    return Path(configured) if configured else Path(platformdirs.user_cache_dir("dacergnn"))


def _checksum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def lookup(key: str, name: str) -> Path | None:
    """The library of an entry, or None where there is none that is whole; what is damaged is removed."""
    folder = cache_folder() / f"{name}_{key}"
    if not folder.exists():
        return None
    try:
        record = json.loads((folder / _RECORD).read_text())
        if record["sha256"] == _checksum(folder / LIBRARY):
            return folder / LIBRARY
    except (OSError, ValueError, KeyError, TypeError):
        pass
    log.warning("cache entry %s is damaged; building it again", folder)
    shutil.rmtree(folder, ignore_errors=True)
    return None


def store(key: str, name: str, build: Callable[[Path], None]) -> Path:
    """Run ``build(folder)``, which leaves a library in the folder, and publish the result atomically.

    Raises:
        CacheError: The cache folder cannot be written.
    """
    root = cache_folder()
    try:
        root.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f"{name}_{key}.", dir=root))
    except OSError as error:
        raise CacheError(
            f"The build cache {root} cannot be written ({error.strerror}); set DACERGNN_CACHE_DIR to a folder that can."
        ) from error
    try:
        build(temporary)
        record = {"name": name, "sha256": _checksum(temporary / LIBRARY)}
        (temporary / _RECORD).write_text(json.dumps(record))
        final = root / f"{name}_{key}"
        try:
            temporary.rename(final)
        except OSError:  # another process was first; its build is the same
            found = lookup(key, name)
            if found is None:
                raise
            return found
        return final / LIBRARY
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def lookup_plan(key: str, name: str, decode: Callable[[dict[str, Any]], T]) -> T | None:
    """What ``decode`` makes of a plan, or None where there is none that is whole; what is damaged is removed."""
    file = cache_folder() / f"{name}_{key}{_PLAN}"
    try:
        record = json.loads(file.read_text())
        if record["sha256"] == _text_checksum(record["plan"]):
            return decode(record["plan"])
    except OSError:
        return None
    except (ValueError, KeyError, TypeError):
        pass
    log.warning("cache entry %s is damaged; compiling the program again", file)
    with suppress(OSError):
        file.unlink()
    return None


def store_plan(key: str, name: str, plan: dict[str, Any]) -> None:
    """Publish a plan atomically; a cache that cannot be written is left as it is."""
    root = cache_folder()
    try:
        handle, temporary = tempfile.mkstemp(prefix=f"{name}_{key}.", dir=root)
        try:
            with os.fdopen(handle, "w") as file:
                json.dump({"sha256": _text_checksum(plan), "plan": plan}, file)
            Path(temporary).replace(root / f"{name}_{key}{_PLAN}")
        finally:
            Path(temporary).unlink(missing_ok=True)
    except OSError as error:
        log.info("the plan of %s cannot be kept in %s (%s)", name, root, error.strerror)


def _text_checksum(plan: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(plan).encode()).hexdigest()


def plans() -> list[Entry]:
    """All plans, by name."""
    files = sorted(cache_folder().glob(f"*{_PLAN}"))
    return [Entry(f, f.name.rsplit("_", 1)[0], f.stat().st_size) for f in files]


def entries() -> list[Entry]:
    """All builds, by name."""
    root = cache_folder()
    found: list[Entry] = []
    for record in sorted(root.glob(f"*/{_RECORD}")) if root.is_dir() else []:
        folder = record.parent
        size = sum(f.stat().st_size for f in folder.iterdir())
        found.append(Entry(folder, folder.name.rsplit("_", 1)[0], size))
    return found


def clear() -> int:
    """Remove all builds and plans (loaded libraries go on working); returns how many there were."""
    builds, files = entries(), plans()
    for entry in builds:
        shutil.rmtree(entry.path, ignore_errors=True)
    for entry in files:
        entry.path.unlink(missing_ok=True)
    return len(builds) + len(files)
