"""Files and directories of memslot's own are written whole or not at all."""

import errno
import os

import pytest

from memory.adapter.stores import replace_file, staged_directory, sweep_directories


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
