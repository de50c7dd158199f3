"""Checks who may have written to the cache: its code is run, so others must not have put it there."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from dacergnn.errors import CacheError

if sys.platform != "win32":  # where nothing is built
    import grp
    import pwd

_REMEDY = "set DACERGNN_CACHE_DIR to a folder of your own"
_LIST = "system.posix_acl_access"
"""Names the attribute of a file with rights of single users, of which the mode tells only the most that any has."""


def check_folder(folder: Path) -> None:
    """Raises CacheError if others than its owner may write to the cache, or if its owner cannot be trusted.

    A cache of another user is trusted if this user may not write to it. In any case, nobody else may be able to put
    another folder in its place. A folder that does not exist is not checked.
    """
    try:
        stats = folder.stat()
    except OSError:
        return
    if _others_write(folder, stats):
        raise CacheError(
            f"Others may write to the build cache {folder}, whose code is run; take that right away with "
            f"chmod go-w {folder}, and remove what they may have put there, or {_REMEDY}."
        )
    for place in _places(folder.absolute()):
        _check_place(place, folder)
    if stats.st_uid not in _trusted() and not _read_only(folder, stats):
        raise CacheError(
            f"The build cache {folder}, whose code is run, belongs to another user ({stats.st_uid}); {_REMEDY}, or "
            "have it made read only."
        )


def check_entry(path: Path, folder: Path) -> None:
    """Raises CacheError if a path in the cache is a link, others may write to it, or its owner is not trusted."""
    stats = path.lstat()
    if stat.S_ISLNK(stats.st_mode):
        raise CacheError(f"{path} in the build cache is a link, whose code is not run; remove it.")
    if stats.st_uid not in {*_trusted(), folder.stat().st_uid}:
        raise CacheError(
            f"{path} in the build cache belongs to another user ({stats.st_uid}), whose code is not run; remove it, or "
            f"{_REMEDY}."
        )
    if _others_write(path, stats):
        raise CacheError(f"Others may write to {path} in the build cache, whose code is run; remove it.")


def _check_place(place: Path, cache: Path) -> None:
    """Raises CacheError if others may rename a file or folder, and put their own in its place.

    Where all may write, as in /tmp, the sticky bit keeps them from it; but whoever comes first may take a free name.
    """
    above = place.parent
    stats = above.stat()
    if not _others_write(above, stats):
        return
    if not stats.st_mode & stat.S_ISVTX:
        raise CacheError(
            f"Others may put a folder of theirs in the place of {place}, on the way to the build cache {cache}, whose "
            f"code is run; take that right away with chmod go-w {above}, or {_REMEDY}."
        )
    owner = place.lstat().st_uid
    if owner not in _trusted():
        raise CacheError(
            f"{place}, on the way to the build cache {cache}, whose code is run, belongs to another user ({owner}), "
            f"and anybody could have put it into {above}; {_REMEDY}."
        )


def _places(path: Path) -> Iterator[Path]:
    """Yields a path, the folders above it but the root, and the same for the targets of links among them."""
    seen: set[Path] = set()
    left = [path]
    while left:
        path = left.pop()
        for place in (path, *path.parents)[:-1]:
            if place not in seen:
                seen.add(place)
                yield place
                if place.is_symlink():
                    left.append(place.parent / place.readlink())


def _trusted() -> set[int]:
    """Returns the ids of this user and of the superuser."""
    return {os.geteuid(), 0}


def _others_write(path: Path, stats: os.stat_result) -> bool:
    """Tells whether others than the owner may write."""
    own_group = stats.st_mode & stat.S_IWGRP and stats.st_gid == stats.st_uid and _is_private(path, stats)
    return bool(stats.st_mode & (stat.S_IWOTH if own_group else stat.S_IWGRP | stat.S_IWOTH))


def _is_private(path: Path, stats: os.stat_result) -> bool:
    """Tells whether the rights of a group are those of the owner alone: it has no other members.

    Many systems have a group for each user, with the user's number.
    """
    with suppress(OSError):  # of file systems without such lists
        if _LIST in os.listxattr(path):
            return False
    with suppress(KeyError):  # of users or groups without a name
        return {*grp.getgrgid(stats.st_gid).gr_mem} <= {pwd.getpwuid(stats.st_uid).pw_name}
    return True


def _read_only(folder: Path, stats: os.stat_result) -> bool:
    return not stats.st_mode & 0o222 or not os.access(folder, os.W_OK)
