"""``memslot tools stigmem`` as hooks use it: 0 whatever the node does, unless ``--process`` is asked for."""

import os
import subprocess
import sys

import pytest
from abi_support import AGENT, OTHER, USER, FaultyNode, closed_port
from cli_support import invoke

WRITES = {
    "checkout": ["checkout", "t-1"],
    "done": ["done", "t-1"],
    "ping": ["ping", "t-1"],
    "blocked": ["blocked", "t-1", "--by", "t-2"],
    "handoff": ["handoff", "--to", OTHER, "--summary", "s", "--ref", "f1", "--continuation", "c"],
    "decide": ["decide", "use-sqlite", "--summary", "s"],
    "escalate": ["escalate", "--to", OTHER, "--goal", "g", "--priority", "high"],
}
ALL = {**WRITES, "boot": ["boot", USER]}
every = pytest.mark.parametrize("command", ALL)


def run(*arguments, url, source=AGENT):
    env = {"STIGMEM_URL": url, "STIGMEM_SOURCE_ENTITY": source, "STIGMEM_API_KEY": None}
    whole = len([argument for argument in arguments if not argument.startswith("--")]) > 1
    wait = ("--wait", "60") if whole and "--wait" not in arguments else ()
    return invoke("tools", "stigmem", *arguments, *wait, env=env)


def relations(node):
    return [fact["relation"] for fact in node.node.facts]


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("checkout", ["paperclip:checkout"]),
        ("done", ["paperclip:issue_status"]),
        ("ping", ["paperclip:last_active"]),
        ("blocked", ["paperclip:issue_status", "paperclip:blocked_by"]),
        (
            "handoff",
            ["intent:handoff_summary", "intent:context_ref", "intent:continuation", "intent:handoff_to"],
        ),
        ("decide", ["roadmap:decision"]),
        ("escalate", ["intent:goal", "intent:escalate_to", "intent:escalation"]),
    ],
)
@pytest.mark.parametrize("flags", [[], ["--process"]])
def test_each_write_stores_its_facts_and_prints_its_uri(double, command, expected, flags):
    result = run(*WRITES[command], *flags, url=double.url)
    assert (result.exit_code, result.stderr) == (0, "")
    assert relations(double) == expected
    assert {fact["entity"] for fact in double.node.facts} == {result.stdout.strip()}
    assert {fact["source"] for fact in double.node.facts} == {AGENT}


def test_boot_prints_what_goes_into_the_prompt_and_nothing_else(double):
    assert run("boot", USER, url=double.url).output == ""
    run("handoff", "--to", AGENT, "--summary", "half done", url=double.url)
    result = run("boot", USER, url=double.url)
    assert result.stdout.startswith(f"## Stigmem context — {USER}\n\n### intent\n- **intent:handoff_")
    assert result.stderr == ""
    assert run("boot", USER, "--process", url=double.url).stdout == result.stdout


@every
def test_without_a_url_middleware_is_silent_and_a_process_fails(command):
    result = run(*ALL[command], url=None)
    assert (result.exit_code, result.output) == (0, "")
    failed = run(*ALL[command], "--process", url=None)
    assert failed.exit_code == 2
    assert failed.stdout == ""
    assert failed.stderr.startswith("error: STIGMEM_URL: is not set; set it to the node")
    assert failed.stderr.count("\n") == 1


@every
@pytest.mark.parametrize("fault", ["refused", "500", "unreadable"])
def test_whatever_the_node_does_middleware_exits_with_0_and_a_process_with_1(
    command, fault, monkeypatch, caplog
):
    monkeypatch.setattr("anyio.sleep", _no_pause)
    faults = dict.fromkeys(range(1, 99), fault) if fault != "refused" else {}
    with FaultyNode(faults) as node:
        url = node.url if faults else closed_port()
        result = run(*ALL[command], url=url)
        assert (result.exit_code, result.stdout) == (0, ""), result.output
        assert result.stderr + caplog.text != ""
        failed = run(*ALL[command], "--process", url=url)
    assert failed.exit_code == 1, failed.output
    assert failed.stdout == ""
    assert failed.stderr.startswith("error: stigmem: ")


async def _no_pause(seconds):
    return None


def python(code, **env):
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_the_command_line_imports_no_http_client():
    loaded = "{'httpx', 'memory.stigmem.client', 'memory.backends.stigmem'} & set(sys.modules)"
    assert python(f"import sys, memory.cli.app; sys.exit(bool({loaded}))").returncode == 0


@pytest.mark.thorough
@pytest.mark.parametrize(("flags", "code"), [("", 0), (", '--process'", 2)])
def test_without_the_extra_the_line_to_install_it_is_said(flags, code):
    result = python(
        "import sys; sys.modules['httpx'] = None; from memory.cli import main; "
        f"sys.argv = ['memslot', 'tools', 'stigmem', 'boot', '{USER}'{flags}]; main()",
        STIGMEM_URL="http://127.0.0.1:1",
    )
    assert (result.returncode, result.stdout) == (code, "")
    assert "pip install 'memslot[stigmem]'" in result.stderr
