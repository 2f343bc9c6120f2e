#!/usr/bin/env python3
"""Prints the fields of pods and nodes that an API server knows, as a table for tests.

    lab/kubernetes_fields.py api__v1_openapi.json types.go > crates/memory/service/src/fleet/kubernetes_fields.txt

The first file is what a Kubernetes API server publishes at /openapi/v3/api/v1 (also in its source, api/openapi-spec/v3), the
second one extender/v1/types.go of k8s.io/kube-scheduler, whose types have no schema: its fields are written as Go names them.
A line without indent is a type; each other line is a field and its kind: string, integer, number, boolean, any, a type,
[KIND] for a list, {KIND} for a map. `!` marks a field that must be there.
"""
from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

ROOTS = ("io.k8s.api.core.v1.Pod", "io.k8s.api.core.v1.NodeList")
EXTENDER = ("ExtenderArgs", "ExtenderFilterResult", "HostPriority")
GO_KINDS = {
    "*v1.Pod": "Pod",
    "*v1.NodeList": "NodeList",
    "*[]string": "[string]",
    "FailedNodesMap": "{string}",
    "string": "string",
    "int64": "integer",
}


def short(name: str) -> str:
    """A type's name without its package."""
    return name.rsplit(".", 1)[-1]


def reference(schema: dict[str, Any]) -> str | None:
    """The type that a schema refers to."""
    for one in [schema, *schema.get("allOf", [])]:
        if "$ref" in one:
            return str(one["$ref"]).rsplit("/", 1)[-1]
    return None


def kind(schema: dict[str, Any], wanted: list[str]) -> str:
    """A field's kind; types that it needs are added to `wanted`."""
    if name := reference(schema):
        wanted.append(name)
        return short(name)
    if schema.get("type") == "array":
        return f"[{kind(schema['items'], wanted)}]"
    if schema.get("type") == "object" and isinstance(schema.get("additionalProperties"), dict):
        return "{" + kind(schema["additionalProperties"], wanted) + "}"
    return str(schema.get("type", "any")).replace("object", "any")


def main() -> None:
    """Types in the order in which they are first needed."""
    schemas = json.loads(Path(sys.argv[1]).read_text())["components"]["schemas"]
    wanted, seen = list(ROOTS), set()
    for name in wanted:
        if name in seen:
            continue
        seen.add(name)
        schema = schemas[name]
        if "properties" not in schema:
            print(f"{short(name)} = {kind(schema, wanted)}")
            continue
        print(short(name))
        for field, own in sorted(schema["properties"].items()):
            must = "!" if field in schema.get("required", []) else ""
            print(f"  {field}{must} {kind(own, wanted)}")
    source = Path(sys.argv[2]).read_text()
    for name in EXTENDER:
        body = re.search(rf"type {name} struct {{(.*?)\n}}", source, re.DOTALL)
        if body is None:
            raise SystemExit(f"{sys.argv[2]} has no type {name}")
        print(name)
        for field, go in re.findall(r"^\t(\w+) +(\S+)$", body[1], re.MULTILINE):
            print(f"  {field} {GO_KINDS[go]}")


main()
