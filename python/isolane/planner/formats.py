"""Files of the planner: queries and tiers (YAML), plans (JSON). Profile data is in `profiles`.

Problem: text from outside becomes checked types, or an error with file, line, key, value and remedy. Units end the keys.
Method: `fields` keeps positions; each format carries a version. Limits: whole files are read at once.
"""

from __future__ import annotations

import json
import pathlib
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, TypeVar, cast

from isolane.planner.fields import Field, document
from isolane.planner.model import (
    KINDS,
    SAME,
    Infrastructure,
    Kind,
    Knob,
    Link,
    OperatorSpec,
    Plan,
    PlanError,
    Query,
    Step,
    Tier,
    Unmet,
)

Made = TypeVar("Made")

#: The version of query, tier and plan files.
VERSION = 1

QUERY_KEYS = (
    "version",
    "query",
    "operators",
    "accuracy_min",
    "latency_max_ms",
    "gamma",
    "alpha_accuracy",
    "alpha_latency",
    "alpha_compute",
    "alpha_network",
    "alpha_money",
    "price_max_per_hour",
    "priority",
    "rate_items_per_s",
    "profile",
    "workload",
    "utility",
)
OPERATOR_KEYS = ("name", "kind", "implementation", "knobs", "gpu", "accepts", "gives", "after", "tiers", "options")
TIER_KEYS = ("name", "compute_factor", "gpu_factor", "capacity_cores", "capacity_gpus", "price_per_hour")
LINK_KEYS = ("from", "to", "mbit_per_s", "delay_ms")


def read_text(path: pathlib.Path, wanted: str) -> str:
    """A text file, or an error that names the file, what it looks like and what is `wanted`."""
    try:
        text = path.read_text(encoding="utf-8")
    except IsADirectoryError as error:
        raise PlanError(f"{path}: is a directory, and {wanted} is needed; name a file in it") from error
    except OSError as error:
        raise PlanError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise PlanError(f"{path}: is binary data, and {wanted} is needed") from error
    if not text.strip():
        raise PlanError(f"{path}: is empty, and {wanted} is needed")
    return text


def read_yaml(path: pathlib.Path, wanted: str) -> str:
    """As `read_text`; TOML, which other commands take, is an error."""
    text = read_text(path, wanted)
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    if lines and re.match(r"\[\[?[a-z_.]+\]|[a-z_]+ *= *\S", lines[0]):
        raise PlanError(f"{path}: is TOML, and {wanted} is needed; isolane sim {path} names the command that takes the file")
    return text


def load_query(path: pathlib.Path) -> Query:
    """The query in this file."""
    return parse_query(read_yaml(path, "a query in YAML (docs/guides/plan.md)"), str(path))


def parse_query(text: str, file: str) -> Query:
    """The query in this text; `file` names it in errors."""
    others = {
        "tiers": "is a file of tiers, and a query is needed; tiers go with --infra",
        "format": "is a plan, and a query is needed; isolane edge run takes a plan",
        "scenario": "is the result of a run, and a query in YAML is needed (docs/guides/plan.md)",
    }
    root = document(text, file, others)
    entries = root.mapping(QUERY_KEYS)
    check_version(root, entries)
    operators = tuple(parse_operator(each) for each in root.required(entries, "operators").sequence())
    options: dict[str, Any] = {}
    for key in ("alpha_accuracy", "alpha_latency", "alpha_compute", "alpha_network", "alpha_money"):
        if key in entries:
            options[key] = entries[key].number(0.0)
    if "price_max_per_hour" in entries:
        options["price_max_per_hour"] = entries["price_max_per_hour"].number(0.0, above=True)
    if "gamma" in entries:
        options["gamma"] = entries["gamma"].number(0.0, 1.0)
    if "priority" in entries:
        options["priority"] = entries["priority"].whole(-1000, 1000)
    if "rate_items_per_s" in entries:
        options["rate_items_per_s"] = entries["rate_items_per_s"].number(0.0, above=True)
    for key in ("profile", "workload", "utility"):
        if key in entries:
            options[key] = entries[key].text()
    return at(
        root,
        lambda: Query(
            name=root.required(entries, "query").text(),
            operators=operators,
            accuracy_min=root.required(entries, "accuracy_min").number(0.0, 1.0),
            latency_max_ms=root.required(entries, "latency_max_ms").number(0.0, above=True),
            **options,
        ),
    )


