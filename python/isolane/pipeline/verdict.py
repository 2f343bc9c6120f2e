"""Whether a run kept its query's objectives.

Problem: a run that is too slow or wrong must not look like one that is not. Method: what every item met counts. Latency is the median
over all items that no operator filtered out, where one that failed or was refused counts with its deadline. Accuracy is against the
workload's truth of the items that were sent: round by round, since a source begins again at its end, weighted by items. A workload with
`accuracy_of(outputs, ids)` judges any items; another judges only rounds over all of its items.

Units: `_ms`; accuracy from 0 to 1. Limits: the accuracy of a few items is that of a small sample.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from isolane.pipeline.deployment import Deployment
from isolane.pipeline.item import Item
from isolane.pipeline.records import REFUSED, Record
from isolane.pipeline.source import Source
from isolane.planner.model import PlanError


@dataclass(frozen=True)
class Verdict:
    """What was measured, which objectives were missed, and why an accuracy is unknown; a line each."""

    latency_ms: float | None
    accuracy: float | None
    missed: tuple[str, ...]
    unjudged: str = ""

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {"judged_latency_ms": self.latency_ms, "accuracy": self.accuracy, "missed": list(self.missed), "unjudged": self.unjudged}


def judge(deployment: Deployment, source: Source | None, records: Sequence[Record], sent: int, deadline_s: float) -> Verdict:
    """The verdict on the records of `sent` items; without a source of recorded items there is no truth."""
    latency = latency_ms(records, deadline_s)
    accuracy, unjudged = (None, "a live source has no truth") if source is None else accuracy_of(source, records, sent)
    missed = []
    for outcome, what in (("failed", "failed"), (REFUSED, "were refused")):
        count = sum(one.outcome == outcome for one in records)
        if count:
            missed.append(f"{count} of {sent} items {what}")
    if sent > len(records):
        missed.append(f"{sent - len(records)} of {sent} items have no fate")
    if latency is not None and latency > deployment.latency_max_ms:
        missed.append(f"latency: median {latency:.1f} ms, limit {deployment.latency_max_ms:g} ms")
    if accuracy is not None and accuracy < deployment.accuracy_min:
        missed.append(f"accuracy: {accuracy:.3f}, least {deployment.accuracy_min:g}")
    return Verdict(latency, accuracy, tuple(missed), unjudged)


def latency_ms(records: Sequence[Record], deadline_s: float) -> float | None:
    """The median over all items that were not filtered out; None if there are none."""
    late = [1000.0 * deadline_s if one.latency_ms is None else one.latency_ms for one in records if one.outcome != "filtered"]
    return float(statistics.median(late)) if late else None


def accuracy_of(source: Source, records: Sequence[Record], sent: int) -> tuple[float | None, str]:
    """The accuracy of the outputs of `sent` items, or None and the reason."""
    length, whole = len(source.items), len(source.workload.items())
    by_ids = getattr(source.workload, "accuracy_of", None)
    outputs: dict[int, list[Item]] = {}
    for one in sorted(records, key=lambda one: one.number):
        outputs.setdefault(one.number // length, []).extend(one.outputs)
    found: list[tuple[float, int]] = []
    for number in range((sent + length - 1) // length):
        ids = [item.id for item in source.items[: min(length, sent - number * length)]]
        made = outputs.get(number, [])
        if by_ids is not None:
            found.append((_checked(by_ids(made, ids)), len(ids)))
        elif len(ids) == whole:
            found.append((_checked(source.workload.accuracy(made)), len(ids)))
    if not found:
        return None, f"{sent} of {whole} items were sent, and the workload has no accuracy_of(outputs, ids)"
    return sum(value * count for value, count in found) / sum(count for _, count in found), ""


def _checked(value: Any) -> float:
    """The accuracy that a workload returned."""
    if not isinstance(value, (int, float)) or not -1e-9 <= value <= 1.0 + 1e-9:
        raise PlanError(f"the workload returned {value!r} as an accuracy: must be a number from 0 to 1")
    return float(value)
