"""What is printed has the form that the schema says, and the schema knows every field."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from isolane.planner import formats
from isolane.planner.cli import main
from isolane.planner.model import Plan
from isolane.planner.planning import plan_query
from isolane.planner.schema import PLAN, plan_schema
from planner_data import four_tiers, traffic, traffic_replay

KINDS = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "null": type(None),
}


def problems(value: Any, schema: dict[str, Any], where: str = "$") -> list[str]:
    """What breaks the schema: the words of JSON schema that ours uses, each as its text says."""
    if "anyOf" in schema:
        tries = [problems(value, each, where) for each in schema["anyOf"]]
        return [] if [] in tries else tries[-1]
    if "const" in schema:
        return [] if value == schema["const"] else [f"{where}: {value!r}"]
    if "enum" in schema:
        return [] if value in schema["enum"] else [f"{where}: {value!r}"]
    names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if not any(isinstance(value, KINDS[name]) and (name == "boolean" or not isinstance(value, bool)) for name in names):
        return [f"{where}: {value!r} is no {names}"]
    found = []
    if "minimum" in schema and value < schema["minimum"] or "maximum" in schema and value > schema["maximum"]:
        found.append(f"{where}: {value} is out of range")
    if isinstance(value, list):
        for index, each in enumerate(value):
            found += problems(each, schema["items"], f"{where}[{index}]")
    if isinstance(value, dict):
        known = schema.get("properties", {})
        found += [f"{where}: {key} is missing" for key in schema.get("required", []) if key not in value]
        for key, each in value.items():
            other = schema.get("additionalProperties")
            if key in known:
                found += problems(each, known[key], f"{where}.{key}")
            elif other is False:
                found.append(f"{where}: {key} is unknown")
            else:
                found += problems(each, other, f"{where}.{key}")
    return found


def printed() -> dict[str, Any]:
    query = traffic()
    plan = plan_query(query, four_tiers(), traffic_replay(query), "isolane").plan
    data: dict[str, Any] = json.loads(json.dumps(formats.plan_json(plan, query, four_tiers())))
    return data


def test_a_plan_has_the_form_that_the_schema_says() -> None:
    assert problems(printed(), plan_schema()) == []


@pytest.mark.parametrize(
    ("key", "value"),
    [("accuracy", 1.5), ("launches", "3"), ("meets", 1), ("runner_up", 7), ("new", 0), ("format", "plan"), ("path", [{}])],
)
def test_the_check_finds_what_is_wrong(key: str, value: object) -> None:
    assert problems({**printed(), key: value}, plan_schema())


def test_the_schema_knows_every_field_of_a_plan() -> None:
    assert {field.name for field in dataclasses.fields(Plan)} == {*PLAN, "runner_up"}


def test_the_schema_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--schema"]) == 0
    assert json.loads(capsys.readouterr().out) == plan_schema()
