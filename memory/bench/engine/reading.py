"""What an attentive reader without a model makes of a context section.

Any backend's section will do: the reader knows the settings by their phrases, sees dates, group lines and labels
where there are some, and takes hearsay and exceptions for what they say they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from memory.bench.data.language import Language
from memory.bench.data.timeline import CONTEXTS
from memory.bench.scores.sections import SectionEntry, entries_of

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}(?:[ T]\d{2}:\d{2})?")
_SPACE = re.compile(r"\s+")
_NEAR = 160
"""How far around a phrase its entry is read for what else it says; letters."""


@dataclass(frozen=True, slots=True)
class SettingMention:
    """One place of a section that names a setting.

    Attributes:
        context: the context that the line names, or its labels; None where they name none.
        moment: the date on the line, as text that sorts; empty where there is none.
        rank: of two of one moment, the higher one counts: the later one where the section goes forward in time, the
            earlier one elsewhere, because what a memory ranks it ranks best first.
    """

    attribute: str
    marker: str
    context: str | None
    moment: str
    rank: int


@lru_cache(maxsize=4)
def reader_of(language: Language) -> Reader:
    """The one reader of a language: what one cell has read, those beside it need not read again."""
    return Reader(language)


class Reader:
    """Reads sections and talk in one language."""

    def __init__(self, language: Language) -> None:
        self._language = language
        forms = language.forms
        self._words = [
            (context, language.word(word)) for context in CONTEXTS for word in language.context_words[context]
        ]
        self._objections = tuple(line.casefold() for line in (*forms.complaint, *forms.not_mine))
        # How corrections begin: what stands between the lead and the setting.
        self._corrections = [form.replace("{lead}", "").split("{")[0].casefold() for form in forms.corrected]
        # Sections show the same entries, and users say the same, again and again.
        self._entry = lru_cache(maxsize=4096)(self._read_entry)
        self._said = lru_cache(maxsize=4096)(lambda text: tuple(self._mentions(text, "", None, "")))
        self.matters_to = lru_cache(maxsize=4096)(language.matters_to)
        self._disowned = tuple(phrase.casefold() for phrase in forms.disowned)

    def read(self, section: str) -> list[SettingMention]:
        """Every setting that a section names as the user's own, in its order."""
        found: list[SettingMention] = []
        dates: list[str] = []
        for entry in entries_of(section):
            date, mentions = self._entry(entry)
            found += mentions
            dates += [date] if date else []
        forward = bool(dates) and dates[0] < dates[-1]
        return [replace(mention, rank=rank if forward else -rank) for rank, mention in enumerate(found)]

    def _read_entry(self, entry: SectionEntry) -> tuple[str, tuple[SettingMention, ...]]:
        """An entry's date, empty without one, and what it mentions."""
        match = _DATE.search(entry.labels) or _DATE.search(entry.text)
        date, group = match[0] if match else "", self._language.says_context(entry.group)
        return date, tuple(self._mentions(entry.text, entry.labels, group, date))

    def _mentions(self, text: str, labels: str, group: str | None, moment: str) -> Iterator[SettingMention]:
        text = text.casefold()
        for match in self._language.any_wording.finditer(text):
            # A marker may be broken over lines; what else is said of it stands on its own lines.
            begin, end = text.rfind("\n", 0, match.start()) + 1, text.find("\n", match.end())
            line = slice(
                max(begin, match.start() - _NEAR), min(end if end >= 0 else len(text), match.end() + _NEAR)
            )
            if any(phrase in text[line] for phrase in self._disowned):
                continue
            attribute, marker = self._language.settings[_SPACE.sub(" ", match[0])]
            said = text[line.start : match.start()]
            context = self._nearest(said) or self._language.says_context(labels) or group
            yield SettingMention(attribute, marker, context, moment, 0)

    def _nearest(self, before: str) -> str | None:
        """The context named last before a phrase."""
        named = [(match.start(), context) for context, word in self._words for match in word.finditer(before)]
        return max(named, default=(0, None))[1]

    def choose(self, mentions: Sequence[SettingMention], attribute: str, context: str | None) -> str | None:
        """The setting to act by: the newest that is not said of the other context; of equals the highest rank."""
        fitting = [
            mention
            for mention in mentions
            if mention.attribute == attribute and mention.context in (None, context)
        ]
        return max(fitting, key=lambda mention: (mention.moment, mention.rank)).marker if fitting else None

    def own_words(self, said: Sequence[str], attribute: str, context: str | None) -> str | None:
        """The setting that the user named last in this conversation."""
        for text in reversed(said):
            for mention in self._said(text):
                if mention.attribute == attribute and mention.context in (None, context):
                    return mention.marker
        return None

    def objects(self, said: str) -> bool:
        """Whether the user objects to what was just done: by a complaint, or by a correction."""
        text = said.casefold()
        if any(line in text for line in self._objections):
            return True
        return any(opening in text for opening in self._corrections)
