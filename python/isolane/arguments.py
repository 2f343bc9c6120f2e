"""Command lines of `isolane edge`: a mistake is answered by one line that names the command, the words and the remedy."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Sequence
from typing import Any, NoReturn


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, with the nearest option; its commands have parsers of the same class.

    Examples
    --------
    >>> parser = Parser(prog="isolane edge run")
    >>> _ = parser.add_argument("--items")
    >>> parser.nearest("--itms")
    '; did you mean --items?'
    """

    def error(self, message: str) -> NoReturn:
        """Prints one line and ends with exit code 2."""
        self.exit(2, f"{self.prog}: {message.removeprefix('argument ')} (`{self.prog} --help` says more)\n")

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """Parses `args`; a word that is left is an error of the command that got it, not of the one above."""
        known, left = super().parse_known_args(args, namespace)
        if left:
            self.error(f"{left[0]}: no such option or one word too many{self.nearest(left[0])}")
        return known, left

    def nearest(self, word: str) -> str:
        """The option that `word` resembles, as the end of a message; empty if there is none."""
        near = difflib.get_close_matches(word, self._option_string_actions, n=1)
        return f"; did you mean {near[0]}?" if near else ""