def parse_operator(field: Field) -> OperatorSpec:
    """One operator of a query."""
    entries = field.mapping(OPERATOR_KEYS)
    name = field.required(entries, "name").text()
    knobs = tuple(parse_knob(each, name) for each in entries["knobs"].sequence()) if "knobs" in entries else ()
    names = [knob.name for knob in knobs]
    for knob in names:
        if names.count(knob) > 1:
            entries["knobs"].fail(f"operator {name} names the knob {knob} twice")
    return OperatorSpec(
        name=name,
        kind=cast(Kind, field.required(entries, "kind").choice(KINDS)),
        implementation=field.required(entries, "implementation").text(),
        knobs=knobs,
        gpu=entries["gpu"].truth() if "gpu" in entries else False,
        accepts=entries["accepts"].texts() if "accepts" in entries else (),
        gives=entries["gives"].text() if "gives" in entries else SAME,
        after=entries["after"].texts() if "after" in entries else (),
        tiers=entries["tiers"].texts() if "tiers" in entries else (),
        options=entries["options"].options() if "options" in entries else {},
    )


def parse_knob(field: Field, operator: str) -> Knob:
    """One knob of an operator."""
    entries = field.mapping(("name", "values"))
    name = field.required(entries, "name").text()
    values = tuple(each.value() for each in field.required(entries, "values").sequence())
    return at(field, lambda: Knob(name, operator, values))


def load_infrastructure(path: pathlib.Path) -> Infrastructure:
    """Tiers and links in this file."""
    return parse_infrastructure(read_yaml(path, "a file of tiers and links in YAML (docs/guides/plan.md)"), str(path))


def parse_infrastructure(text: str, file: str) -> Infrastructure:
    """Tiers and links in this text; tiers are numbered in the order of the file."""
    others = {
        "operators": "is a query, and --infra needs a file of tiers and links",
        "scenario": "is the result of a run, and --infra needs a file of tiers and links",
    }
    root = document(text, file, others)
    entries = root.mapping(("version", "tiers", "links"))
    check_version(root, entries)
    tiers = []
    for order, each in enumerate(root.required(entries, "tiers").sequence()):
        own = each.mapping(TIER_KEYS)
        options = {key: own[key].number(0.0, above=key.endswith("_factor")) for key in TIER_KEYS[1:] if key in own}
        tiers.append(Tier(each.required(own, "name").text(), order, **options))
    links = []
    for each in entries["links"].sequence() if "links" in entries else []:
        own = each.mapping(LINK_KEYS)
        links.append(
            Link(
                each.required(own, "from").text(),
                each.required(own, "to").text(),
                each.required(own, "mbit_per_s").number(0.0, above=True),
                own["delay_ms"].number(0.0) if "delay_ms" in own else 0.0,
            )
        )
    return at(root, lambda: Infrastructure(tuple(tiers), tuple(links)))


def check_version(root: Field, entries: Mapping[str, Field]) -> None:
    """A file without a version is of this one."""
    if "version" in entries:
        version = entries["version"].whole(1, 1_000_000)
        if version != VERSION:
            entries["version"].fail(f"{version}: this program reads version {VERSION}")


def at(field: Field, make: Callable[[], Made]) -> Made:
    """What `make` returns; an error of its checks gets the place of the field, unless it has one."""
    try:
        return make()
    except PlanError as error:
        if str(error).startswith(f"{field.file}:"):
            raise
        field.fail(str(error))


