"""Files of memslot's own: whole or not at all, and never empty and healthy where something was kept."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.adapter import AppendLog, StoreError, replace_file, staged_directory, sweep_directories
from memory.slot import files
from memory.slot.files import Losses


@pytest.fixture
def path(tmp_path):
    return tmp_path / "made" / "events.jsonl"


def filled(path, count=10):
    log = AppendLog(path)
    log.load()
    for number in range(count):
        log.append(b'{"number": %d}' % number)
    return log


def loaded(path):
    log = AppendLog(path)
    return log, log.load()


def test_what_was_appended_is_there(path):
    filled(path, 3)
    log, records = loaded(path)
    assert records == [b'{"number": 0}', b'{"number": 1}', b'{"number": 2}']
    assert (log.torn, log.lost, log.warnings()) == (False, 0, [])
    log.append(b"three", b"four")
    assert loaded(path)[1][3:] == [b"three", b"four"]


def test_a_log_that_never_was_is_empty(path):
    assert loaded(path)[1] == []


def test_a_record_is_one_line(path):
    with pytest.raises(ValueError, match="line break"):
        AppendLog(path).append(b"a\nb")


@pytest.mark.parametrize("damage", ["missing", "emptied", "cut", "flipped", "zeros", "no count", "swapped"])
def test_damage_is_an_error_and_nothing_is_touched(path, damage):
    filled(path)
    data = path.read_bytes()
    if damage == "missing":
        path.unlink()
    elif damage == "no count":
        path.with_name("events.jsonl.count").unlink()
    else:
        lines = data.splitlines(keepends=True)
        lines[2], lines[3] = lines[3], lines[2]
        path.write_bytes(
            {
                "emptied": b"",
                "cut": data[: data.rfind(b"\n", 0, -1) + 1],
                "flipped": data.replace(b'"number": 4', b'"number": 5'),
                "zeros": data[:-30] + bytes(30),
                "swapped": b"".join(lines),
            }[damage]
        )
    before = {file.name: file.read_bytes() for file in path.parent.iterdir()}
    with pytest.raises(StoreError, match="restore it from a copy, or reset the scope"):
        loaded(path)
    assert {file.name: file.read_bytes() for file in path.parent.iterdir()} == before


def test_a_torn_end_is_dropped_and_says_what_is_gone_until_that_is_acknowledged(path):
    filled(path)
    os.truncate(path, path.stat().st_size - 20)
    for _ in range(2):
        log, records = loaded(path)
        assert len(records) == 8
        assert log.lost == 2
        assert "2 acknowledged records are gone" in log.warnings()[0]
        assert "events.jsonl.lost" in log.warnings()[0]
    note = path.with_name("events.jsonl.lost")
    note.rename(path.with_name("aside"))
    log.load()
    assert log.lost == 0, "whoever opens it removes the note"
    path.with_name("aside").rename(note)
    log.load()
    assert log.lost == 2
    log.append(b"new")
    log.losses.acknowledge()
    log, records = loaded(path)
    assert (len(records), log.lost, log.warnings()) == (9, 0, [])


def test_losses_are_added_up_and_one_that_is_noted_again_counts_once(path):
    path.parent.mkdir()
    losses = Losses(path, "records")
    for gone, count in ((2, 2), (2, 2), (3, 5), (3, 5)):
        losses.add(gone, 10)
        assert losses.count == count


@pytest.mark.parametrize("left", [b"", b"\0" * 9, b"\n\n", b"2", b"\xff of 10\n"])
def test_a_note_of_losses_that_is_damaged_itself_is_no_crash_and_no_health(path, left):
    filled(path)
    path.with_name("events.jsonl.lost").write_bytes(left)
    log, records = loaded(path)
    assert (len(records), log.lost) == (10, 1)
    assert "events.jsonl.lost" in log.warnings()[0]
    log.losses.acknowledge()
    assert log.warnings() == []


def test_appending_nothing_changes_nothing(path):
    log = filled(path, 2)
    log.append()
    log.append(b"three")
    assert loaded(path)[1][2:] == [b"three"]


def test_a_torn_end_that_was_never_acknowledged_costs_nothing(path):
    filled(path)
    with path.open("ab") as file:
        file.write(b'{"num')
    log, records = loaded(path)
    assert (len(records), log.torn, log.lost) == (10, True, 0)
    assert "never acknowledged" in log.warnings()[0]


def test_a_record_that_was_written_and_not_counted_is_read(path):
    """Killed between the two writes: the event was sent again or not, it is in the log once."""
    filled(path)
    with path.open("ab") as file:
        file.write(b"more\n")
    _, records = loaded(path)
    assert records[-1] == b"more"
    assert path.with_name(f"{path.name}.count").stat().st_size == 16 * len(records)


def test_a_file_somebody_else_wrote_to_is_not_appended_to(path):
    log = filled(path)
    with path.open("ab") as file:
        file.write(b"theirs\n")
    with pytest.raises(StoreError, match="someone else"):
        log.append(b"ours")
    assert path.read_bytes().endswith(b"theirs\n")


def test_a_full_disk_leaves_everything_as_it_was(path, monkeypatch):
    log, write = filled(path), os.write
    for broken in (".jsonl", ".count"):

        def short(file, data, broken=broken):
            if os.readlink(f"/proc/self/fd/{file}").endswith(broken):
                if len(data) < 4:
                    raise OSError(errno.ENOSPC, "No space left on device")
                return write(file, data[:-2])
            return write(file, data)

        with monkeypatch.context() as patch:
            patch.setattr(os, "write", short)
            with pytest.raises(OSError, match="No space"):
                log.append(b"does not fit")
        assert len(loaded(path)[1]) == 10
    log.append(b"fits")
    assert loaded(path)[1][-1] == b"fits"


def test_the_count_is_there_before_the_log(path, monkeypatch):
    """A log without one is damaged, also where it was killed between the two."""
    made, append = [], files.append_bytes

    def noted(file, *given):
        made.append(file.name)
        return append(file, *given)

    monkeypatch.setattr(files, "append_bytes", noted)
    AppendLog(path).append(b"one")
    assert made[:2] == ["events.jsonl.count", "events.jsonl"]


def test_a_removal_that_was_interrupted_is_finished(path):
    filled(path)
    os.replace(path, path.with_name("events.jsonl.gone"))
    assert loaded(path)[1] == []
    assert list(path.parent.iterdir()) == []


def test_removed_is_removed_with_all_that_belongs_to_it(path):
    filled(path)
    os.truncate(path, path.stat().st_size - 20)
    log, _ = loaded(path)
    log.remove()
    log.remove()
    assert list(path.parent.iterdir()) == []
    log.append(b"again")
    assert loaded(path)[1] == [b"again"]


def test_a_log_that_is_missing_can_be_removed(path):
    filled(path)
    path.unlink()
    AppendLog(path).remove()
    assert loaded(path)[1] == []


def test_where_a_directory_cannot_be_flushed_its_files_are(path, monkeypatch):
    def flushed(file):
        if os.path.isdir(f"/proc/self/fd/{file}"):
            raise OSError(errno.EINVAL, "no such thing here")

    monkeypatch.setattr(os, "fsync", flushed)
    AppendLog(path, durability="machine").append(b"one")
    assert loaded(path)[1] == [b"one"]
    monkeypatch.setattr(os, "fsync", lambda file: os.read(-1, 1))
    with pytest.raises(StoreError):
        AppendLog(path, durability="machine").append(b"two")


def test_what_is_flushed_is_an_option(path, monkeypatch):
    flushed = []
    monkeypatch.setattr(os, "fsync", lambda file: flushed.append(os.readlink(f"/proc/self/fd/{file}")))
    log = AppendLog(path)
    log.append(b"one")
    assert flushed == []
    log = AppendLog(path, durability="machine")
    log.load()
    log.append(b"two")
    assert flushed == [str(path)]
    for change in (log.remove, lambda: log.append(b"three")):  # a name that goes, and one that comes
        flushed.clear()
        change()
        assert str(path.parent) in flushed


@given(st.lists(st.binary(max_size=40).map(lambda data: data.replace(b"\n", b"")), max_size=8), st.data())
def test_wherever_it_is_cut_no_record_is_wrong_and_no_loss_is_silent(tmp_path_factory, records, data):
    path = tmp_path_factory.mktemp("log") / "log"
    log = AppendLog(path)
    for record in records:
        log.append(record)
    whole = path.read_bytes() if records else b""
    cut = data.draw(st.integers(0, len(whole)))
    if records:
        os.truncate(path, cut)
    try:
        again, found = loaded(path)
    except StoreError:
        assert cut < len(whole)
    else:
        assert found == records[: len(found)]
        assert len(found) + again.lost == len(records)


KILLED = """
import os, sys
from pathlib import Path
from memory.adapter import AppendLog
log = AppendLog(Path(sys.argv[1]))
for number in range(len(log.load()), 10**6):
    log.append(b"%d" % number)
    os.write(1, b"%d\\n" % number)
