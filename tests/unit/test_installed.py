"""What is installed is read once, and again as soon as it is not the same any more."""

import os
import sys
from importlib import metadata

import pytest

from memory.plugins.installed import entry_points, packages_distributions


def add(directory, name):
    """As an installer would, in a directory that Python has looked at before."""
    before = directory.stat().st_mtime_ns
    folder = directory / f"{name}-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(f"[group.of.ours]\n{name} = {name}_module\n")
    (folder / "top_level.txt").write_text(f"{name}_module\n")
    os.utime(directory, ns=(before + 10**9, before + 10**9))  # a clock may be too coarse for a test


@pytest.mark.thorough
def test_what_is_installed_meanwhile_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(tmp_path / "nowhere"), *sys.path])
    assert list(entry_points("group.of.ours")) == []
    add(tmp_path, "oolong")
    assert [point.value for point in entry_points("group.of.ours")] == ["oolong_module"]
    assert packages_distributions()["oolong_module"] == ["oolong"]
    add(tmp_path, "sencha")
    assert {point.name for point in entry_points("group.of.ours")} == {"oolong", "sencha"}
    assert packages_distributions()["sencha_module"] == ["sencha"]


def test_what_has_not_changed_is_not_read_again(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    add(tmp_path, "oolong")
    found = [point.value for point in entry_points("group.of.ours")], packages_distributions()
    monkeypatch.delattr(metadata, "entry_points")
    monkeypatch.delattr(metadata, "packages_distributions")
    assert ([point.value for point in entry_points("group.of.ours")], packages_distributions()) == found
    assert list(entry_points("another.group")) == []
