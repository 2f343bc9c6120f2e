"""The JSON schema of a plan: what `isolane edge plan --json` prints and `isolane edge run` reads.

Problem: programs that read plans need their form, units included. Method: the keys of `Plan` with a description each, checked
against its fields by a test. Limits: of profiles and results of joint planning there is none.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]


def number(text: str, least: float | None = 0.0, most: float | None = None) -> Schema:
    """A number in this range."""
    result: Schema = {"type": "number", "description": text}
    if least is not None:
        result["minimum"] = least
    if most is not None:
        result["maximum"] = most
    return result


def text(words: str) -> Schema:
    """A text."""
    return {"type": "string", "description": words}


def by_name(values: Schema, words: str) -> Schema:
    """An object with any keys."""
    return {"type": "object", "additionalProperties": values, "description": words}


def listed(items: Schema, words: str) -> Schema:
    """A list."""
    return {"type": "array", "items": items, "description": words}


def closed(properties: Schema, words: str = "") -> Schema:
    """An object with exactly these keys."""
    result: Schema = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    if words:
        result["description"] = words
    return result


VALUE: Schema = {"type": ["number", "string"]}
OPTION: Schema = {"type": ["number", "string", "boolean", "array"]}
SHARE = number("fraction of the capacity; above 1 it cannot last")
STEP = closed(
    {
        "placement": listed({"type": "integer", "minimum": 0}, "tier of each operator, in the order of the pipeline"),
        "configuration": listed({"type": "integer", "minimum": 0}, "index of each knob's value"),
        "utility": number("performance over resources (P / R), without a unit; of module:function, in its unit", None),
        "accuracy": number("of the task", 0.0, 1.0),
        "latency_ms": number("mean from source to last operator"),
        "launched": {"type": "boolean", "description": "false: results of an earlier launch were used"},
        "meets": {"type": "boolean", "description": "both objectives and all capacities hold"},
    },
    "one pair of placement and configuration that was tried",
)

#: The keys of `Plan`.
PLAN: Schema = {
    "query": text("its name"),
    "searcher": text("how it was found"),
    "order": listed({"type": "string"}, "operators from the source to the last"),
    "placement": by_name({"type": "string"}, "tier by operator"),
    "configuration": by_name(by_name(VALUE, "value by knob"), "settings by operator"),
    "accuracy": number("expected, of the task", 0.0, 1.0),
    "latency_ms": number("expected mean, from source to last operator"),
    "latency_p99_ms": number("upper bound of the 99th percentile: everything late at once"),
    "network_share": by_name(SHARE, "by link, `from->to`"),
    "compute_share": by_name(SHARE, "of cores, by tier"),
    "gpu_share": by_name(SHARE, "of GPUs, by tier"),
    "utility": number("performance over resources (P / R), without a unit; of module:function, in its unit", None),
    "meets": {"type": "boolean", "description": "both objectives and all capacities hold"},
    "launches": {"type": "integer", "minimum": 0, "description": "pipeline launches that the search paid for"},
    "profiling_cost_s": number("seconds of profiling"),
    "price_per_hour": number("of the used part of the tiers, in the currency of their prices per hour"),
    "why": text("why the runner-up lost"),
    "seed": {"type": "integer", "minimum": 0},
    "path": listed(STEP, "the search, in its order"),
}

OPERATOR = closed(
    {
        "name": text("its name"),
        "kind": {"enum": ["source", "filter", "model", "post"]},
        "implementation": text("module:Class, or an ONNX file"),
        "gpu": {"type": "boolean"},
        "options": by_name(OPTION, "what its class is made with"),
        "tier": text("where it runs"),
        "settings": by_name(VALUE, "value by knob"),
    }
)
LINK = closed(
    {
        "from": text("tier"),
        "to": text("the next tier"),
        "mbit_per_s": number("bandwidth"),
        "delay_ms": number("one way, without the time to send"),
    }
)
TIER = closed(
    {
        "name": text("its name"),
        "order": {"type": "integer", "minimum": 0},
        "compute_factor": number("speed of its cores; 1 is the profiling machine"),
        "gpu_factor": number("speed of its GPUs; 1 is the profiling machine"),
        "capacity_cores": number("cores"),
        "capacity_gpus": number("GPUs"),
        "price_per_hour": number("of the whole tier, in any currency per hour; the same for all tiers"),
    }
)


UNMET = closed(
    {
        "missed": listed({"type": "string"}, "what the plan misses, in words"),
        "possible": text("the best that is possible, and by what"),
        "remedies": listed({"type": "string"}, "changes, in words; each alone would let everything be met"),
    },
    "why the plan misses the query's objectives",
)


def plan_schema() -> Schema:
    """The whole document."""
    frame: Schema = {"version": {"const": 1}, "format": {"const": "isolane-plan"}}
    other: Schema = {**closed({**frame, **PLAN, "runner_up": {"type": "null"}}), "description": "the second best"}
    run: Schema = {
        "unmet": {"anyOf": [{"type": "null"}, UNMET]},
        "objectives": closed(
            {"accuracy_min": number("least", 0.0, 1.0), "latency_max_ms": number("most")}, "of the query"
        ),
        "rate_items_per_s": number("of the source"),
        "priority": {"type": "integer"},
        "workload": text("module:Class of recorded data, or nothing"),
        "operators": listed(OPERATOR, "in the order of the pipeline"),
        "infrastructure": closed({"tiers": listed(TIER, "from the source"), "links": listed(LINK, "from the source")}),
    }
    whole = closed({**frame, **PLAN, "runner_up": {"anyOf": [{"type": "null"}, other]}, **run})
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "A plan of isolane", **whole}
