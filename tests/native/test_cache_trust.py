"""Caches that others made, may write to, or have planted something in; and what builds that were ended leave."""

from __future__ import annotations

import fcntl
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import pytest

from dacergnn.errors import BuildError, CacheError
from dacergnn.native import build as builder
from dacergnn.native import cache, cache_files, trust

OTHER = 12345


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with one build and one plan of this user."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("DACERGNN_CACHE_DIR", str(folder))
    cache.store("1a", "tiny", write_library)
    cache.store_plan("1a", "tiny", {"a": 1})
    return folder


def write_library(folder: Path) -> None:
    (folder / cache.LIBRARY).write_bytes(b"code")


def find() -> tuple[object, object]:
    return cache.lookup("1a", "tiny"), cache.lookup_plan("1a", "tiny", lambda plan: plan)


class Owned(NamedTuple):
    """What `os.stat` tells of a file of somebody else; changing owners is for the superuser."""

    st_mode: int
    st_uid: int
    st_gid: int = OTHER


def owned_by_other(paths: set[Path], monkeypatch: pytest.MonkeyPatch, gid: int = OTHER) -> None:
    for name in ("stat", "lstat"):
        real: Callable[..., os.stat_result] = getattr(Path, name)

        def told(path: Path, real: Callable[..., os.stat_result] = real, **options: bool) -> os.stat_result | Owned:
            found = real(path, **options)
            return Owned(found.st_mode, OTHER, gid) if path in paths else found

        monkeypatch.setattr(trust.Path, name, told)
    monkeypatch.setattr(trust.os, "geteuid", lambda: os.getuid() or 1000)


def test_a_cache_is_found_again_and_others_may_read_it(root: Path) -> None:
    assert find() == (root / "tiny_1a" / cache.LIBRARY, {"a": 1})
    for path in (root, *root.rglob("*")):
        mode = path.stat().st_mode
        assert not mode & (stat.S_IWGRP | stat.S_IWOTH), path
        assert mode & stat.S_IROTH, path


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o757])
def test_a_folder_that_others_may_write_to(root: Path, mode: int) -> None:
    root.chmod(mode)
    message = f"^Others may write to the build cache {root}, whose code is run; take that right away with chmod go-w"
    for act in (find, lambda: cache.lookup_plan("1a", "tiny", dict), lambda: cache.store("2b", "tiny", write_library)):
        with pytest.raises(CacheError, match=message):
            act()


