"""When a watched pipeline is planned again: three tests, each with a stated rate of false alarms.

Problem: noise must not make plans, and a change must be noticed soon. Method (`planner.change` has the tests and their bounds):

- objective: a period is bad if the median latency of its own items is above the query's limit, or most of its items failed, though the
  plan promised otherwise. A plan that keeps its promise has a bad period with a chance of at most 5 %. Three in a row are an alarm.
  After a search that found no better plan the objective waits: `RESIGNED` bad periods in a row make another search, then twice as
  many, and so on. A wrong measurement of a full link must not decide for ever.
- link: items that cross a link much later than its known speed explains are a suspicion; a measurement then says whether the link lost
  half of its speed. The probability of a wrong result is at most 2 %. Two in a row are an alarm: after the first, the next period
  measures again.
- shift: utilities of blocks of `BLOCK` periods (at constant accuracy), and accuracies of samples, are each ranked among all since the
  plan came into force. An alarm also needs the median to move by the paper's 10 %.

Periods do not overlap. False alarms: none of the tests has more than one in `EVERY` of its observations on average; the test with the
shortest `EVERY`, the objective's, then has one in 3.6 hours of a plan that misses its limit in 5 % of periods of 2 s.

Limits: `planner.change`; a change that comes before the plan has been in force for about ten blocks is noticed late by the shift test.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from isolane.pipeline.deployment import Deployment
from isolane.pipeline.records import REFUSED, Record
from isolane.planner.change import Often, Shift
from isolane.planner.model import Infrastructure, Query
from isolane.planner.online import THRESHOLD

#: Observations between false alarms on average, at least: of the objective, of a link, and of each shift.
EVERY_OBJECTIVE, EVERY_LINK, EVERY_SHIFT = 6_500.0, 2_000.0, 1e6
#: The largest chance of a bad period (of a wrong measurement) while nothing changed, and the chance that counts as a change.
BAD_USUAL, BAD_CHANGED = 0.05, 0.95
WRONG_USUAL, WRONG_CHANGED = 0.02, 0.9
#: Periods whose items are judged together. Neighbouring periods of a busy machine resemble each other; with two, numbers whose
#: neighbours correlate by 0.5 raised one alarm in 40 hours, and with one they raised four.
BLOCK = 2
#: Results that a period must have for its latency to say anything; with fewer, failures do.
TELLING = 3
#: An item is late on a link if, besides the link's delay, it took this many times what the known speed explains, and a hop's own time
#: on a busy machine. The delay does not count twice: a slower link has the same delay.
LATE_TIMES, HOP_MS = 2.0, 10.0
#: Bad periods in a row until another search after one that found no better plan: at first, and the most after doubling.
RESIGNED, RESIGNED_MAX = 8, 64
#: Periods without a measurement after one that found nothing: doubled each time up to this.
REST_MAX = 16


class Alarms:
    """The state of the tests for the plan in force."""

    def __init__(self, query: Query) -> None:
        self._query = query
        self._objective = Often(EVERY_OBJECTIVE, BAD_USUAL, BAD_CHANGED)
        self._link = Often(EVERY_LINK, WRONG_USUAL, WRONG_CHANGED)
        self._utility, self._accuracy = Shift(EVERY_SHIFT), Shift(EVERY_SHIFT)
        self._block: list[Record] = []
        self._periods = 0
        self._rest = self._waited = 0
        #: Whether the last measurement found a slower link.
        self._slow = False
        #: Whether the last period missed its objective.
        self._bad = False
        #: Set where a search found nothing that would not miss either, until the objective is met again.
        self._resigned = False
        #: Bad periods since the last search without a result, and how many make the next search.
        self._missed, self._patience = 0, RESIGNED

    def reset(self, resigned: bool = False) -> None:
        """A plan came into force, or stayed in force after a search that found no better one (`resigned`)."""
        for test in (self._objective, self._link, self._utility, self._accuracy):
            test.reset()
        self._block, self._periods = [], 0
        self._rest = self._waited = 0
        self._slow = self._bad = False
        if resigned and self._missed >= self._patience:
            self._patience = min(2 * self._patience, RESIGNED_MAX)
        elif not resigned:
            self._patience = RESIGNED
        self._missed = 0
        self._resigned = resigned

    def objective(self, records: Sequence[Record]) -> str:
        """Takes a period's own records under a plan that promised to meet all; what it misses, or nothing."""
        late = [one.latency_ms for one in records if one.latency_ms is not None]
        failed = sum(one.outcome in ("failed", REFUSED) for one in records)
        slow = len(late) >= TELLING and statistics.median(late) > self._query.latency_max_ms
        failing = failed > max(len(late), TELLING)
        self._bad = slow or failing
        if not self._bad and not late:
            # A period without results says nothing of either.
            return ""
        if self._resigned and not self._bad:
            self._resigned, self._missed, self._patience = False, 0, RESIGNED
            return ""
        if self._resigned:
            self._missed += 1
            if self._missed < self._patience:
                return ""
        elif not self._objective.add(self._bad):
            return ""
        return f"misses {self._query.latency_max_ms:g} ms, which was promised" if slow else f"{failed} of {len(records)} items failed"

    def suspects(self, deployment: Deployment, records: Sequence[Record], infrastructure: Infrastructure) -> bool:
        """Whether a link should be measured: items of this period crossed it late, and no measurement was made just now.

        Not while the objective is missed: its alarm measures all links, and a link that is full is slow to measure. But a
        measurement that found a slower link is repeated at once: where latencies are near the limit, every other period may miss
        the objective, and then neither the objective's test nor the link's test would raise an alarm.
        """
        if self._slow:
            return True
        if self._bad and not self._resigned:
            return False
        parts = [taken / (LATE_TIMES * due + HOP_MS) for taken, due in crossings(deployment, records, infrastructure)]
        if not parts or statistics.median(parts) <= 1.0:
            self._rest = self._waited = 0
            return False
        self._waited += 1
        return self._waited > self._rest

    def link(self, slow: bool) -> bool:
        """Takes what a measurement said; whether that is an alarm."""
        self._waited = 0
        self._slow = slow
        self._rest = 0 if slow else min(2 * self._rest + 1, REST_MAX)
        return self._link.add(slow)

    def block(self, records: Sequence[Record]) -> list[Record]:
        """Takes a period's records; those of a whole block when it is complete, else none."""
        self._block += records
        self._periods += 1
        if self._periods < BLOCK:
            return []
        done, self._block, self._periods = self._block, [], 0
        return done

    def utility(self, utility: float) -> str:
        """Takes a block's utility at constant accuracy; how it shifted, or nothing."""
        return shifted(self._utility, utility, "utility")

    def accuracy(self, accuracy: float) -> str:
        """Takes a sample's accuracy; how it shifted, or nothing."""
        return shifted(self._accuracy, accuracy, "accuracy")


