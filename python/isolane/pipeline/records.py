"""What became of each item, and what that says of the pipeline.

Problem: no item may be lost silently, and a report must say how long items took and where. Method: one record per item that the
source produced; every record ends delivered, filtered out, failed or refused, the last two with a reason, and `Summary` counts
that they add up. Latency is from when the source saw the item to when the last operator had its result.

Units: `_ms`, `_s` since the epoch. Limits: hops on different machines are compared by their clocks.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from isolane.pipeline import link as links
from isolane.pipeline.item import Item, ItemError, decode_batch
from isolane.pipeline.messages import Answer, read_json
from isolane.pipeline.metrics import quantile

REFUSED = "refused"


@dataclass(frozen=True)
class Record:
    """One item's fate."""

    number: int
    item_id: int
    seen_s: float
    known_s: float
    outcome: str
    operator: str = ""
    reason: str = ""
    latency_ms: float | None = None
    trace: tuple[dict[str, Any], ...] = ()
    outputs: tuple[Item, ...] = field(default=(), repr=False)


def hops_of(text: str) -> list[dict[str, Any]]:
    """The trace that a peer sent; ValueError if it is none. What an operator that gave up did not measure is missing."""
    found = read_json(text)
    if not isinstance(found, list):
        raise ValueError("a trace is a list")
    for hop in found:
        if not isinstance(hop, dict) or not all(isinstance(hop.get(name), str) for name in ("operator", "tier")):
            raise ValueError("an entry of a trace has an operator and a tier")
        numbers: tuple[str, ...] = _MEASURED if "ended_s" in hop else ("received_s", "bytes_in")
        numbers += tuple(name for name in _TOLD if name in hop)
        if not all(_is_number(hop.get(name)) for name in numbers):
            raise ValueError(f"an entry of a trace has the numbers {', '.join(numbers)}")
    return found


def _is_number(value: Any) -> bool:
    # Compared, not converted: an integer of JSON may be too large for a float.
    return isinstance(value, (int, float)) and not isinstance(value, bool) and -LARGEST < value < LARGEST


#: No time and no size is as large.
LARGEST = 1e18
#: What a host measures of an item that its operator processed.
_MEASURED = ("received_s", "bytes_in", "begun_s", "ended_s", "process_ms", "processor_ms", "idle_ms", "bytes_out")
#: What some operators tell besides.
_TOLD = ("accelerator_ms",)


def record(number: int, item: Item, known_s: float, answer: Answer) -> Record:
    """Reads an answer; garbage is a failure with that reason."""
    outcome = answer.headers.get(links.OUTCOME, "")
    try:
        trace = tuple(hops_of(answer.headers.get(links.TRACE, "[]")))
        if outcome == links.DELIVERED:
            outputs = tuple(decode_batch(answer.body))
            ended = float(trace[-1]["ended_s"])
            latency = 1000.0 * (ended - item.time_s)
            return Record(number, item.id, item.time_s, known_s, outcome, "", "", latency, trace, outputs)
        if outcome == links.FILTERED:
            return Record(number, item.id, item.time_s, known_s, outcome, str(trace[-1]["operator"]), trace=trace)
        said = read_json(answer.body)
        operator, reason = said["operator"], said["reason"]
        if not isinstance(operator, str) or not isinstance(reason, str) or not reason:
            raise ValueError("a failure has an operator and a reason")
        return Record(number, item.id, item.time_s, known_s, links.FAILED, operator, reason, None, trace)
    except (ItemError, ValueError, KeyError, IndexError, TypeError) as error:
        reason = f"the pipeline's answer is garbage: {error}"
        return Record(number, item.id, item.time_s, known_s, links.FAILED, "", reason)


@dataclass(frozen=True)
class Summary:
    """Counts and latencies of a stretch of records."""

    sent: int
    delivered: int
    filtered: int
    failed: int
    refused: int
    latency_p50_ms: float | None
    latency_p90_ms: float | None
    latency_p99_ms: float | None
    reasons: dict[str, int]
    hops: tuple[dict[str, Any], ...]

    @property
    def lost(self) -> int:
        """Items without a fate; never anything but 0, and checked."""
        return self.sent - self.delivered - self.filtered - self.failed - self.refused

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {**self.__dict__, "hops": list(self.hops), "lost": self.lost}


def summarize(sent: int, records: Sequence[Record]) -> Summary:
    """The summary of the records of `sent` items."""
    outcomes = Counter(one.outcome for one in records)
    late = sorted(one.latency_ms for one in records if one.latency_ms is not None)
    bad = [one for one in records if one.outcome in (links.FAILED, REFUSED)]
    reasons = Counter(f"{one.operator}: {one.reason}" if one.operator else one.reason for one in bad)
    return Summary(
        sent,
        outcomes[links.DELIVERED],
        outcomes[links.FILTERED],
        outcomes[links.FAILED],
        outcomes[REFUSED],
        quantile(late, 0.5),
        quantile(late, 0.9),
        quantile(late, 0.99),
        dict(reasons.most_common(20)),
        tuple(_hops(records)),
    )


def _hops(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Medians per operator of the items that it sent on (of all, if none): the way there, waiting, work, bytes."""
    found: dict[tuple[str, str], list[dict[str, float]]] = {}
    for one in records:
        before = one.seen_s
        for hop in one.trace:
            if "ended_s" not in hop:
                break
            values = {
                "network_ms": 1000.0 * (hop["received_s"] - before),
                "waiting_ms": max(1000.0 * (hop["begun_s"] - hop["received_s"]), 0.0),
                "process_ms": hop["process_ms"],
                "processor_ms": hop["processor_ms"],
                "idle_ms": hop["idle_ms"],
                "bytes_in": hop["bytes_in"],
                "bytes_out": hop["bytes_out"],
                **{name: hop[name] for name in _TOLD if name in hop},
            }
            found.setdefault((hop["operator"], hop["tier"]), []).append(values)
            before = hop["ended_s"]
    table = []
    for (operator, tier), rows in found.items():
        passed = [row for row in rows if row["bytes_out"] > 0]
        shown = passed or rows
        names = [name for name in rows[0] if all(name in row for row in rows)]
        medians = {name: round(statistics.median(row[name] for row in shown), 3) for name in names}
        table.append({"operator": operator, "tier": tier, "items": len(rows), "passed": len(passed), **medians})
    return table


def pause_ms(records: Sequence[Record], begin_s: float, end_s: float) -> float:
    """The longest time without a fate becoming known between two moments, less the usual time between two items.

    With fewer than three items known in between there is nothing to see, and the stretch itself is the pause.
    """
    known = sorted(one.known_s for one in records if begin_s <= one.known_s <= end_s)
    if len(known) < 3:
        return 1000.0 * (end_s - begin_s)
    gaps = [later - earlier for earlier, later in zip(known, known[1:], strict=False)]
    return 1000.0 * max(max(gaps) - statistics.median(gaps), 0.0)
