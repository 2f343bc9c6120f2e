"""Command lines of `isolane edge`: a mistake is answered by one line that names the command, the words and the remedy."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Sequence
from typing import Any, NoReturn

#: Similarity from which a word is a misspelt option: below it, `--only` resembles `--polcy`.
SIMILARITY_MIN = 0.8
NUMBERS = {int: "a whole number", float: "a number"}


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
        """Prints one line in the form of the Rust program's errors, and ends with exit code 2."""
        message = message.removeprefix("argument ")
        required = message.removeprefix("the following arguments are required: ")
        if required != message:
            names = [name if name.startswith("-") else name.upper() for name in required.split(", ")]
            message = f"{self.prog} needs {' and '.join(names)}"
        self.exit(2, f"{self.prog.split()[0]}: {message} (`{self.prog} --help` says more)\n")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            name = "/".join(action.option_strings) or action.metavar or action.dest
            raise argparse.ArgumentError(None, f"{name} {value}: must be one of {', '.join(map(str, action.choices))}")

    def _get_value(self, action: argparse.Action, text: str) -> Any:
        wanted = NUMBERS.get(action.type) if isinstance(action.type, type) else None
        try:
            return super()._get_value(action, text)
        except argparse.ArgumentError:
            if wanted is None:
                raise
            raise argparse.ArgumentError(None, f"{'/'.join(action.option_strings)} {text}: must be {wanted}") from None

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """Parses `args`; a word that is left is an error of the command that got it, not of the one above."""
        known, left = super().parse_known_args(args, namespace)
        if left:
            what = f"{self.prog} has no such option" if left[0].startswith("-") else "one word too many"
            self.error(f"{left[0]}: {what}{self.nearest(left[0])}")
        return known, left

    def nearest(self, word: str) -> str:
        """The option that `word` resembles, as the end of a message; empty if there is none."""
        near = difflib.get_close_matches(word, self._option_string_actions, n=1, cutoff=SIMILARITY_MIN)
        return f"; did you mean {near[0]}?" if near else ""
