"""Every fuzz target with changed seeds, always the same ones, and planted defects that the same inputs must find.

A failure names target and number; `-k 'name and [TARGET]'` runs it again. `make fuzz-python` runs the same targets for longer.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable

import pytest
from fuzz_targets import TARGETS, changed, seeds_of

from isolane.pipeline import address
from isolane.planner import fields, live

#: Changed inputs of each target.
INPUTS = 500


def inputs(target: str, count: int) -> list[bytes]:
    """Seeds, and changed ones."""
    draw = random.Random(target)
    seeds = seeds_of(target)
    return seeds + [changed(draw.choice(seeds), draw) for _ in range(count)]


@pytest.mark.parametrize("target", TARGETS)
def test_no_decoder_raises_what_its_callers_do_not_handle(target: str) -> None:
    for number, data in enumerate(inputs(target, INPUTS)):
        try:
            TARGETS[target].run(data)
        except BaseException as error:
            raise AssertionError(f"target {target}, input {number}: {data[:200]!r}") from error


PLANTED: dict[str, tuple[str, Callable[[pytest.MonkeyPatch], None]]] = {
    "a number that no float can hold": ("tiers", lambda patch: patch.setattr(fields, "LARGEST", 10**4000)),
    "a port of any length": ("name", lambda patch: patch.setattr(address, "_PORT", re.compile("[0-9]+"))),
    "a result that is no number": ("launch", lambda patch: patch.setattr(live, "_numbers", lambda values, _: [float(each) for each in values])),
}


@pytest.mark.parametrize("defect", PLANTED)
def test_planted_defects_are_found(defect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target, plant = PLANTED[defect]
    plant(monkeypatch)
    with pytest.raises((ArithmeticError, AssertionError, MemoryError, ValueError)):
        for data in inputs(target, INPUTS):
            TARGETS[target].run(data)
