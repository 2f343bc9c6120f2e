"""The command line of what goes beyond the paper: several queries, uncertainty, prices.

Problem: `isolane edge plan` with more than one query, with `--uncertain` or with `--prices`. Results go to stdout, notes to stderr; the
JSON of several queries is `{"version": 1, "format": "isolane-joint-plan", "plans": [...], ...}`, each plan as `isolane edge run`
reads it. Exit codes: 0 done, 1 a query was refused or nothing meets the objectives.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import pathlib
import sys
from collections.abc import Sequence
from typing import Any

from isolane import output
from isolane.planner import cost, formats, multi, overview, robust as robustness
from isolane.planner.model import Infrastructure, Plan, PlanError, would
from isolane.planner.planning import Planned
from isolane.planner.report import render

DONE, NO = 0, 1

#: The version of the joint plan's JSON.
VERSION = 1


def add_options(command: argparse.ArgumentParser) -> None:
    """Options of these parts."""
    several = command.add_argument_group("several queries")
    several.add_argument("--running", metavar="NAME,...", default="", help="queries that run already and continue to meet their objectives")
    several.add_argument("--preempt", action="store_true", help="admit by priority: a running query can be rejected")
    beyond = command.add_argument_group("uncertainty and money")
    beyond.add_argument(
        "--uncertain", metavar="RANGES", help="plan for factors, as in bandwidth=0.5..1,compute=0.8..1,load=1..2"
    )
    beyond.add_argument(
        "--confidence", type=float, metavar="PART", help="part of the cases in which a plan must meet all objectives (1)"
    )
    beyond.add_argument("--prices", action="store_true", help="the plans that no other plan beats in price per hour and utility")


def check_alone(arguments: argparse.Namespace) -> None:
    """Raises options that say nothing of one query: without a word they would seem to have been heeded."""
    if arguments.running or arguments.preempt:
        raise PlanError(f"--{'running' if arguments.running else 'preempt'} is for several queries; name their files")
    if arguments.confidence is not None and arguments.uncertain is None:
        raise PlanError("--confidence is for --uncertain; say what is uncertain")
    if arguments.prices and arguments.uncertain is not None:
        raise PlanError("--prices and --uncertain are two questions; ask one at a time")


def plan_several(planned: Sequence[Planned], infrastructure: Infrastructure, arguments: argparse.Namespace) -> int:
    """Plans the queries jointly and prints or writes the requested output."""
    for option in ("uncertain", "prices", "confidence"):
        if getattr(arguments, option):
            raise PlanError(f"--{option} is for one query")
    running = [name for name in arguments.running.split(",") if name]
    joint = multi.plan_jointly(planned, infrastructure, running, arguments.preempt)
    queries = {each.plan.query: each.problem.query for each in planned}
    bodies = {plan.query: formats.plan_json(plan, queries[plan.query], infrastructure) for plan in joint.plans}
    if arguments.json:
        sys.stdout.write(json.dumps(document(joint, bodies), indent=1) + "\n")
    elif not arguments.quiet:
        sys.stdout.write(as_text(joint))
    if arguments.out:
        for name, body in bodies.items():
            write(arguments.out / f"{name}.json", json.dumps(body, indent=1) + "\n")
    if arguments.report:
        for plan in joint.plans:
            page = render(beside(plan, joint), queries[plan.query], infrastructure, other=("Beside the others", "alone"))
            write(arguments.report / f"{plan.query}.html", page)
        sentences = {each.query: sentence(each) for each in joint.refused}
        write(arguments.report / overview.FILE, overview.render(joint, queries, sentences, tuple(running)))
    for refused in joint.refused:
        print(f"isolane: query {refused.query}: {sentence(refused)}", file=sys.stderr)
    return NO if joint.refused else DONE


def beside(plan: Plan, joint: multi.JointPlan) -> Plan:
    """The plan with what it would have alone as its runner-up, which is what a page compares."""
    alone = dataclasses.replace(joint.alone[plan.query], runner_up=None, path=())
    return dataclasses.replace(plan, runner_up=alone)


def document(joint: multi.JointPlan, bodies: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The JSON form."""
    return {
        "version": VERSION,
        "format": "isolane-joint-plan",
        "plans": [bodies[plan.query] for plan in joint.plans],
        "alone": {
            name: {"latency_ms": plan.latency_ms, "utility": plan.utility, "placement": dict(plan.placement)}
            for name, plan in joint.alone.items()
        },
        "refused": [dataclasses.asdict(each) for each in joint.refused],
        "loads": [dataclasses.asdict(each) for each in joint.loads],
        "exact": joint.exact,
    }


def sentence(refused: multi.Refusal) -> str:
    """Why, and what would help."""
    return refused.reason + would("fit", refused.remedies)


def as_text(joint: multi.JointPlan) -> str:
    """For people."""
    lines = []
    for plan in joint.plans:
        alone = joint.alone[plan.query]
        lines += [
            f"{plan.query}: admitted",
            f"  tiers      {', '.join(f'{name}@{plan.placement[name]}' for name in plan.order)}",
            f"  accuracy   {plan.accuracy:.3f}",
            f"  latency    {plan.latency_ms:.1f} ms beside the others, {alone.latency_ms:.1f} ms alone",
            f"  utility    {plan.utility:.4g}, {alone.utility:.4g} alone (performance over resources, no unit)",
            f"  because    {plan.why}",
            "",
        ]
    lines += [f"{each.query}: refused, {sentence(each)}\n" for each in joint.refused]
    used = [f"{each.resource} ({each.kind}) {100.0 * each.share:.1f} %" for each in joint.loads if each.share > 0.0]
    lines.append(f"used by all: {', '.join(used) or 'nothing'}")
    if not joint.exact:
        lines.append("the search for joint plans ended early: there may be a better one")
    return "\n".join(lines) + "\n"


def robust(planned: Planned, arguments: argparse.Namespace) -> Planned:
    """The robust plan in place of the nominal one."""
    uncertainty = robustness.Uncertainty.parse(arguments.uncertain, arguments.seed)
    confidence = 1.0 if arguments.confidence is None else arguments.confidence
    found = robustness.plan_robustly(planned, uncertainty, confidence)
    print(
        f"isolane: {found.scenarios} scenarios: {found.why}; its longest latency is "
        f"{found.standing.latency_max_ms:.1f} ms, and where nothing changes it has "
        f"{100.0 * found.price_of_robustness:.1f} % less utility",
        file=sys.stderr,
    )
    if found.standing.share < confidence:
        print(
            f"isolane: no plan holds in {100.0 * confidence:g} % of the scenarios; this one fails with "
            f"{found.standing.fails_in}",
            file=sys.stderr,
        )
    return dataclasses.replace(planned, plan=found.plan)


def print_prices(planned: Planned, infrastructure: Infrastructure, arguments: argparse.Namespace) -> int:
    """The table of offers."""
    found = cost.offers(planned)
    if arguments.json:
        plans = [formats.plan_json(each.plan, planned.problem.query, infrastructure) for each in found]
        sys.stdout.write(json.dumps({"version": VERSION, "format": "isolane-offers", "plans": plans}, indent=1) + "\n")
    elif not arguments.quiet:
        sys.stdout.write(cost.table(found))
    return DONE if found else NO


def write(path: pathlib.Path, text: str) -> None:
    """Writes a file and prints its path."""
    output.write(path, text)
    print(f"wrote {path}", file=sys.stderr)
