"""What an attentive reader without a model makes of a context section.

Any backend's section will do: the reader knows the settings by their phrases, sees dates, group lines and labels
where there are some, and takes hearsay and exceptions for what they say they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from memory.bench.data.language import Language
from memory.bench.data.timeline import CONTEXTS

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}(?:[ T]\d{2}:\d{2})?")
_LABELS = re.compile(r"- \(([^()]*)\) ")
_GROUP = re.compile(r"\[([^\[\]]+)\]\Z")
_NEAR = 160
"""How far around a phrase its line is read for what else it says; letters."""


@dataclass(frozen=True, slots=True)
class Told:
    """One place of a section that tells a setting.

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
        self._others = tuple(phrase.casefold() for phrase in forms.plainly)
        self._disowned = tuple(phrase.casefold() for phrase in forms.disowned)

    def read(self, section: str) -> list[Told]:
        """Every setting that a section tells as the user's own, in its order."""
        found: list[Told] = []
        dates: list[str] = []
        labels, group = "", None
        for line in section.splitlines():
            if match := _GROUP.match(line):
                group, labels = self._language.says_context(match[1]), ""
                continue
            if not line.startswith("  "):  # else it goes on with the entry above
                entry = _LABELS.match(line)
                labels = entry[1] if entry else ""
            date = _DATE.search(labels) or _DATE.search(line)
            if date:
                dates.append(date[0])
            found.extend(self._of_line(line, labels, group, date[0] if date else ""))
        forward = bool(dates) and dates[0] < dates[-1]
        return [replace(one, rank=rank if forward else -rank) for rank, one in enumerate(found)]

    def _of_line(self, line: str, labels: str, group: str | None, moment: str) -> Iterable[Told]:
        text = line.casefold()
        for match in self._language.any_marker.finditer(text):
            near = text[max(0, match.start() - _NEAR) : match.end() + _NEAR]
            if any(phrase in near for phrase in self._disowned):
                continue
            attribute, marker = self._language.settings[match[0]]
            said = text[max(0, match.start() - _NEAR) : match.start()]
            context = self._nearest(said) or self._language.says_context(labels) or group
            yield Told(attribute, marker, context, moment, 0)

    def _nearest(self, before: str) -> str | None:
        """The context named last before a phrase."""
        named = [(match.start(), context) for context, word in self._words for match in word.finditer(before)]
        return max(named, default=(0, None))[1]

    def choose(self, told: Sequence[Told], attribute: str, context: str | None) -> str | None:
        """The setting to act by: the newest that is not said of the other context; of equals the highest rank."""
        fitting = [one for one in told if one.attribute == attribute and one.context in (None, context)]
        return max(fitting, key=lambda one: (one.moment, one.rank)).marker if fitting else None

    def own_words(self, said: Sequence[str], attribute: str, context: str | None) -> str | None:
        """The setting that the user named last in this conversation."""
        for text in reversed(said):
            for one in self._of_line(text, "", None, ""):
                if one.attribute == attribute and one.context in (None, context):
                    return one.marker
        return None

    def objects(self, said: str) -> bool:
        """Whether the user objects to what was just done: by a complaint, or by a correction."""
        text = said.casefold()
        if any(line in text for line in self._objections):
            return True
        return any(opening in text for opening in self._corrections)

    def for_others(self, request: str) -> bool:
        """Whether a request says that the user's own ways do not belong in it."""
        text = request.casefold()
        return any(phrase in text for phrase in self._others)
