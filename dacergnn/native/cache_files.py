"""Files of the cache: sizes, locks of processes that work on them, and errors that name the cache."""

from __future__ import annotations

import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from dacergnn.errors import CacheError

if sys.platform != "win32":  # where nothing is built
    import fcntl

    _OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK  # pipes do not block, and links are refused


def total_size(path: Path) -> int:
    """Returns the bytes of a file, or of all files below a folder."""
    files = [path, *path.rglob("*")]
    total = 0
    for file in files:
        with suppress(OSError):  # other processes may remove files meanwhile
            stats = file.lstat()
            total += 0 if stat.S_ISDIR(stats.st_mode) else stats.st_size
    return total


def remove(path: Path) -> None:
    """Removes a file or folder as far as permissions allow; removes a link, but not its target."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def make_folder(root: Path) -> None:
    """Makes the folder of the cache, and those above it that are missing; nobody else may write to them."""
    if not root.is_dir():
        for folder in (*reversed(root.absolute().parents), root):
            folder.mkdir(mode=0o755, exist_ok=True)


def share(path: Path) -> None:
    """Lets others read a file or folder as far as the umask allows, but not write to it."""
    path.chmod((0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644) & ~_umask())


def holds(folder: Path, name: str) -> bool:
    """Tells whether a folder holds a file of that name; False if the folder cannot be read."""
    try:
        return (folder / name).is_file()
    except OSError:
        return False


def _umask() -> int:
    """Returns the umask, which Linux tells without changing it."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("Umask:"):
            return int(line.split()[1], 8)
    return 0o077


@contextmanager
def work_folder(root: Path, prefix: str) -> Generator[Path]:
    """Makes a folder that is `in_use` as long as this process lives and works in it; removes it unless it is moved."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=root))
        handle = _lock(folder)
        if handle is not None:
            break
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)


def _lock(folder: Path) -> int | None:
    """Returns a handle that locks a new folder; None if another process has cleared the cache before."""
    try:
        handle = os.open(folder, _OPEN)
    except FileNotFoundError:
        return None
    with suppress(OSError):  # some file systems have no locks
        fcntl.flock(handle, fcntl.LOCK_EX)
    if folder.exists():
        return handle
    os.close(handle)
    return None


@contextmanager
def claimed(path: Path) -> Generator[bool]:
    """Tells whether no other process works in a folder; if so, none begins to do so in this context."""
    try:
        handle = os.open(path, _OPEN)
    except OSError:
        yield True
        return
    try:
        yield _is_free(handle)
    finally:
        os.close(handle)


def _is_free(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def in_use(path: Path) -> bool:
    """Tells whether a living process works in a folder."""
    with claimed(path) as free:
        return not free


@contextmanager
def readable(path: Path) -> Generator[None]:
    """Raises CacheError in place of the system's error if a path cannot be read."""
    try:
        yield
    except OSError as error:
        raise CacheError(
            f"{path} in the build cache cannot be read ({error.strerror}); have its owner make it readable, or set "
            "DACERGNN_CACHE_DIR to another folder."
        ) from error


@contextmanager
def writable(root: Path) -> Generator[None]:
    """Raises CacheError in place of the system's error if the cache cannot be written."""
    try:
        yield
    except OSError as error:
        raise CacheError(
            f"The build cache {root} cannot be written ({error.strerror}); set DACERGNN_CACHE_DIR to a folder that can."
        ) from error
