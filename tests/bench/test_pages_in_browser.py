"""The pages as Chromium lays them out, on a phone and a desk, light and dark, and in print; skipped without it."""

import contextlib
import html
import json
import re
import shutil
import subprocess
from dataclasses import replace
from functools import partial
from importlib.util import find_spec

import anyio
import pytest
from bench_support import config_of, locomo_sample, registry_with, run, write_locomo

from memory import open_memory_sync
from memory.bench.engine.experiment import Listeners, begin
from memory.bench.engine.matrix import load_experiment
from memory.bench.report.page import Block, Page
from memory.bench.report.report import write_page
from memory.cli._view import ViewServer
from memory.testing import FakeBackend

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed (Debian: apt install chromium)"),
]

MEASURE = """
addEventListener("load", () => {
  const measured = {};
  for (const frame of document.querySelectorAll("iframe")) {
    const page = frame.contentDocument, root = page.documentElement, cut = [], met = [], faint = [];
    for (const node of page.querySelectorAll("details")) node.open = true;
    for (const svg of page.querySelectorAll("svg")) {
      const room = svg.getBoundingClientRect(), seen = [];
      for (const text of svg.querySelectorAll("text")) {
        const box = text.getBoundingClientRect();
        if (box.left < room.left - 1 || box.right > room.right + 1 || box.bottom > room.bottom + 1)
          cut.push(text.textContent);
        for (const [other, name] of seen)
          if (box.left < other.right - 1 && other.left < box.right - 1 && box.top < other.bottom - 3
              && other.top < box.bottom - 3) met.push(name + " / " + text.textContent);
        seen.push([box, text.textContent]);
      }
    }
    const light = (colour) => {
      const [r, g, b] = colour.match(/[\\d.]+/g).map(Number).map((v) => v / 255)
        .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const behind = (node) => {
      for (; node; node = node.parentElement) {
        const colour = frame.contentWindow.getComputedStyle(node).backgroundColor;
        if (!/, 0\\)$/.test(colour)) return colour;
      }
      return "rgb(255, 255, 255)";
    };
    const texts = "h1, h2, p, td, th, li, a, .badge, .name, .figure, svg text, summary, small, pre";
    for (const node of page.querySelectorAll(texts)) {
      const style = frame.contentWindow.getComputedStyle(node);
      const ink = node.tagName === "text" ? style.fill : style.color;
      const [a, b] = [light(ink), light(behind(node))].sort().reverse();
      if ((a + 0.05) / (b + 0.05) < 4.5) faint.push(node.textContent.trim().slice(0, 40));
    }
    const broken = [];
    for (const head of page.querySelectorAll("th, h1, h2")) {
      const walker = page.createTreeWalker(head, NodeFilter.SHOW_TEXT);
      for (let node; node = walker.nextNode();)
        for (const word of node.data.matchAll(/[^\\s-]+/g)) {
          const range = page.createRange();
          range.setStart(node, word.index); range.setEnd(node, word.index + word[0].length);
          const tops = new Set([...range.getClientRects()].map((box) => Math.round(box.top)));
          if (tops.size > 1 && word[0].length < 30) broken.push(word[0]);
        }
    }
    const paper = light(behind(page.querySelector("section")));
    const tables = [...page.querySelectorAll(".wide")].filter((box) => box.scrollWidth > box.clientWidth + 1)
      .map((box) => box.parentElement.querySelector("h2").textContent);
    const opened = [...page.querySelectorAll("details pre")].every((text) => text.clientHeight > 0);
    measured[frame.id] = {paper, wide: root.scrollWidth, room: frame.clientWidth, cut, met, faint, tables, opened,
                      broken};
  }
  document.body.innerHTML = "";
  const out = document.createElement("pre");
  out.id = "measured";
  out.textContent = JSON.stringify(measured);
  document.body.append(out);
});
"""


def laid_out(folder, pages, *, dark=False, widths=(390, 1280)):
    """What the browser measured of each page, on a phone and a desk (pixels), all that opens open."""
    measured = {}
    for name, text in pages.items():
        measured |= measured_by_chromium(folder, name, text, dark=dark, widths=widths)
    return measured


def measured_by_chromium(folder, name, text, *, dark, widths):
    frames = "".join(
        f'<iframe id="{name}, {width}" style="width:{width}px;height:900px;border:0" '
        f'srcdoc="{html.escape(text)}"></iframe>'
        for width in widths
    )
    file = folder / f"{name.replace('/', '-')}-{'dark' if dark else 'light'}.html"
    file.write_text(f"<!doctype html><body>{frames}<script>{MEASURE}</script></body>", encoding="utf-8")
    command = [
        CHROMIUM,
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--disable-background-networking",
        "--host-resolver-rules=MAP * ~NOTFOUND",
        f"--user-data-dir={folder / 'profile'}",
        f"--blink-settings=preferredColorScheme={0 if dark else 1}",
        "--window-size=1300,1000",
        "--dump-dom",
        file.as_uri(),
    ]
    for _ in range(2):
        with contextlib.suppress(subprocess.TimeoutExpired):
            dom = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300).stdout
            if measured := re.search(r'<pre id="measured">(.*?)</pre>', dom, re.DOTALL):
                return json.loads(html.unescape(measured[1]))
    pytest.skip("Chromium itself did not get to laying the pages out, twice")


