"""Checks who may have written to the cache: its code is run, so others must not have put it there."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from dacergnn.errors import CacheError

_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_REMEDY = "set DACERGNN_CACHE_DIR to a folder of your own"


def check_folder(folder: Path) -> None:
    """Raises CacheError if others than its owner may write to the cache, or if its owner cannot be trusted.

    A cache of another user is trusted if this user may not write to it, and nobody could have put it in place of
    another folder. A folder that does not exist is not checked.
    """
    try:
        stats = folder.stat()
    except OSError:
        return
    if _others_write(stats):
        raise CacheError(
            f"Others may write to the build cache {folder}, whose code is run; take that right away with "
            f"chmod go-w {folder}, or {_REMEDY}."
        )
    if stats.st_uid in _trusted():
        return
    if not _read_only(folder, stats) or _others_write(folder.parent.stat()):
        raise CacheError(
            f"The build cache {folder}, whose code is run, belongs to another user ({stats.st_uid}); {_REMEDY}, or "
            "have it made read only, in a folder to which nobody else may write."
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
    if _others_write(stats):
        raise CacheError(
            f"Others may write to {path} in the build cache, whose code is run; remove it, or take that right away "
            f"with chmod go-w {path}."
        )


def _trusted() -> set[int]:
    """Returns the ids of this user and of the superuser."""
    return {os.geteuid(), 0}


def _others_write(stats: os.stat_result) -> bool:
    """Tells whether others than the owner may write; a group with the owner's number has only the owner."""
    own_group = stats.st_gid == stats.st_uid
    return bool(stats.st_mode & (stat.S_IWOTH if own_group else _OTHERS))


def _read_only(folder: Path, stats: os.stat_result) -> bool:
    return not stats.st_mode & (_OTHERS | stat.S_IWUSR) or not os.access(folder, os.W_OK)
