"""`import memslot`: the page of hosts, and a sentence where a package of another distribution hides it."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import memory
import memslot

ROOT = Path(memory.__file__).parents[1]


def test_every_name_of_the_page_is_there():
    assert memslot.__all__ == memory.__all__
    for name in memory.__all__:
        assert getattr(memslot, name) is getattr(memory, name)
    assert memslot.__version__ == memory.__version__
    with pytest.raises(AttributeError):
        memslot.no_such_name  # noqa: B018


def installed(site, package, distribution):
    """A site with memslot in it, one package of which another distribution has written over."""
    shutil.copy(ROOT / "memslot.py", site)
    for name in memslot.PACKAGES:
        (site / name).mkdir()
        (site / name / "__init__.py").write_text('"""memslot"""\n')
    (site / package / "__init__.py").write_text("VERSION = 1\n")
    if distribution:
        info = site / f"{distribution}-1.0.dist-info"
        info.mkdir()
        info.joinpath("METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
        info.joinpath("RECORD").write_text(f"{package}/__init__.py,,\n")


def run(site, code):
    command = [sys.executable, "-ES", "-c", f"import sys; sys.path.insert(0, {str(site)!r}); {code}"]
    return subprocess.run(command, capture_output=True, text=True, cwd=site, check=False)


@pytest.mark.parametrize("package", memslot.PACKAGES)
@pytest.mark.parametrize("code", ["import memslot; memslot.main()", "from memslot import open_memory"])
def test_another_distribution_in_the_way_is_named_with_what_mends_it(tmp_path, package, code):
    installed(tmp_path, package, "rememberall")
    done = run(tmp_path, code)
    assert done.returncode != 0
    last = done.stderr.strip().splitlines()[-1]
    assert f"rememberall has its own package {package!r}" in last
    assert "pip uninstall rememberall && pip install --force-reinstall --no-deps memslot" in last


def test_a_file_of_one_s_own_in_the_way_is_named(tmp_path):
    site, here = tmp_path / "site", tmp_path / "here"
    site.mkdir()
    here.mkdir()
    installed(site, "conditions", None)
    (here / "memory.py").write_text("")
    done = run(site, f"sys.path.insert(0, {str(here)!r}); import memslot; memslot.main()")
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert f"{here / 'memory.py'} hides memslot's package 'memory'" in done.stderr


@pytest.mark.thorough
def test_the_module_is_the_command_too():
    done = subprocess.run(
        [sys.executable, "-m", "memslot", "--version"], capture_output=True, text=True, cwd=ROOT
    )
    assert done.stdout == f"memslot {memory.__version__}\n"
    done = subprocess.run(
        [sys.executable, "-m", "memslot", "no-such"], capture_output=True, text=True, cwd=ROOT
    )
    assert "see 'memslot --help'" in done.stderr


def test_a_package_that_is_missing_is_said(tmp_path):
    installed(tmp_path, "memory", None)
    shutil.rmtree(tmp_path / "memory")
    assert "memslot's package 'memory' is missing" in run(tmp_path, "import memslot; memslot.main()").stderr


def test_the_name_alone_imports_nothing_heavy():
    code = "import memslot; print(sorted({'pydantic', 'anyio', 'memory'} & set(sys.modules)))"
    assert run(ROOT, code).stdout.strip() == "[]"
