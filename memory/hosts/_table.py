"""The table of hosts: package, tested releases, and promises that an SDK makes impossible.

``cannot`` names promises of :class:`memory.testing.HostContract`; the suite leaves them out with that reason, and
the table in docs/hosts.md is made of the same words.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from types import MappingProxyType

from memory import PluginLoadError


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """An agent framework that memslot binds to."""

    name: str  # on the command line, of its module in ``memory.hosts``, and of its extra
    title: str
    shown: str  # to the model: what, and for how long
    recorded: str
    distribution: str | None = None  # on PyPI; None where it is no Python package
    tested: tuple[str, str] | None = None  # from this release, to below that one
    tested_by: str = ""  # where it is no Python package
    cannot: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))  # a promise -> why

    @property
    def install(self) -> str:
        return f"pip install 'memslot[{self.name if self.distribution else 'mcp'}]'"

    @property
    def installed(self) -> str | None:
        try:
            return metadata.version(self.distribution) if self.distribution else None
        except metadata.PackageNotFoundError:
            return None

    @property
    def untested(self) -> str | None:
        """One sentence where the installed release is outside the tested range; else None."""
        version = self.installed
        if version is None or self.tested is None:
            return None
        lowest, below = self.tested
        if _numbers(lowest) <= _numbers(version) < _numbers(below):
            return None
        return (
            f"{self.distribution} {version} is installed; memory.hosts.{self.module} was tested with "
            f"{lowest} and newer, below {below}: pip install '{self.distribution}>={lowest},<{below}'"
        )

    @property
    def module(self) -> str:
        return self.name.replace("-", "_")

    def program(self, config: str) -> str:
        """Lines to paste, for a configuration at this path."""
        file = Path(__file__).with_name("_files") / "programs" / f"{self.name}.txt"
        program = file.read_text("utf-8")
        # Commands, or JSON and Python, which write a string alike.
        quoted = (
            shlex.quote(config) if program.startswith("#") else json.dumps(config, ensure_ascii=False)[1:-1]
        )
        return program.replace("{config}", quoted)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.split("+")[0])[:3])


_IN_THE_ANSWER = "a failing tool says so in its answer, with which the model goes on"
_NO_IDS = "messages have no ids, so an edited or regenerated turn is another one; the memory has both"
_EDITS = dict.fromkeys(
    ("an_edited_question_replaces_the_first", "a_regenerated_answer_replaces_the_first"), _NO_IDS
)
_OWN_PROCESS = "a server is a process of its own"
_HOSTS = (
    Host(
        name="nanobot",
        title="Nanobot",
        distribution="nanobot-ai",
        tested=("0.3.5", "0.4"),
        shown="a section below the user's message, from before the model is called",
        recorded="when Nanobot has saved the turn; nothing for `ephemeral=True`",
        cannot={
            "a_failed_turn_that_is_asked_again_is_recorded_once": "Nanobot answers for a failed model",
            "works_from_another_event_loop": "a bot belongs to one event loop",
            "works_without_await": "Nanobot's SDK is awaited",
            "a_call_that_blocks_the_loop_of_the_memory_is_refused_in_words": "Nanobot's SDK is awaited",
            "a_cancelled_turn_leaves_no_answer": "a bot goes on with its turn when its caller is cancelled",
            "picture": "a turn is text",
            "what_holds_no_words_is_counted_and_named": "a turn is text",
            "an_edited_question_replaces_the_first": "a bot takes no edited question",
            "a_regenerated_answer_replaces_the_first": "a bot answers a question once",
            "a_front_end_that_sends_the_whole_list_each_time": "a bot keeps its conversations itself",
            "the_task_of_a_helper_is_not_recorded": "a bot's helpers report under names of their own, which are "
            "known and not recorded",
            "an_approval_that_comes_after_a_restart": "a bot waits for no approval",
        },
    ),
    Host(
        name="langchain",
        title="LangChain and LangGraph",
        distribution="langchain",
        tested=("1.4", "2"),
        shown="a section below the user's message, in every model call of the turn",
        recorded="when the agent has ended",
    ),
    Host(
        name="openai-agents",
        title="OpenAI Agents SDK",
        distribution="openai-agents",
        tested=("0.24", "1"),
        shown="a section below the user's message, in every model call of the run",
        recorded="when the agent that answers has ended",
        cannot=_EDITS,
    ),
    Host(
        name="llama-index",
        title="LlamaIndex",
        distribution="llama-index-core",
        tested=("0.14", "0.15"),
        shown="a section as a message of its own before the conversation, in every model call of the turn",
        recorded="when the agent has answered",
        cannot=_EDITS,
    ),
    Host(
        name="crewai",
        title="CrewAI",
        distribution="crewai",
        tested=("1.15", "2"),
        shown="a section as the last message, in every model call of a task",
        recorded="when a task has ended; its description and its output",
        cannot={
            "streams": "a crew that streams runs its tasks as one that does not",
            "a_tool_result_of_fifteen_thousand_words": "CrewAI gives up a task whose tool's result is that long",
            "a_stream_that_is_left_early_spoils_no_later_turn": "a crew that streams runs its tasks as one that "
            "does not",
            **dict.fromkeys(
                (
                    "an_edited_question_replaces_the_first",
                    "a_regenerated_answer_replaces_the_first",
                    "a_front_end_that_sends_the_whole_list_each_time",
                    "an_approval_that_comes_after_a_restart",
                    "a_summary_in_the_middle",
                ),
                "a crew keeps no conversation: a task is asked and answered",
            ),
            "a_cancelled_turn_leaves_no_answer": "a crew runs in a thread, which goes on without its caller",
            "picture": "a task's description is text",
            "what_holds_no_words_is_counted_and_named": "a task's description is text",
        },
    ),
    Host(
        name="strands",
        title="Strands Agents",
        distribution="strands-agents",
        tested=("1.46", "2"),
        shown="entries below the user's message, in Strands' own form, for one model call",
        recorded="in the background after each invocation, a structured output as JSON; `await manager.flush()` "
        "before the end",
        cannot=_EDITS,
    ),
    Host(
        name="adk",
        title="Google ADK",
        distribution="google-adk",
        tested=("2.10", "3"),
        shown="entries, in ADK's own form, by its `PreloadMemoryTool`, in every model call of the run",
        recorded="by `RecordingPlugin`, when a run has ended",
        cannot={
            **_EDITS,
            "a_summary_in_the_middle": "ADK appends what it compacts to its events, and takes none out",
        },
    ),
    Host(
        name="pydantic-ai",
        title="pydantic-ai",
        distribution="pydantic-ai-slim",
        tested=("2.55", "3"),
        shown="a section beside the user's prompt, in every model call of the run",
        recorded="when a run has ended",
        cannot=_EDITS,
    ),
    Host(
        name="agent-framework",
        title="Microsoft Agent Framework",
        distribution="agent-framework-core",
        tested=("1.15", "2"),
        shown="a section as a message of its own before the input of a run",
        recorded="when a run has ended",
        cannot={
            "works_without_await": "the SDK has no call that is not awaited",
            "a_call_that_blocks_the_loop_of_the_memory_is_refused_in_words": "the SDK has no such call",
        },
    ),
    Host(
        name="claude-code",
        title="Claude Code",
        tested_by="by the JSON it documents",
        shown="a section in the context, by the hook `UserPromptSubmit`",
        recorded="by the hook `Stop`, into an outbox that the MCP server of the same plugin delivers",
        cannot={"keeps_no_section": "Claude Code keeps what a hook printed in its context"},
    ),
    Host(
        name="codex",
        title="Codex",
        tested_by="Codex CLI 0.169.0",
        shown="a section as a developer message after the user's, by the hook `UserPromptSubmit`",
        recorded="by the hook `Stop`, into an outbox that its MCP server delivers",
        cannot={"keeps_no_section": "Codex keeps what a hook printed in its context"},
    ),
    Host(
        name="cursor",
        title="Cursor",
        tested_by="by the JSON it documents",
        shown="a section, by a field of `beforeSubmitPrompt` that Cursor takes and does not document; "
        "else what the model asks for by `memory_search`",
        recorded="by the hook `stop`, into an outbox that its MCP server delivers",
        cannot={"keeps_no_section": "Cursor keeps what a hook printed in its context"},
    ),
    Host(
        name="mcp",
        title="MCP clients",
        distribution="mcp",
        tested=("1.25", "3"),
        shown="what the model asks for by `memory_search` and `memory_get`",
        recorded="when the model calls `memory_store`",
        cannot={
            "recall": "an MCP server is asked; it neither recalls nor records by itself",
            "records_turns_once_and_in_order": "a tool stores a memory, and is not given who said it",
            "names_the_conversation": "a client tells no server which conversation it is in",
            "streams": "a server does not see how its client answers",
            "a_memory_that_fails_costs_no_turn_and_is_reported": _IN_THE_ANSWER,
            "a_closed_memory_costs_no_turn_and_is_reported": _IN_THE_ANSWER,
            "works_from_another_event_loop": _OWN_PROCESS,
            "works_without_await": _OWN_PROCESS,
            "a_call_that_blocks_the_loop_of_the_memory_is_refused_in_words": _OWN_PROCESS,
            "a_second_memory_on_an_agent_is_refused": "a client may have several servers, each by its name",
        },
    ),
    Host(
        name="hermes",
        title="Hermes Agent",
        distribution="hermes-agent",
        tested=("0.19", "1"),
        shown="a section below the user's message, in every model call of the turn",
        recorded="behind the answer, on Hermes' own thread; a turn of another person than the session's is refused",
        cannot={
            "keeps_no_section": "Hermes keeps what it sent, section included, and sends it again in later turns",
            "streams": "a provider is not told whether an answer was streamed",
            **dict.fromkeys(
                (
                    "an_edited_question_replaces_the_first",
                    "a_regenerated_answer_replaces_the_first",
                    "a_front_end_that_sends_the_whole_list_each_time",
                    "a_tool_result_of_fifteen_thousand_words",
                    "what_holds_no_words_is_counted_and_named",
                    "the_task_of_a_helper_is_not_recorded",
                    "a_stream_that_is_left_early_spoils_no_later_turn",
                    "an_approval_that_comes_after_a_restart",
                    "a_summary_in_the_middle",
                ),
                "a provider is given a question and its answer when a turn has ended, and sees nothing else",
            ),
            "a_cancelled_turn_leaves_no_answer": "Hermes hands over no turn that was interrupted",
            "a_second_memory_on_an_agent_is_refused": "Hermes refuses a second provider itself, in its log",
        },
    ),
)
HOSTS = {host.name: host for host in _HOSTS}


def host_named(name: str) -> Host:
    """A host by its name.

    Raises:
        PluginLoadError: the table has no such host.
    """
    if name not in HOSTS:
        raise PluginLoadError(f"memory.hosts._table has no host {name!r}; add it to _HOSTS")
    return HOSTS[name]
