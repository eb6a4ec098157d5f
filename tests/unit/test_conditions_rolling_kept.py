"""rolling_summary over several processes, and its configuration."""

import shutil

import anyio
import pytest
from rolling_support import ALICE, Host, Noting, event

from conditions import rolling_summary
from memory import ConfigError, open_memory


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(rolling_summary, "_PAUSE_S", 0.001)


async def test_everything_outlives_the_process(tmp_path):
    async with Host(path=tmp_path) as host:
        await host.write(
            event(1, "I prefer oolong tea."), event(2, "Books about ships please.", session="s2")
        )
        before = await host.ask()
    async with Host(path=tmp_path) as host:
        after = await host.ask()
        assert (after.raw, after.entries) == (before.raw, before.entries)
        assert await host.native("pending") == ["[2026-01-01 10:02] USER: Books about ships please."]
        (again,) = await host.write(event(1, "I prefer coffee."))
        assert again.warnings
        assert (await host.ready()).state == "ready"
        assert "Books about ships" in (await host.ask()).formatted_context
        assert len(await host.native("history")) == 2
        assert (await host.slot.reset_scope(ALICE)).verified
    async with Host(path=tmp_path) as host:
        assert (await host.ask()).formatted_context == ""
        assert await host.native("history") == []


@pytest.mark.parametrize("durability", ["process", "machine"])
async def test_the_memory_and_how_far_it_reaches_are_written_together(tmp_path, durability):
    """Killed after any write, the messages of the memory are exactly those that do not wait."""
    async with Host(path=tmp_path, durability=durability) as host:
        await host.write(event(1, "I prefer oolong tea."))
        await host.ready()
        await host.write(event(2, "I prefer green tea.", session="s2"))
        shutil.copytree(tmp_path, tmp_path / "later")  # as a killed process leaves it
    async with Host(path=tmp_path / "later") as host:
        assert (await host.state()).pending_count == 1
        assert "oolong" in (await host.ask()).raw["memory"]
        assert len(await host.native("history")) == 1


async def test_a_summary_that_another_process_made_meanwhile_is_kept(tmp_path):
    """Both ask their models for the same messages; the first to end is right, and nothing is summarised twice."""
    async with Host(Noting(), path=tmp_path) as slow, Host(Noting(), path=tmp_path) as quick:
        await slow.write(event(1, "one"), event(2, "two"))
        slow.summariser.hold = anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(slow.ready)
            await anyio.wait_all_tasks_blocked()
            assert (await quick.ready()).state == "ready"
            slow.summariser.hold.set()
        for host in (slow, quick):
            assert (await host.ask()).raw["memory"] == "one\ntwo"
            assert await host.native("history") == ["[entry] 2"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"summariser": "llm"}, "summariser llm needs the block llm with base_url and model"),
        ({"llm": {"base_url": "http://x/v1", "model": "m"}}, "llm is given but summariser is extractive"),
        ({"summariser": "llm", "llm": {"base_url": "x", "model": "m"}}, "rolling_summary.llm.base_url"),
        ({"summariser": "llm", "llm": {"base_url": "http://x", "model": " "}}, "rolling_summary.llm.model"),
        ({"max_tokens": 0}, "rolling_summary.max_tokens"),
        ({"context_window_tokens": 5120}, "rolling_summary.context_window_tokens"),
        ({"update_policy": "always"}, "rolling_summary.update_policy"),
    ],
)
async def test_wrong_options_name_the_field(options, message):
    config = {"memory": {"condition": "rolling_summary", "conditions": {"rolling_summary": options}}}
    with pytest.raises(ConfigError) as caught:
        async with open_memory(config, scope=ALICE):
            pass
    assert message in str(caught.value)


async def test_from_configuration(tmp_path):
    config = {"memory": {"condition": "rolling_summary", "data_dir": str(tmp_path)}}
    async with open_memory(config, scope=ALICE) as slot:
        await slot.after_turn(session_id="s1", user="I prefer oolong tea.")
        await slot.after_turn(session_id="s2", user="Hello again.")
        assert "I prefer oolong tea." in await slot.before_turn("?", session_id="s2")
