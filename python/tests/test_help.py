"""The help that the Rust program prints where no Python is, a committed copy, says what the Python programs say.

Goal: no twin that drifts. Method: words are compared, not lines or the usage, which Python's releases wrap differently.
`ISOLANE_UPDATE_HELP=1 python -m pytest -k help` writes the copies again. Skips outside a clone.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import re

import pytest

from isolane.pipeline import cli as pipeline
from isolane.planner import cli as planner

COPIES = pathlib.Path(__file__).resolve().parents[2] / "crates/app/cli/src/commands/edge"


def commands_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The parsers of its commands."""
    actions = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return dict(actions[0].choices)


def plan_help() -> str:
    """Of `isolane edge plan`."""
    return commands_of(planner.parser())["plan"].format_help()


def pipeline_help() -> str:
    """Of `isolane edge` and of each of its commands."""
    top = pipeline.parser()
    return "\n\n".join(each.format_help() for each in (top, *commands_of(top).values()))


@pytest.mark.parametrize(("name", "made"), [("plan", plan_help), ("pipeline", pipeline_help)])
def test_the_copy_of_the_help_is_current(name: str, made: object, monkeypatch: pytest.MonkeyPatch) -> None:
    if not COPIES.is_dir():
        pytest.skip("not in a clone: the copies of the help are in the Rust program's directory")
    monkeypatch.setenv("COLUMNS", "100")
    assert callable(made)
    text = made()
    copy = COPIES / f"{name}.txt"
    if os.environ.get("ISOLANE_UPDATE_HELP") == "1":
        copy.write_text(text.rstrip() + "\n", encoding="utf-8")
    again = "run ISOLANE_UPDATE_HELP=1 python -m pytest -k help and commit the result"
    assert words(copy.read_text(encoding="utf-8")) == words(text), again


def words(text: str) -> list[str]:
    """The words, without the usages."""
    return re.sub(r"(?ms)^usage: .*?\n\n", "", text).split()
