"""What the lab says of hops, moves and newcomers: the arithmetic behind its answers."""

from __future__ import annotations

import pytest

from isolane.pipeline import cli, costs, together
from isolane.pipeline.records import Record


def test_waits_for_a_core_are_not_the_hops_but_its_work_is() -> None:
    idle = costs.Hop(1.2, 0.02, 0.8)
    assert idle.own_ms == pytest.approx(1.18)
    assert idle.check() == (True, "a hop adds 1.18 ms (258 KB, 2 ms at most)")
    busy = costs.Hop(7.4, 7.2, 0.9)
    assert busy.own_ms == pytest.approx(0.9)
    assert "7.40 ms with waits" in busy.check()[1]
    assert not costs.Hop(7.4, 7.2, 2.1).check()[0], "work is work, however busy the machine"
    assert not costs.Hop(2.3, 0.0, 0.8).check()[0], "what is no wait for a core counts"


def test_further_rounds_are_made_only_while_none_is_quick_enough_and_they_end() -> None:
    slow, quick = costs.Hop(2.4, 0.0, 2.2), costs.Hop(1.9, 0.0, 0.8)
    assert costs.more([], 3) and costs.more([quick, slow], 3)
    assert costs.more([slow] * 3, 3) and not costs.more([slow, quick, slow], 3)
    assert costs.more([slow] * (costs.ROUNDS_MAX - 1), 3) and not costs.more([slow] * costs.ROUNDS_MAX, 3)


def test_the_kernels_account_of_this_process_grows() -> None:
    import os

    before = costs.spent_s([os.getpid()])
    sum(range(2_000_000))
    after = costs.spent_s([os.getpid()])
    assert after[0] > before[0] and after[1] >= before[1]
    assert costs.spent_s([2**22 + 1]) == (0.0, 0.0)


def known(at: list[float]) -> list[Record]:
    return [Record(number, number, 0.0, moment, "delivered") for number, moment in enumerate(at)]


def test_a_move_is_compared_with_as_long_a_stretch_before_it() -> None:
    steady = [0.1 * step for step in range(20)]
    records = known([one for one in steady if not 1.25 < one < 1.55])
    found = costs.worst(records, [(1.1, 1.9, 1.0)])
    assert found.still_ms == pytest.approx(0.0, abs=1e-6) and found.moving_ms == pytest.approx(300.0)
    assert found.own_ms == pytest.approx(300.0) and not found.check()[0]
    assert costs.Pause(50.0, 0.0).check()[0] and not costs.Pause(50.0, 0.0, lost=1).check()[0]
    assert "1 items were not delivered" in costs.Pause(50.0, 0.0, lost=1).check()[1]
    # A machine that stalls as long without a move.
    records = known([one for one in steady if not 1.25 < one < 1.55 and not 0.35 < one < 0.65])
    assert costs.worst(records, [(1.1, 1.9, 1.0)]).own_ms == pytest.approx(0.0, abs=1e-6)


def newcomers(alone: float | None, beside: float | None) -> together.Newcomers:
    found = together.Newcomers("a", "b", "c", 0.1, ["a", "b"], ["c"], "refused, it would fit with 3", "c is admitted")
    found.alone_ms, found.beside_ms = {"a": alone}, {"a": beside}
    found.planned_ms, found.limits_ms = {"a": 20.0}, {"a": 200.0}
    return found


@pytest.mark.parametrize(
    ("alone", "beside", "verdict"),
    [
        (50.0, 60.0, "yes"),
        (190.0, 199.0, "yes"),
        (50.0, 260.0, "NO "),
        (150.0, 260.0, "skip"),
        (None, 260.0, "skip"),
        (50.0, None, "NO "),
    ],
)
def test_a_broken_objective_counts_where_the_machine_can_tell(alone: float | None, beside: float | None, verdict: str) -> None:
    assert newcomers(alone, beside).answers()[-1].verdict == verdict


def test_what_a_query_waited_for_a_core_is_not_the_newcomers_doing() -> None:
    found = newcomers(50.0, 260.0)
    found.waited_ms = {"a": 61.0}
    late = found.answers()[-1]
    assert late.verdict == "skip" and "waited 61 ms for a core" in late.what
    found.waited_ms = {"a": 59.0}
    assert found.answers()[-1].verdict == "NO ", "the rest of what it is late was no wait for a core"
    found.beside_ms = {"a": None}
    assert found.answers()[-1].verdict == "NO ", "a query that delivers nothing keeps nothing"


def test_a_newcomer_that_is_admitted_though_it_does_not_fit_is_a_no() -> None:
    found = newcomers(50.0, 60.0)
    assert [one.verdict for one in found.answers()] == ["yes"] * 5
    found.refused, found.said, found.preempted, found.lost = [], "admitted", "", 1
    assert [one.verdict for one in found.answers()] == ["NO ", "NO ", "NO ", "NO ", "yes"]


def test_a_run_is_as_wide_as_a_terminal() -> None:
    times = {"network_ms": 0.05, "waiting_ms": 3.456, "process_ms": 45.67, "processor_ms": 123.4, "idle_ms": 98765.4}
    hop = {"operator": "transcribe", "tier": "cloud", "items": 12000, "passed": 11000, "bytes_out": 12345678.0, **times}
    head, row = cli._table_of([hop])
    assert len(head) == len(row) <= 80
    assert row.split()[4:] == ["0.05", "3.46", "45.7", "123", "98765", "12345678"]
