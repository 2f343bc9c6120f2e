"""Whole numbers that a peer wrote as digits.

Problem: `str.isdigit` accepts digits that `int` does not read, `int` refuses thousands of digits, and a float holds no number of hundreds.
Method: ASCII digits, and no more than any of our fields needs.
"""

from __future__ import annotations

#: 10^15 us are 31 years, and 10^15 bytes are more than any message has.
DIGITS_MAX = 15


def whole_number(text: str) -> int | None:
    """The number that these digits are; None if the text is no number, or one of more than `DIGITS_MAX` digits."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX else None
