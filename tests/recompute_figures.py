"""Recompute the figures of an experiment from its records alone: ``python tests/recompute_figures.py DIR``.

Shares no code with memslot: it reads ``manifest.json``, ``cells/*/results.jsonl`` and ``metrics.json``, takes the
definitions from docs/experiment.md, and prints every figure that differs. Exits with 1 where one does.
"""

import json
import sys
from collections import defaultdict
from pathlib import Path


def records(directory):
    """Provider -> its records, each with the persona and seed it belongs to and which time it was played."""
    manifest = json.loads((directory / "manifest.json").read_text("utf-8"))
    found = defaultdict(list)
    for cell in manifest["cells"]:
        file = directory / "cells" / cell["cell_id"] / "results.jsonl"
        for line in file.read_text("utf-8").splitlines():
            row = json.loads(line)
            found[cell["label"]].append(
                {**row, "who": (cell["seed"], cell["persona_id"]), "time": cell["replicate"]}
            )
    return found


def share(units):
    """Mean over units, each averaged over the times it was played; None of nothing."""
    times = defaultdict(list)
    for key, value in units:
        times[key].append(float(value))
    means = [sum(values) / len(values) for values in times.values()]
    return sum(means) / len(means) if means else None


def over(rows, applies, good, failed):
    """A share of single requests; ``failed`` is what a request counts that the provider failed."""
    units = []
    for row in rows:
        if applies(row):
            value = failed if row["status"] == "failed" else good(row)
            if value is not None:
                units.append(((row["who"], row["probe_id"]), value))
    return share(units)


def changes_of(rows):
    found = defaultdict(list)
    for row in rows:
        if row["kind"] != "neutral" and not row["repeated"] and row["change"]:
            found[row["who"], row["time"], row["change"]].append(row)
    for key, asked in found.items():
        asked.sort(key=lambda row: (row["after"], row["probe_id"]))
        right = [bool(row["fit_first"] if row["judged"] else row["shows_current"]) for row in asked]
        first = [at for at in range(len(right) - 1) if right[at] and right[at + 1]]
        yield key, asked, first[0] if first else None


def read_right(row):
    return None if row["taken"] is None else row["taken"] == "current" and not row["shows_unknown"]


def stale(row):
    if row["judged"] and row["status"] in ("scored", "unready") and row["first"] is None:
        return None  # an answer in words: nobody knows which setting it shows
    return (row["first"] if row["judged"] else row["taken"]) == "stale"


def later(rows, lost):
    units = []
    for (who, _, _), asked, _ in changes_of(rows):
        for row in asked:
            value = row["status"] == "failed" or lost(row)
            if value is not None:
                units.append(((who, row["probe_id"]), value))
    return share(units)


def sessions(rows):
    found = defaultdict(list)
    for row in rows:
        if row["judged"] and row["kind"] != "question":
            found[row["who"], row["time"], row["session_id"]].append(bool(row["fit_first"]))
    return share(((who, session), all(fits)) for (who, _, session), fits in found.items())


def recomputed(rows):
    """Figure -> share."""

    def judged(row):
        return row["judged"] and row["kind"] != "question"

    def own(row):
        return judged(row) and row["kind"] != "neutral" and not row["repeated"]

    def differing(row):
        return own(row) and row["has_other"]

    def wanted(row):
        return row["wanted"] and row["kind"] != "neutral" and not row["repeated"]

    def right(row):
        return bool(row["fit_first"] if row["judged"] else read_right(row))

    return {
        "style fit": over(rows, own, lambda row: row["fit_first"], 0),
        "discrimination": over(rows, differing, lambda row: row["fit_first"], 0),
        "detection": share(((who, name), first is not None) for (who, _, name), _, first in changes_of(rows)),
        "stale reversion": later(rows, stale),
        "forgetting": later(rows, lambda row: not right(row)),
        "felt effort": over(rows, judged, lambda row: row["turns"] > 1 or row["fit_last"] is False, 1),
        "coherence": over(
            rows, lambda row: judged(row) and row["repeated"],
            lambda row: None if row["coherent"] is None else row["coherent"] and row["fit_first"], 0,
        ),
        "overall": sessions(rows),
        "over-personalisation": over(
            rows, lambda row: row["judged"] and row["kind"] == "neutral", lambda row: not row["fit_first"], 1
        ),
        "right answers": over(
            rows, lambda row: row["judged"] and row["kind"] == "question", lambda row: row["fit_first"], 0
        ),
        "read right": over(rows, wanted, read_right, 0),
        "shown": over(rows, wanted, lambda row: row["shows_current"], 0),
        "evidence recall": over(
            rows, lambda row: row["gold"] > 0, lambda row: (row["found"] or 0) / row["gold"], 0
        ),
        "MRR": over(
            rows, lambda row: row["gold"] > 0, lambda row: 1 / min(row["ranks"]) if row["ranks"] else 0, 0
        ),
        "gold answer shown": over(rows, lambda row: row["has_answer"], lambda row: row["answer_shown"], 0),
        "answer F1": over(rows, lambda row: row["read"], lambda row: row["answer_f1"], 0),
    }  # fmt: skip


def differences(directory):
    """Every figure that is not what was published, and how many were compared."""
    published = json.loads((directory / "metrics.json").read_text("utf-8"))["providers"]
    found, wrong = records(directory), []
    compared = 0
    for provider in published:
        values = {measure["name"]: measure["estimate"] for measure in provider["measures"]}
        for name, value in recomputed(found[provider["label"]]).items():
            if values[name]["missing"]:
                continue  # bounds, no share
            given = values[name]["value"]
            compared += 1
            if (given is None) != (value is None) or (value is not None and abs(given - value) > 1e-9):
                wrong.append(f"{provider['label']}: {name} is {given}, recomputed {value}")
    return wrong, compared


if __name__ == "__main__":
    problems, count = differences(Path(sys.argv[1]))
    sys.stdout.write(("\n".join(problems) or f"{count} figures recomputed, none differs") + "\n")
    sys.exit(bool(problems))
