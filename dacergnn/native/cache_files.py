"""Files of the cache: what they take, whether a process is at work on them, and errors in the words of the cache."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from dacergnn.errors import CacheError


def total_size(path: Path) -> int:
    """Bytes of a file, or of all files below a folder."""
    files = [path, *path.rglob("*")]
    total = 0
    for file in files:
        with suppress(OSError):  # others remove what is listed here
            stats = file.lstat()
            total += 0 if stat.S_ISDIR(stats.st_mode) else stats.st_size
    return total


def remove(path: Path) -> None:
    """Remove a file or folder as far as that is allowed; a link, not what it leads to."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def make_folder(root: Path) -> None:
    """Make the folder of the cache, to which nobody else may write."""
    if not root.is_dir():
        root.parent.mkdir(parents=True, exist_ok=True)
        root.mkdir(mode=0o755, exist_ok=True)


def share(path: Path) -> None:
    """Let all that the user lets in read a file or folder, but nobody else write to it."""
    path.chmod((0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644) & ~_umask())


def holds(folder: Path, name: str) -> bool:
    """Returns whether a folder holds a file of that name; not, where it cannot be looked into."""
    try:
        return (folder / name).is_file()
    except OSError:
        return False


def _umask() -> int:
    """The rights that the user withholds; Linux tells them without setting them."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("Umask:"):
            return int(line.split()[1], 8)
    return 0o077


@contextmanager
def locked(folder: Path) -> Generator[None]:
    """Tells other processes that this one is at work in a folder, as long as it lives."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # some file systems have no locks
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


def in_use(path: Path) -> bool:
    """Returns whether a process that lives is at work in a folder."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(handle)
    return False


@contextmanager
def readable(path: Path) -> Generator[None]:
    """Raises CacheError in place of what the system says where a path cannot be read."""
    try:
        yield
    except OSError as error:
        raise CacheError(
            f"{path} in the build cache cannot be read ({error.strerror}); have its owner make it readable, or set "
            "DACERGNN_CACHE_DIR to another folder."
        ) from error


@contextmanager
def writable(root: Path) -> Generator[None]:
    """Raises CacheError in place of what the system says where the cache cannot be written."""
    try:
        yield
    except OSError as error:
        raise CacheError(
            f"The build cache {root} cannot be written ({error.strerror}); set DACERGNN_CACHE_DIR to a folder that can."
        ) from error