def shifted(test: Shift, number: float, what: str) -> str:
    """Adds a number; an alarm in words, if the median moved by a part that matters."""
    if not test.add(number):
        return ""
    before, since = test.medians
    # Near 0 a relative change means nothing: a hundredth is the least that counts.
    if abs(since - before) <= THRESHOLD * max(abs(before), 0.01):
        test.go_on()
        return ""
    return f"{what} moved from {before:.3g} to {since:.3g}"


def crossings(deployment: Deployment, records: Sequence[Record], infrastructure: Infrastructure) -> list[tuple[float, float]]:
    """Of each item that went from one tier to another: milliseconds that it took besides the links' delays, and that the known speeds
    explain."""
    order = {tier.name: tier.order for tier in infrastructure.tiers}
    tiers = {stage.name: stage.tier for stage in deployment.stages}
    found = []
    for one in records:
        for before, after in zip(one.trace, one.trace[1:], strict=False):
            here, there = before["tier"], after["tier"]
            if here == there or (here, there) != (tiers.get(before["operator"]), tiers.get(after["operator"])):
                continue
            if "ended_s" not in before or "received_s" not in after:
                continue
            passed = infrastructure.links[order[here] : order[there]]
            due = sum(before["bytes_out"] * 8.0 / (1000.0 * link.mbit_per_s) for link in passed)
            delay = sum(link.delay_ms for link in passed)
            found.append((1000.0 * (after["received_s"] - before["ended_s"]) - delay, due))
    return found
