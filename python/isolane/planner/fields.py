"""Reads YAML with positions, so that an error names file, line, key, value, range and the nearest valid spelling.

Problem: a plain YAML loader loses the line of a value. Method: the composed node tree, wrapped; values are checked as
they are taken, and unused keys are errors. Limits: one document per file, no merge keys.
"""

from __future__ import annotations

import difflib
import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import yaml

from isolane.planner.model import PlanError, Value


#: Of a value in an error: this many characters of its text.
SHOWN = 80
#: The largest whole number that a float can hold.
LARGEST = int(sys.float_info.max)


class Field:
    """A node of a YAML file with the path that leads to it."""

    def __init__(self, node: yaml.Node, file: str, path: str) -> None:
        self.node = node
        self.file = file
        self.path = path

    def fail(self, problem: str) -> NoReturn:
        """Raises the problem with its place."""
        line = self.node.start_mark.line + 1
        raise PlanError(f"{self.file}:{line}: {self.path + ': ' if self.path else ''}{problem}")

    def mapping(self, known: Sequence[str]) -> dict[str, Field]:
        """Its entries; a key outside `known`, or named twice, is an error."""
        if not isinstance(self.node, yaml.MappingNode):
            self.fail(f"must be a mapping with the keys {', '.join(known)}")
        result: dict[str, Field] = {}
        for key, value in self.node.value:
            name = str(key.value)
            entry = Field(value, self.file, f"{self.path}.{name}" if self.path else name)
            entry_line = Field(key, self.file, entry.path)
            if name not in known:
                near = difflib.get_close_matches(name, known, 1, 0.5)
                hint = f"did you mean {near[0]}?" if near else f"known keys: {', '.join(known)}"
                entry_line.fail(f"unknown key; {hint}")
            if name in result:
                entry_line.fail("named twice")
            result[name] = entry
        return result

    def sequence(self) -> list[Field]:
        """Its elements."""
        if not isinstance(self.node, yaml.SequenceNode):
            self.fail("must be a list")
        return [Field(node, self.file, f"{self.path}[{index}]") for index, node in enumerate(self.node.value)]

    def scalar(self) -> Any:
        """Its value as YAML reads it."""
        if not isinstance(self.node, yaml.ScalarNode):
            self.fail("must be a single value")
        loader = yaml.SafeLoader("")
        try:
            value = loader.construct_object(self.node)
        except (yaml.YAMLError, ValueError, ArithmeticError, AttributeError, LookupError) as error:
            # A tag such as !!bool on another text ends in errors of Python.
            self.fail(f"{self.node.value[:SHOWN]!r}: is no plain value: {error}")
        if isinstance(value, int) and abs(value) > LARGEST:
            self.fail(f"{self.node.value[:SHOWN]}: is too large; {LARGEST:g} at most")
        return value

    def text(self) -> str:
        """A text that is not empty."""
        value = self.scalar()
        if not isinstance(value, str) or not value:
            self.fail(f"{value!r}: must be a text")
        return value

    def choice(self, allowed: Sequence[str]) -> str:
        """One of these words."""
        value = self.text()
        if value not in allowed:
            near = difflib.get_close_matches(value, allowed, 1, 0.5)
            hint = f" (did you mean {near[0]}?)" if near else ""
            self.fail(f"{value}: must be one of {', '.join(allowed)}{hint}")
        return value

    def truth(self) -> bool:
        """true or false."""
        value = self.scalar()
        if not isinstance(value, bool):
            self.fail(f"{value!r}: must be true or false")
        return value

    def number(self, least: float = -math.inf, most: float = math.inf, above: bool = False) -> float:
        """A finite number from `least` (or above it) to `most`."""
        value = self.scalar()
        allowed = f"above {least:g}" if above else f"at least {least:g}" if least > -math.inf else "a number"
        if most < math.inf:
            allowed += f" and at most {most:g}"
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            self.fail(f"{value!r}: must be a number, {allowed}")
        if value < least or (above and value == least) or value > most:
            self.fail(f"{value:g}: must be {allowed}")
        return float(value)

    def whole(self, least: int, most: int) -> int:
        """A whole number in this range."""
        value = self.scalar()
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            self.fail(f"{value!r}: must be a whole number from {least} to {most}")
        return value

    def value(self) -> Value:
        """A value of a knob."""
        value = self.scalar()
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            self.fail(f"{value!r}: must be a number or a text")
        return value

    def option(self) -> Value | bool | list[Value | bool]:
        """A value of an operator's option: a single one, or a list of those."""
        if isinstance(self.node, yaml.SequenceNode):
            return [each.single() for each in self.sequence()]
        return self.single()

    def single(self) -> Value | bool:
        """A number, a text, true or false."""
        value = self.scalar()
        return value if isinstance(value, bool) else self.value()

    def options(self) -> dict[str, Value | bool | list[Value | bool]]:
        """A mapping with any keys, each named once."""
        if not isinstance(self.node, yaml.MappingNode):
            self.fail("must be a mapping of options, such as {timeout_s: 5}")
        names = [str(key.value) for key, _ in self.node.value]
        return {name: each.option() for name, each in self.mapping(names).items()}

    def texts(self) -> tuple[str, ...]:
        """One text, or a list of them."""
        if isinstance(self.node, yaml.ScalarNode):
            return (self.text(),)
        return tuple(each.text() for each in self.sequence())

    def required(self, entries: dict[str, Field], key: str) -> Field:
        """The entry of this key, or an error that says where it belongs."""
        if key not in entries:
            self.fail(f"the key {key} is missing")
        return entries[key]


def document(text: str, file: str, others: Mapping[str, str]) -> Field:
    """The file's one document. `others` has the keys that only another kind of file has, and the problem with each."""
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise PlanError(f"{file}:{line}: not valid YAML: {error.problem}") from error
    except (yaml.YAMLError, RecursionError) as error:
        raise PlanError(f"{file}: not valid YAML: {error}") from error
    if node is None:
        raise PlanError(f"{file}: is empty")
    root = Field(node, file, "")
    keys = {str(key.value) for key, _ in node.value} if isinstance(node, yaml.MappingNode) else set()
    for key, problem in others.items():
        if key in keys:
            root.fail(problem)
    return root