"""


@pytest.mark.thorough
def test_killed_at_any_moment_nothing_acknowledged_is_lost(path):
    for round_ in range(100):
        with subprocess.Popen([sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE) as process:
            for _ in range(20 + round_ * 7):
                process.stdout.readline()
            process.send_signal(signal.SIGKILL)
            acknowledged = process.stdout.read().rsplit(b"\n", 1)[0].splitlines()
        log, records = loaded(path)
        assert [int(record) for record in records] == list(range(len(records)))
        assert log.lost == 0
        if acknowledged:
            assert len(records) > int(acknowledged[-1])


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


def test_a_file_that_could_not_be_begun_is_told_as_that(path, monkeypatch):
    """An error of the tidying up would stand in place of what to mend."""

    def refused(*given):
        raise PermissionError(errno.EACCES, "not allowed")

    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(PermissionError, match="not allowed"):
        replace_file(path, "words")


def test_a_directory_that_could_not_be_made_leaves_nothing(tmp_path: Path) -> None:
    """What was begun holds words of somebody, and nobody would look for it."""
    with pytest.raises(FileNotFoundError), staged_directory(tmp_path / "made") as making:
        making.joinpath("words", "of", "nobody").write_text("tea")
    assert list(tmp_path.iterdir()) == []
    with staged_directory(tmp_path / "made") as making:
        assert making.parent == tmp_path, "from where it is moved at once"
        making.joinpath("words").write_text("tea")
    assert (tmp_path / "made" / "words").read_text() == "tea"


def test_what_was_interrupted_is_swept(tmp_path: Path) -> None:
    for name in (".new-1", ".gone-1", "kept"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "words").write_text("tea")
    sweep_directories(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
