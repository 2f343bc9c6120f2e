"""The commands that can be spoken, and measures on their words.

Problem: recogniser, decoder and truth share one vocabulary. Units: words. Method: four patterns with slots; all
sentences are listed, a few hundred. Limits: closed grammar; nothing else can be recognised.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence

DEVICES = ("lights", "radio", "heater", "fan", "television")
ROOMS = ("kitchen", "bedroom", "garage", "office", "bathroom")
NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
NAMES = ("john", "mary", "david", "susan", "robert", "karen")
OTHERS = ("turn", "on", "off", "the", "in", "set", "alarm", "for", "thirty", "call", "at", "play", "track")
#: Word 0 of the recogniser is "no word" (the blank).
WORDS = OTHERS + DEVICES + ROOMS + NUMBERS + NAMES


@functools.cache
def sentences() -> tuple[str, ...]:
    """Every command."""
    made = [f"turn {a} the {b} in the {c}" for a, b, c in itertools.product(("on", "off"), DEVICES, ROOMS)]
    made += [f"set the alarm for {a}{b}" for a, b in itertools.product(NUMBERS, ("", " thirty"))]
    made += [f"call {a} at {b}" for a, b in itertools.product(NAMES, NUMBERS)]
    made += [f"play track {a} in the {b}" for a, b in itertools.product(NUMBERS, ROOMS)]
    return tuple(made)


def numbers(text: str) -> list[int]:
    """The words' numbers for the recogniser, from 1."""
    return [WORDS.index(word) + 1 for word in text.split()]


def mistakes(wanted: Sequence[str], heard: Sequence[str]) -> int:
    """Words to replace, add or take away (Levenshtein distance)."""
    row = list(range(len(heard) + 1))
    for i, word in enumerate(wanted, 1):
        previous, row[0] = row[0], i
        for j, other in enumerate(heard, 1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (word != other))
    return row[-1]