def test_a_folder_that_a_group_may_write_to(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless the group is the owner alone, as where every user has a group of the same number."""
    root.chmod(0o775)
    if root.stat().st_gid != root.stat().st_uid:
        os.chown(root, -1, root.stat().st_uid)
    assert find()[0] is not None
    real = Path.stat
    monkeypatch.setattr(trust.Path, "stat", lambda path, **o: Owned(real(path, **o).st_mode, os.geteuid(), OTHER))
    with pytest.raises(CacheError, match=r"^Others may write to the build cache"):
        find()


def replace_by_link(path: Path) -> None:
    target = path.rename(path.with_name("target"))
    path.symlink_to(target)


@pytest.mark.parametrize("part", ["tiny_1a", "tiny_1a/program.so", "tiny_1a/entry.json", "tiny_1a.plan.json"])
@pytest.mark.parametrize("how", ["another user", "link", "others write"])
def test_entries_of_others_are_refused_by_name(
    part: str, how: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = root / part
    if how == "another user":
        owned_by_other({path}, monkeypatch)
        message = (
            f"^{path} in the build cache belongs to another user \\({OTHER}\\), whose code is not run; remove it, or"
        )
    elif how == "link":
        replace_by_link(path)
        message = f"^{path} in the build cache is a link, whose code is not run; remove it"
    else:
        path.chmod(0o777)
        message = f"^Others may write to {path} in the build cache, whose code is run; remove it"
    with pytest.raises(CacheError, match=message):
        find()


def test_a_cache_that_another_user_made_beforehand(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    everything = {root, *root.rglob("*")}
    owned_by_other(everything, monkeypatch)
    with pytest.raises(
        CacheError, match=rf"^The build cache {root}, whose code is run, belongs to another user \({OTHER}\)"
    ):
        find()  # it may still be changed
    for path in everything:
        path.chmod(stat.S_IMODE(path.lstat().st_mode) & ~0o222)
    assert find() == (root / "tiny_1a" / cache.LIBRARY, {"a": 1})
    root.parent.chmod(0o1777)  # anybody could have put it there
    with pytest.raises(CacheError, match=rf"belongs to another user \({OTHER}\), and anybody could have put it into"):
        find()


def test_folders_on_the_way_that_others_may_replace(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sticky bit keeps others from renaming what is there, but not from being the first with a name."""
    above = root.parent / "above"
    above.mkdir()
    moved = root.rename(above / "cache")
    monkeypatch.setenv("DACERGNN_CACHE_DIR", str(moved))
    root.parent.chmod(0o777)
    message = rf"^Others may put a folder of theirs in the place of {above}, on the way to the build cache {moved}"
    for act in (find, lambda: cache.store("2b", "tiny", write_library)):
        with pytest.raises(CacheError, match=message):
            act()
    root.parent.chmod(0o1777)
    assert find()[0] is not None
    owned_by_other({above}, monkeypatch)
    with pytest.raises(CacheError, match=rf"^{above}, on the way to .* anybody could have put"):
        find()


def test_links_on_the_way(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link may lead to the cache, if others can replace neither the link nor what it leads through."""
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    moved = root.rename(tmp_path / "second" / "cache")
    link = tmp_path / "first" / "link"
    link.symlink_to(Path("..", "second"))
    monkeypatch.setenv("DACERGNN_CACHE_DIR", str(link / "cache"))
    assert find()[0] is not None
    for folder, place in ((link.parent, link), (moved.parent, link / "cache")):
        folder.chmod(0o777)
        with pytest.raises(CacheError, match=rf"^Others may put a folder of theirs in the place of {place}, on the"):
            find()
        folder.chmod(0o755)


def test_a_group_of_the_owner_that_others_share(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group with the owner's number may have other members, and a list may give rights to single users."""
    root.chmod(0o775)
    os.chown(root, -1, root.stat().st_uid)
    assert find()[0] is not None
    with monkeypatch.context() as patch:
        patch.setattr(trust.grp, "getgrgid", lambda number: SimpleNamespace(gr_mem=["mallory"]))
        with pytest.raises(CacheError, match=r"^Others may write to the build cache"):
            find()
    with monkeypatch.context() as patch:
        patch.setattr(trust.os, "listxattr", lambda path: ["system.posix_acl_access"])
        with pytest.raises(CacheError, match=r"^Others may write to the build cache"):
            find()


def test_folders_are_made_for_their_owner_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where new files are open to all by default."""
    monkeypatch.setenv("DACERGNN_CACHE_DIR", str(tmp_path / "a" / "b"))
    before = os.umask(0)
    try:
        cache.store("1a", "tiny", write_library)
    finally:
        os.umask(before)
    assert {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("a", "a/b", "a/b/tiny_1a")} == {0o755}
    assert cache.lookup("1a", "tiny") is not None


def test_what_cannot_be_read_is_not_called_damaged(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def deny(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", deny)
    message = rf"^{root / 'tiny_1a'} in the build cache cannot be read \(Permission denied\); have its owner make it"
    with pytest.raises(CacheError, match=message):
        find()
    assert (root / "tiny_1a").is_dir()


def test_failed_code_is_not_written_through_a_link(root: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    (root / "failed.cpp").symlink_to(precious)
    with pytest.raises(BuildError, match=r"failed\.cpp"):
        builder.build("tiny", "no C++\n")
    assert precious.read_text() == "mine"
    assert (root / "failed.cpp").read_text() == "no C++\n"
    assert not (root / "failed.cpp").is_symlink()


def test_a_full_disk_is_said(root: Path) -> None:
    def fill(folder: Path) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(
        CacheError, match=rf"^The build cache {root} cannot be written \(No space left on device\); set"
    ):
        cache.store("2b", "tiny", fill)
    assert sorted(p.name for p in root.iterdir()) == ["tiny_1a", "tiny_1a.plan.json"]


def test_the_home_of_a_user(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(root.parent))
    monkeypatch.setenv("DACERGNN_CACHE_DIR", "~/cache")
    assert cache.cache_folder() == root
    monkeypatch.setenv("DACERGNN_CACHE_DIR", "~nobody-of-this-name/cache")
    with pytest.raises(CacheError, match="The build cache is '~nobody-of-this-name/cache', but Could not determine"):
        cache.cache_folder()


SLOW = """
import time
from pathlib import Path
from dacergnn.native import cache

def build(folder: Path) -> None:
    (folder / "program.cpp").write_text("code")
    print("under way", flush=True)
    time.sleep(60)

cache.store("2b", "tiny", build)
"""


def test_builds_that_were_killed_are_cleared_but_not_those_under_way(root: Path) -> None:
    process = subprocess.Popen([sys.executable, "-W", "ignore", "-c", SLOW], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "under way\n"
        assert cache.unfinished() == []
        assert cache.clear() == 2
        (left,) = root.iterdir()
        process.send_signal(signal.SIGKILL)
        process.wait()
    finally:
        process.kill()
        process.communicate()
    (entry,) = cache.unfinished()
    assert (entry.path, entry.name, entry.size) == (left, "tiny", 4)
    assert cache.clear() == 1
    assert list(root.iterdir()) == []


def test_a_cache_that_is_cleared_while_a_build_begins(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, cleared = fcntl.flock, list[int]()

    def flock(handle: int, how: int) -> None:
        if not cleared:
            cleared.append(0)
            cleared.append(cache.clear())
        real(handle, how)

    monkeypatch.setattr(cache_files.fcntl, "flock", flock)
    library = cache.store("2b", "tiny", write_library)
    assert cleared == [0, 3]  # a build, a plan, and the folder that was just made
    assert [p.name for p in root.iterdir()] == ["tiny_2b"]
    assert library.read_bytes() == b"code"


def test_everything_that_is_kept_is_cleared(root: Path) -> None:
    """Also the code that compilers reject, what remains of writing it, and files of benchmarks."""
    with pytest.raises(BuildError):
        builder.build("tiny", "no C++\n")
    (root / "failed.abcd1234").write_text("half")
    os.mkfifo(root / "tiny_2b.abcd1234")  # reading it would wait for a writer
    (root / "problems").mkdir()
    (root / "problems" / "am.tensors").write_text("")
    assert cache.clear() == 6
    assert list(root.iterdir()) == []


def test_clearing_leaves_what_is_not_ours(root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "entry.json").write_text("{}")
    (root / "linked_1a").symlink_to(outside)
    (root / "my_project").mkdir()
    (root / "notes_1.txt").write_text("")
    (root / "lost_1a").mkdir()
    (root / "lost_1a" / cache.LIBRARY).write_bytes(b"")  # its record is gone
    assert cache.clear() == 3
    assert sorted(p.name for p in root.iterdir()) == ["linked_1a", "my_project", "notes_1.txt"]
    assert (outside / "entry.json").exists()
