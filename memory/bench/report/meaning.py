"""What the figures of a report mean, in the words of their own documentation, and what they cannot say."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel

from memory.bench.report.page import Block
from memory.bench.scores.figures import DetectionScores, EvidenceRow, PreferenceRow, RunMetrics
from memory.bench.scores.intervals import METHOD


def meaning_blocks(metrics: Sequence[RunMetrics]) -> list[Block]:
    """What the figures in ``metrics`` mean, and what they cannot say."""
    blocks = []
    if any(run.preferences for run in metrics):
        note = (
            "Read off the retrieved context, without a model: whether what an agent needs was put before it, and "
            "what could mislead it. They do not say what an agent would do with it. Markers are exact phrases, so "
            "for backends that paraphrase, fit is a lower bound."
        )
        blocks.append(
            Block("What these figures mean", rows=_definitions(PreferenceRow, DetectionScores), note=note)
        )
    if any(run.evidence for run in metrics):
        note = (
            "Finding a turn is not answering the question. For entries derived from several turns, recall counts "
            "what they are derived from, and verbatim what they still say."
        )
        blocks.append(Block("What these figures mean", rows=_definitions(EvidenceRow), note=note))
    if blocks:
        blocks.append(Block("How far they can be trusted", points=[METHOD]))
    return blocks


def _definitions(*models: type[BaseModel]) -> list[tuple[str, str]]:
    """What each figure means: the field's own documentation, so that report and code cannot disagree."""
    return [
        (name.replace("_", " "), " ".join((field.description or "").replace("`", "").split()))
        for model in models
        for name, field in model.model_fields.items()
        if name not in ("label", "curve")
    ]