def plan_json(plan: Plan, query: Query, infrastructure: Infrastructure, unmet: Unmet | None = None) -> dict[str, Any]:
    """A plan with all that a runner needs: operators with their tiers and settings, tiers, links, objectives.

    `unmet` has the reasons why the plan misses the query's objectives, if it does.
    """
    result = plan_body(plan)
    result["unmet"] = None if unmet is None else asdict(unmet)
    result["objectives"] = {"accuracy_min": query.accuracy_min, "latency_max_ms": query.latency_max_ms}
    result["rate_items_per_s"] = query.rate_items_per_s
    result["priority"] = query.priority
    result["workload"] = query.workload
    result["operators"] = [
        {
            "name": name,
            "kind": query.operator(name).kind,
            "implementation": query.operator(name).implementation,
            "gpu": query.operator(name).gpu,
            "options": dict(query.operator(name).options),
            "tier": plan.placement[name],
            "settings": plan.configuration[name],
        }
        for name in plan.order
    ]
    result["infrastructure"] = {
        "tiers": [asdict(tier) for tier in infrastructure.tiers],
        "links": [
            {"from": link.source, "to": link.target, "mbit_per_s": link.mbit_per_s, "delay_ms": link.delay_ms}
            for link in infrastructure.links
        ],
    }
    return result


def plan_body(plan: Plan) -> dict[str, Any]:
    """The plan alone, its runner-up within."""
    result: dict[str, Any] = {"version": VERSION, "format": "isolane-plan"}
    for key, value in plan.__dict__.items():
        if key == "runner_up":
            result[key] = None if value is None else plan_body(value)
        elif key == "path":
            result[key] = [asdict(step) for step in value]
        elif isinstance(value, Mapping):
            result[key] = dict(value)
        else:
            result[key] = list(value) if isinstance(value, tuple) else value
    return result


def parse_plan(text: str, file: str) -> tuple[Plan, dict[str, Any]]:
    """A plan, and the whole file for what the runner needs besides."""
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise PlanError(f"{file}:{error.lineno}: not valid JSON: {error.msg}; name a file that `isolane edge plan --out` wrote") from error
    except (ValueError, RecursionError) as error:
        raise PlanError(f"{file}: not valid JSON: {error}") from error
    several = {"isolane-joint-plan": "a joint plan of several queries", "isolane-offers": "a list of plans by price"}
    if isinstance(data, dict) and isinstance(data.get("format"), str) and data["format"] in several:
        how = "`isolane edge plan QUERY QUERY ... --out DIR`" if "joint" in data["format"] else "`isolane edge plan ... --out FILE`"
        raise PlanError(f"{file}: is {several[data['format']]}, and one plan is needed; {how} writes each plan to its own file")
    if not isinstance(data, dict) or data.get("format") != "isolane-plan":
        raise PlanError(f"{file}: is no plan; `isolane edge plan ... --json` writes one")
    if data.get("version") != VERSION:
        raise PlanError(f"{file}: version = {data.get('version')}: this program reads version {VERSION}")
    try:
        return plan_from(data), data
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise PlanError(f"{file}: is no plan that this program wrote: {error!r}") from error


def load_plan(path: pathlib.Path) -> tuple[Plan, dict[str, Any]]:
    """The plan in this file."""
    return parse_plan(read_text(path, "a plan that `isolane edge plan --out` wrote"), str(path))


def plan_from(data: Mapping[str, Any]) -> Plan:
    """The inverse of `plan_body`."""
    own: dict[str, Any] = {key: data[key] for key in Plan.__dataclass_fields__ if key in data}
    own["order"] = tuple(own["order"])
    own["runner_up"] = None if own.get("runner_up") is None else plan_from(own["runner_up"])
    own["path"] = tuple(
        Step(**{**step, "placement": tuple(step["placement"]), "configuration": tuple(step["configuration"])})
        for step in own.get("path", ())
    )
    return Plan(**own)
