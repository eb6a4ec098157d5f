"""``memslot view``: the runs of a directory as one list, for a browser of this machine."""

import threading
from html import unescape

import httpx
import pytest
from typer.testing import CliRunner

from memory import ConfigError
from memory.bench.engine.experiment import Listeners, begin
from memory.bench.engine.matrix import load_experiment
from memory.bench.report.report import write_page
from memory.bench.report.view import listing, runs_below
from memory.cli._view import ViewServer
from memory.cli.app import app


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    directory = tmp_path_factory.mktemp("runs")
    content = {
        "memory": {"condition": "no_memory", "conditions": {"no_memory": {}, "full_history": {}}},
        "bench": {
            "providers": ["no_memory", "full_history"],
            "game": {"users": 1, "sessions": 10, "tests": 2},
            "doctor": False,
            "output": str(directory),
        },
    }
    begin(load_experiment(content), listeners=Listeners(write_page=write_page))
    broken = directory / "broken <b>"
    broken.mkdir()
    (broken / "manifest.json").write_text("{", encoding="utf-8")
    (directory / "private.html").write_text("not a page of a run", encoding="utf-8")
    return directory


@pytest.fixture
def served(runs):
    with ViewServer(runs=runs) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        with httpx.Client(base_url=server.url, trust_env=False) as client:
            yield client
        server.shutdown()
        thread.join()


@pytest.mark.thorough
def test_the_list_names_each_run_and_who_won(served, runs):
    page = served.get("/").text
    (run,) = [run for run in runs_below(runs) if run.manifest]
    assert f'<a href="/runs/{run.path}/report.html">' in page
    assert run.verdict in unescape(page)
    for number, shown in enumerate(run.shown, start=1):
        assert f'<a href="/runs/{run.path}/report.html#requests-{number}">{shown}</a>' in page, (
            "one click to what lost"
        )
    assert run.verdict.startswith("At 2,000 tokens, ")
    assert "cannot be read" in page
    assert "broken &lt;b&gt;" in page


def test_a_link_leads_to_the_page_of_the_run(served, runs):
    (run,) = [run for run in runs_below(runs) if run.manifest]
    answer = served.get(f"/runs/{run.path}/report.html")
    assert answer.text == (runs / run.path / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "path", ["private.html", "broken%20%3Cb%3E/manifest.json", "%2e%2e/%2e%2e/etc/passwd", "report.html"]
)
def test_nothing_but_pages_of_runs_is_served(served, path):
    assert served.get(f"/runs/{path}").status_code == 404


def test_nothing_played_yet_is_said(tmp_path):
    assert "nothing was played here yet" in listing(tmp_path)


def test_what_cannot_be_viewed_is_refused_in_one_line(tmp_path):
    with pytest.raises(ConfigError, match="missing: is no directory; give the one in which results"):
        runs_below(tmp_path / "missing")
    with ViewServer(runs=tmp_path) as server:
        port = server.server_address[1]
        refused = CliRunner().invoke(app, ["view", str(tmp_path), "--port", str(port)])
    assert refused.exit_code == 2
    assert f"--port {port}: Address already in use; 0 takes a free one" in refused.stderr
