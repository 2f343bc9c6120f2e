"""Tests for a change keep their stated rate of false alarms, and notice changes as soon as the ranks can show them."""

from __future__ import annotations

import numpy as np
import pytest

from isolane.planner.change import HORIZON, Often, Shift, bets


@pytest.mark.parametrize("known", [0, 1, 5, 20, 400])
def test_a_bet_has_a_mean_of_at_most_one_over_all_ranks(known: int) -> None:
    """Where every rank is equally likely; that is what the bound on false alarms rests on."""
    ranks = [(place + 1) / (known + 1) for place in range(known + 1)]
    means = np.mean([bets(rank, known, HORIZON) for rank in ranks], axis=0)
    assert means.max() <= 1.0 + 1e-9 and len(means) == HORIZON


def test_false_alarms_come_no_more_often_than_stated() -> None:
    """With `every` = 200, of 100 tests that run until their first alarm; the bound is on the mean, and its half is never reached."""
    draws = {"normal": lambda one: one.normal(), "heavy": lambda one: one.pareto(1.1), "coarse": lambda one: float(one.integers(0, 3))}
    for name, draw in draws.items():
        lengths = []
        for seed in range(100):
            random, test, count = np.random.default_rng(seed), Shift(200.0), 1
            while count < 2000 and not test.add(float(draw(random))):
                count += 1
            lengths.append(count)
        assert np.mean(lengths) >= 200.0, name
    lengths = []
    for seed in range(100):
        random, often, count = np.random.default_rng(seed), Often(200.0, 0.05, 0.95), 1
        while count < 5000 and not often.add(bool(random.random() < 0.05)):
            count += 1
        lengths.append(count)
    assert np.mean(lengths) >= 200.0


@pytest.mark.parametrize(("known", "needed"), [(20, 7), (40, 5), (80, 4), (200, 3)])
def test_numbers_beyond_all_known_ones_are_an_alarm_after_few(known: int, needed: int) -> None:
    for sign in (1.0, -1.0):
        test = Shift(1e5)
        assert not any(test.add(float(number)) for number in np.random.default_rng(1).normal(size=known))
        later = [test.add(sign * (10.0 + 0.1 * number)) for number in range(needed)]
        assert later == [False] * (needed - 1) + [True]
        before, since = test.medians
        assert abs(before) < 1.0 and abs(since) >= 10.0


def test_what_does_not_matter_leaves_the_numbers_and_a_reset_forgets_them() -> None:
    test = Shift(1e5)
    for number in range(40):
        test.add(number % 7)
    assert any(test.add(10.0 + number) for number in range(10))
    test.go_on()
    assert not test.add(5.0)
    assert any(test.add(100.0 + number) for number in range(12)), "it still knows what is usual"
    test.reset()
    assert not any(test.add(1000.0 + number) for number in range(12)), "it knows nothing"


def test_three_bad_periods_in_a_row_are_an_alarm_and_two_are_none() -> None:
    test = Often(6500.0, 0.05, 0.95)
    assert [test.add(bad) for bad in (True, True, False, False, True, True, True)] == [False] * 6 + [True]