def played(folder, **block):
    """The page of an experiment: of every control, and of one with two settings."""
    rag = {
        "provider": "simple_rag",
        "name": "simple_rag, a third of the tokens",
        "budget": {"max_tokens": 200},
    }
    providers = ["no_memory", "full_history", rag, "rolling_summary"]
    providers += ["oracle_ipas"] if "game" in block else []
    conditions = {"no_memory": {}, "full_history": {}, "simple_rag": {}, "rolling_summary": {}}
    content = {
        "memory": {
            "condition": "no_memory",
            "budget": {"max_tokens": 600},
            "conditions": {**conditions, "oracle_ipas": {}},
        },
        "bench": {"providers": providers, "doctor": False, "output": str(folder), **block},
    }
    listeners = Listeners(write_page=write_page)
    return begin(load_experiment(content), listeners=listeners).report.read_text(encoding="utf-8")


def questions(folder):
    data = write_locomo(folder / "talks.json", locomo_sample("one"), locomo_sample("two"))
    return played(folder / "runs", timeline="locomo", data=str(data))


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    def stand_in():
        adapter = FakeBackend(name="fake")
        adapter.traits = replace(
            adapter.traits,
            kind="control",
            equivalent_control="simple_rag",
            fallback_components=("lexical embedder",),
        )
        return adapter

    game = {"users": 2, "sessions": 10, "tests": 4}
    block = {"game": game, "keep_texts": True, "output": str(tmp_path_factory.mktemp("runs"))}
    content = config_of("fake", run=block, budget={"max_tokens": 400, "min_tokens": 300})
    content["memory"]["conditions"] = {"no_memory": {}, "full_history": {}, "oracle_ipas": {}}
    names = ["no_memory", "full_history", "oracle_ipas", "fake"]
    compared, alone = (
        anyio.run(partial(run, content, registry=registry_with(stand_in), providers=providers))
        for providers in (names, None)
    )
    word = "x" * 10_000
    long = Page(
        word, [word], None, word, [word], problems=[word], quotes=True,
        blocks=[Block(word, points=[word], details=[(word, word)], note=word),
                Block("facts", rows=[("name", word)])],
    )  # fmt: skip
    return {
        "word": long.render(),
        "game": played(tmp_path_factory.mktemp("game"), game={"users": 2, "sessions": 24, "tests": 8}),
        "budgets": played(
            tmp_path_factory.mktemp("budgets"),
            game={"users": 2, "sessions": 10, "tests": 4},
            budgets=[300, 2000],
        ),
        "questions": questions(tmp_path_factory.mktemp("questions")),
        "comparison": compared.report.read_text(encoding="utf-8"),
        "run": alone.report.read_text(encoding="utf-8"),
    }


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_pages_can_be_read_on_a_phone_and_a_desk(pages, tmp_path, dark):
    measured = laid_out(tmp_path, pages, dark=dark)
    assert len(measured) == 2 * len(pages)
    for name, seen in measured.items():
        assert (seen["paper"] < 0.2) == dark, f"{name}: the paper is of the other scheme"
        assert seen["wide"] <= seen["room"], f"{name}: the page is wider than the screen"
        assert not seen["cut"], f"{name}: labels beyond the edge of their plot"
        assert not seen["met"], f"{name}: labels over one another"
        assert not seen["faint"], f"{name}: text too faint on what is behind it"
        assert not seen["broken"], f"{name}: headings that break inside a word"
        assert seen["opened"], f"{name}: what can be opened shows nothing"
        if name.startswith(("game", "questions")) and name.endswith("1280"):
            assert not seen["tables"], f"{name}: tables that have to be scrolled"


def test_pages_are_printed_whole(pages, tmp_path):
    """On paper nothing can be scrolled: as laid out for print, on A4 with its margins."""
    printed = {name: text.replace("@media print", "@media screen") for name, text in pages.items()}
    for name, seen in laid_out(tmp_path, printed, widths=(720,)).items():
        assert seen["wide"] <= seen["room"], f"{name}: wider than the paper"
        assert not seen["tables"], f"{name}: tables cut off"
        assert not seen["cut"], f"{name}: labels cut off"


@pytest.mark.skipif(find_spec("mem0") is None, reason="mem0ai is not installed")
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_memory_and_a_turn_can_be_read_on_a_phone_and_a_desk(tmp_path, dark):
    file = tmp_path / "my.yaml"
    file.write_text(
        "memory: {backend: mem0, journal: true, scope: {run_id: home, persona_id: ada}}", encoding="utf-8"
    )
    with open_memory_sync(file) as memory, ViewServer(memory, config=file, runs=tmp_path) as server:
        long = f"Oolong tea with {'x' * 300}"
        memory.after_turn(user=long, assistant="Noted.", session_id="monday")
        memory.before_turn("Which tea do I like?", session_id="tuesday")
        memory.after_turn(user="Which tea do I like?", assistant="Oolong.", session_id="tuesday")
        asked = {"memory": "", "asked": "Which tea?", "turns": "", "turns/2": ""}
        pages = {name: server.page(name if "turn" in name else "", text) for name, text in asked.items()}
    assert "Recalled then" in pages["turns/2"]
    measured = laid_out(tmp_path, pages, dark=dark, widths=(390, 1280))
    assert len(measured) == 8
    for name, seen in measured.items():
        assert seen["wide"] <= seen["room"], f"{name}: the page is wider than the screen"
        assert not seen["faint"], f"{name}: text too faint on what is behind it"
        assert not seen["broken"], f"{name}: headings that break inside a word"
