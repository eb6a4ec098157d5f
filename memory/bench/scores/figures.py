"""The figures of a run, as ``metrics.json`` holds them. A share of nothing is null, never zero."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

EvidenceBy = Literal["event_id", "text"]


class _Figures(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Estimate(_Figures):
    """A mean over probes."""

    value: float | None
    """The mean; null where nothing could be counted."""
    n: int
    """Probes it is over."""
    clusters: int = 0
    """Personas these probes belong to."""
    low: float | None = None
    """Lower end of the 95 % interval by persona (see the intervals module); null with fewer than two."""
    high: float | None = None
    """Upper end."""


class Difference(_Figures):
    """How much more one provider shows than another, on the probes that both are scored on."""

    figure: str
    """What is compared."""
    first: str
    """Label of the one provider."""
    second: str
    """Label of the other."""
    value: float | None
    """The first one's share less the second one's; null without a probe in common."""
    n: int
    """Probes in common."""
    clusters: int
    """Personas they belong to."""
    low: float | None
    """Lower end of the 95 % interval by persona; null with fewer than two of them."""
    high: float | None
    """Upper end."""


class Spread(_Figures):
    """A distribution; null where nothing was measured."""

    mean: float | None
    p50: float | None
    p95: float | None
    least: float | None = None
    most: float | None = None


class EvidenceRow(_Figures):
    """Evidence recall of a group of questions. Questions without resolvable evidence are not in it."""

    label: str
    """The group."""
    questions: int
    """Questions scored."""
    turns: int
    """Their gold turns."""
    recall: Estimate
    """Mean over questions of the share of gold turns that were in the context."""
    pooled: float | None
    """Share of all gold turns that were in the context, whichever question they belong to."""
    any_found: float | None
    """Share of questions with at least one gold turn in the context."""
    all_found: float | None
    """Share of questions with every gold turn in the context."""
    verbatim: float | None
    """Like ``recall``, but counting only turns whose whole text stands in the context."""


class EvidenceScores(_Figures):
    """Evidence recall of a run, at its budget."""

    by: EvidenceBy | None
    """What counts as found: an entry names the turn's event id, or (where no entry ever names one) the turn's
    text stands in the context; null where nothing was ever returned."""
    overall: EvidenceRow
    """All scored questions."""
    answerable: EvidenceRow
    """The same without the adversarial ones, as most publications count."""
    categories: tuple[EvidenceRow, ...]
    """By category."""
    personas: tuple[EvidenceRow, ...]
    """By conversation."""
    without_evidence: int
    """Questions whose data name no evidence; never scored."""
    unresolvable: int
    """Questions whose evidence ids name no turn at all; never scored."""
    unresolved_ids: int
    """Evidence ids that name no turn, over all questions."""


class PreferenceRow(_Figures):
    """How well the context showed the preference in force, for a group of probes."""

    label: str
    """The group."""
    nothing_shown: Estimate
    """Share of probes whose context shows nothing at all. Whoever shows nothing is neither stale nor contaminated:
    that is the floor, and no merit."""
    fit: Estimate
    """Share of probes whose context shows the value in force. Older values beside it do not undo a fit."""
    clean_fit: Estimate
    """Share of probes whose context shows the value in force and nothing that could be mistaken for it: no
    older value of the cell, none of the other context on a line that does not name that context."""
    stale: Estimate
    """Of the probes whose cell had changed: share whose context shows an old value and not the one in force."""
    stale_shown: Estimate
    """Of the same probes: share whose context shows an old value at all."""
    contamination: Estimate
    """Of the probes whose attribute differs in the other context: share whose context shows the other context's
    value on a line that does not name that context, so that it reads as if it held here."""
    decoy: Estimate
    """Share of probes whose context shows hearsay or a single exception for the attribute."""


class CurvePoint(_Figures):
    """All changes, so many sessions after each of them."""

    sessions: int
    """Sessions since the one in which the change was said; 0 is right after that one."""
    probes: int
    """Probes asked then."""
    fit: float | None
    """Share that shows the new value."""
    stale: float | None
    """Share that shows an old value and not the new one."""


class DetectionScores(_Figures):
    """Whether a change of mind is noticed, and stays noticed."""

    changes: int
    """Changes that were probed after they were said, all of whose probes are scored."""
    detected: int
    """Changes whose new value was shown by some probe."""
    latency: Spread
    """Of the detected ones: sessions from the change to the first probe that shows the new value; 0 is at once.
    Changes never detected are not in it; they are ``changes`` less ``detected``."""
    reversion: Estimate
    """Of the probes after a change's first detection: share that no longer shows the new value."""
    curve: tuple[CurvePoint, ...]
    """By sessions since the change."""


class PreferenceScores(_Figures):
    """Scores of a preference game."""

    overall: PreferenceRow
    """All probes."""
    groups: tuple[PreferenceRow, ...]
    """Asked directly or needed by a task; by context; steady or changed."""
    attributes: tuple[PreferenceRow, ...]
    """By attribute."""
    detection: DetectionScores
    """Changes over time."""
    leaks: int
    """Probes whose context shows a phrase of another persona. Anything but 0 is a broken isolation."""


class CostScores(_Figures):
    """What it took. Milliseconds of wall time; tokens by the run's counter."""

    tokens: Spread
    """Tokens of the context section, per query."""
    short: int | None = None
    """Contexts below the budget's ``min_tokens``; null where it wants none."""
    shortfall: Spread = Spread(mean=None, p50=None, p95=None)
    """Of those: tokens missing."""
    cut: int = 0
    """Contexts that would have been longer without the budget."""
    items: Spread
    """Entries in the section, per query."""
    retrieve_ms: Spread
    """One retrieval, the fitting to the budget included."""
    format_ms: Spread
    """Rendering the section alone."""
    write_ms: Spread
    """One event; in bulk mode a session's time divided by its events."""
    ingest_ms: float
    """All writes together."""
    wait_ms: float
    """All waits for readiness together."""
    llm_calls: int | None = None
    """Answers of the provider's own language models while writing; null where it does not say."""
    llm_tokens: int | None = None
    """Tokens these read and wrote; null where provider or endpoint does not say."""
    events: int
    """Events written."""


class RunMetrics(_Figures):
    """The figures of one run, as ``metrics.json`` holds them."""

    format_version: Literal[1] = 1
    """Version of this form."""
    run_id: str
    """The run."""
    provider: str
    """The backend or condition."""
    label: str
    """The same as it is to be shown: a control under another name, and what stands in for a model, are in it."""
    timeline: str
    """Kind of timeline."""
    problems: tuple[str, ...] = ()
    """What failed, and what could not be scored; the figures are of what is left."""
    planned: int
    """Probes of the timelines."""
    probes: int
    """Probes asked."""
    probe_errors: int
    """Probes whose retrieval failed; they are in no score."""
    not_ready: int = 0
    """Probes asked while memory was not known to be ready; they are in no score."""
    unconfirmed: int = 0
    """Probes scored although the provider could not say whether memory was ready (``run.score_unknown``)."""
    evidence: EvidenceScores | None
    """Evidence recall; null for timelines without evidence."""
    preferences: PreferenceScores | None
    """Preference scores; null for timelines without preferences."""
    cost: CostScores
    """Tokens and time."""
