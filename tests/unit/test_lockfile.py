"""A lock that one owner has at a time, whoever the other is and however the owner ends."""

import errno
import os
import re
import signal
import subprocess
import sys

import pytest

from memory import BackendUnavailable
from memory.adapter.stores import FileLock, replace_file, staged_directory, sweep_directories

HOLDER = """
import os, sys
from pathlib import Path
from memory.adapter.stores import FileLock
held = FileLock(Path(sys.argv[1]), what="it", instead="wait")
held.acquire()
if sys.argv[2:] == ["fork"]:
    if os.fork() == 0:
        held.release()  # what a forked child would do on its way out
        print("held by my parent", flush=True)
        sys.stdin.read()
        os._exit(0)
else:
    print("held", flush=True)
sys.stdin.read()
"""


def lock(path):
    return FileLock(path, what=f"the graph at {path.parent}", instead="choose another path")


def test_one_owner_at_a_time_in_one_process(tmp_path):
    first, second = lock(tmp_path / "lock"), lock(tmp_path / "lock")
    first.acquire()
    first.acquire()
    assert first.held
    wanted = (
        f"the graph at {tmp_path} is open elsewhere in this process; close the other user, or choose another"
    )
    with pytest.raises(BackendUnavailable, match=re.escape(wanted)) as raised:
        second.acquire()
    assert not raised.value.ambiguous
    assert not second.held
    first.release()
    first.release()
    second.acquire()
    with pytest.raises(BackendUnavailable):
        first.acquire()
    second.release()


@pytest.mark.thorough
@pytest.mark.parametrize("how", ["killed", "killed while its forked child lives", "ended"])
def test_another_process_and_how_it_ends(tmp_path, how):
    path = tmp_path / "lock"
    call = [sys.executable, "-c", HOLDER, str(path), *(["fork"] if "forked" in how else [])]
    with subprocess.Popen(call, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline().startswith("held")
        with pytest.raises(BackendUnavailable, match=f"open elsewhere in process {other.pid};"):
            lock(path).acquire()
        if how == "ended":
            other.communicate("")
        else:
            os.kill(other.pid, signal.SIGKILL)
            other.wait()
        mine = lock(path)
        mine.acquire()
        mine.release()


def test_a_lock_file_that_was_removed_lets_nobody_share(tmp_path, monkeypatch):
    """Opened before its owner removed it, and locked after: it must not count."""
    path = tmp_path / "lock"
    native, opened = os.open, []

    def open_then_remove(*args, **kwargs):
        file = native(*args, **kwargs)
        opened.append(file)
        if len(opened) == 1:
            path.unlink()
        return file

    monkeypatch.setattr(os, "open", open_then_remove)
    mine = lock(path)
    mine.acquire()
    assert len(opened) == 2
    with pytest.raises(BackendUnavailable):
        lock(path).acquire()
    mine.release()


def test_what_cannot_be_made_or_locked_names_the_file(tmp_path, monkeypatch):
    with pytest.raises(OSError) as raised:
        lock(tmp_path / "none" / "lock").acquire()
    assert raised.value.filename is not None

    def without_locks(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", without_locks)
    with pytest.raises(OSError, match="No locks available") as raised:
        lock(tmp_path / "lock").acquire()
    assert raised.value.filename == str(tmp_path / "lock")
    if os.path.isdir("/proc/self/fd"):
        opened = {
            os.path.realpath(f"/proc/self/fd/{descriptor}") for descriptor in os.listdir("/proc/self/fd")
        }
        assert str(tmp_path / "lock") not in opened


def test_a_lock_that_was_given_back_names_no_owner(tmp_path):
    """A process of that id may be another's by now, and would be ended for nothing."""
    lock = FileLock(tmp_path / "lock", what="the graph", instead="wait")
    lock.acquire()
    assert (tmp_path / "lock").read_text() == str(os.getpid())
    lock.release()
    assert (tmp_path / "lock").read_text() == ""


@pytest.mark.parametrize("durability", ["process", "machine"])
def test_a_file_is_replaced_whole_or_not_at_all(tmp_path, durability, monkeypatch):
    path, flushed = tmp_path / "made" / "state.json", []
    replace_file(path, "old", durability)

    def flush(file):
        flushed.append((os.readlink(f"/proc/self/fd/{file}"), os.path.isdir(file) or os.stat(file).st_size))

    monkeypatch.setattr(os, "fsync", flush)
    replace_file(path, b"new", durability)
    assert path.read_text() == "new"
    whole = [(f"{path}.new", 3), (str(path.parent), True)]  # the words, then the name that leads to them
    assert flushed == (whole if durability == "machine" else [])
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError(errno.EIO, "broken")))
    with pytest.raises(OSError, match="broken"):
        replace_file(path, "newer", durability)
    assert path.read_text() == "new"
    assert [file.name for file in path.parent.iterdir()] == ["state.json"]


def test_a_file_that_could_not_be_begun_is_told_as_that(tmp_path, monkeypatch):
    """An error of the tidying up would stand in place of what to mend."""

    def refused(*given):
        raise PermissionError(errno.EACCES, "not allowed")

    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(PermissionError, match="not allowed"):
        replace_file(tmp_path / "state.json", "words")


def test_a_directory_that_could_not_be_made_leaves_nothing(tmp_path):
    """What was begun holds words of somebody, and nobody would look for it."""
    with pytest.raises(FileNotFoundError), staged_directory(tmp_path / "made") as making:
        making.joinpath("words", "of", "nobody").write_text("tea")
    assert list(tmp_path.iterdir()) == []
    with staged_directory(tmp_path / "made") as making:
        assert making.parent == tmp_path, "from where it is moved at once"
        making.joinpath("words").write_text("tea")
    assert (tmp_path / "made" / "words").read_text() == "tea"


def test_what_was_interrupted_is_swept(tmp_path):
    for name in (".new-1", ".gone-1", "kept"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "words").write_text("tea")
    sweep_directories(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
