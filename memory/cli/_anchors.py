"""The sections of the page "Troubleshooting" that explain an error, found by the words of the error."""

from __future__ import annotations

SECTIONS = {
    "not installed: ": "missing-sdk",
    "selects nothing": "selects-nothing",
    "needs the environment variable": "missing-variable",
    "is open elsewhere": "locked-store",
    "the model accepts": "context-too-short",
    "or use a faster model": "too-slow",
    "cut at max_tokens": "answer-cut",
    "did not call the tool": "no-tool-call",
    "did not answer with the JSON": "other-json",
    "the model does not take this": "reasoning-model",
    "the quota is used up": "quota",
    "rate limited": "rate-limited",
    "content filter": "content-filter",
    "did not answer with JSON": "no-json",
    "has no model of this name": "unknown-model",
    "the store holds vectors of": "other-embedder",
    "no model hub": "no-weights",
}
"""Words of an error -> the anchor of its section in ``docs/troubleshooting.md``."""


def with_section(text: str) -> str:
    """Append the section that explains an error. Other text stays as it is."""
    section = next((anchor for words, anchor in SECTIONS.items() if words in text), None)
    return f"{text} (more: troubleshooting#{section})" if section else text
