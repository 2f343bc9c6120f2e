"""`python -m isolane.planner plan query.yaml --infra tiers.yaml`: what `isolane edge plan` runs.

Problem: a plan for people (text), for programs (JSON, what `isolane edge run` reads) or as a page. Results go to stdout,
errors to stderr. Exit codes: 0 done, 1 no plan meets the objectives, 2 bad input, 3 the machine cannot,
130 interrupted.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import pathlib
import shlex
import sys
from collections.abc import Sequence

from isolane import allowed
from isolane.arguments import Parser
from isolane.planner import beyond, formats
from isolane.planner.claims import cli as claims
from isolane.planner.model import Infrastructure, Launcher, Order, PlanError, Query
from isolane.planner.planning import Planned, plan_query, shortfalls
from isolane.planner.profiles import Replay, load_profile
from isolane.planner.remedies import unmet
from isolane.planner.schema import plan_schema
from isolane.planner.search import SEARCHERS
from isolane.planner.search.problem import Options
from isolane.planner.utility import unit_of

DONE, NO, BAD_INPUT, CANNOT, INTERRUPTED = 0, 1, 2, 3, 130

#: A folder of profiles beside a query, and the one of the queries that come with the package.
PROFILE_FOLDER = "profiles"
#: File of the page within `--report`.
REPORT = "report.html"
BUILT_IN = pathlib.Path(__file__).resolve().parents[1] / "queries" / PROFILE_FOLDER

#: What the name of a profile may leave out.
ENDINGS = ("", ".json.gz", ".json")


def parser() -> argparse.ArgumentParser:
    """The arguments."""
    top = Parser(prog="isolane edge", description="Plans live ML queries.", allow_abbrev=False)
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    plan = commands.add_parser(
        "plan",
        help="choose order, placement and configuration of a query's operators",
        description="Chooses order of filters, placement over tiers and configuration of a live ML query.",
        epilog="Exit codes: 0 done; 1 no plan meets the objectives; 2 bad input; 3 the machine cannot. `--python PATH` (or "
        "ISOLANE_PYTHON) names the interpreter.",
        allow_abbrev=False,
    )
    plan.add_argument("query", type=pathlib.Path, nargs="*", help="query file (YAML); several are planned jointly")
    plan.add_argument("--infra", type=pathlib.Path, help="tiers and links (YAML)")
    plan.add_argument("--profile-data", type=pathlib.Path, metavar="DIR", help="directory of profiles (beside the query)")
    plan.add_argument(
        "--live", action="store_true", help="launch the operators here, a line each on stderr, instead of replaying a profile"
    )
    plan.add_argument("--searcher", default="vulcan", metavar="NAME", help=f"one of {', '.join(SEARCHERS)} (vulcan)")
    plan.add_argument("--utility", metavar="NAME", help="ratio (performance over resources, no unit), strict or module:function (the query's)")
    plan.add_argument("--allow-module", action="append", default=[], metavar="M", help="also run code of this module")
    plan.add_argument("--order", metavar="NAME,...", help="order of the operators, instead of choosing it")
    plan.add_argument("--seed", type=int, default=0, help="random seed (0)")
    add_options(plan)
    form = plan.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="the plan as JSON, as `isolane edge run` reads it")
    form.add_argument("--quiet", action="store_true", help="print nothing")
    plan.add_argument(
        "--out", type=pathlib.Path, metavar="FILE", help="also write the plan's JSON here (of several queries: a directory)"
    )
    plan.add_argument(
        "--report",
        type=pathlib.Path,
        metavar="DIR",
        help="also write report.html: search, Pareto plot, placement (of several queries: a page each and index.html)",
    )
    plan.add_argument("--schema", action="store_true", help="print the JSON schema of a plan, and end")
    beyond.add_options(plan)
    claims.add_options(plan)
    return top


def add_options(command: argparse.ArgumentParser) -> None:
    """Options of the search."""
    usual = Options()
    command.add_argument("--starts", type=int, default=usual.starts, help=f"random starts ({usual.starts})")
    command.add_argument(
        "--patience",
        type=int,
        default=usual.patience,
        help=f"launches without enough improvement before a search stops ({usual.patience})",
    )
    command.add_argument("--kappa", type=float, default=usual.kappa, help=f"exploration of UCB ({usual.kappa:g})")
    command.add_argument(
        "--budget-s",
        type=float,
        default=usual.budget_s,
        metavar="S",
        help="end the search after so many seconds: of recorded launches, or with --live of wall time, per query (unbounded)",
    )


def options_of(arguments: argparse.Namespace) -> Options:
    """The search's options, checked."""
    for name, least in (("starts", 1), ("patience", 1), ("kappa", 0.0), ("budget_s", 0.0), ("seed", 0)):
        value = getattr(arguments, name)
        # A budget that is not given has no end.
        if not value >= least or (value == math.inf and name != "budget_s"):
            end = " and have an end" if value == math.inf else ""
            raise PlanError(f"--{name.replace('_', '-')} {value:g}: must be at least {least:g}{end}")
    return Options(
        starts=arguments.starts,
        kappa=arguments.kappa,
        patience=arguments.patience,
        budget_s=arguments.budget_s,
    )


def profile_path(query: Query, file: pathlib.Path, folder: pathlib.Path | None) -> pathlib.Path:
    """Where the query's profile is: in the directory given, or beside the query, or with the package."""
    name = query.profile or query.name
    places = [folder] if folder is not None else [file.parent, file.parent / PROFILE_FOLDER, BUILT_IN]
    for place in places:
        for ending in ENDINGS:
            candidate = place / f"{name}{ending}"
            if candidate.is_file():
                return candidate
    tried = " or ".join(str(place / name) for place in places)
    raise PlanError(f"query {query.name}: no profile at {tried}; {remedy(query, file, places[0] / f'{name}.json.gz')}")


def remedy(query: Query, file: pathlib.Path, target: pathlib.Path) -> str:
    """How to come by a profile: only what works for this query."""
    if not query.workload:
        return "name its directory with --profile-data, or give the query a `workload` (module:Class) and launch it with --live"
    command = f"python -m isolane.queries profile {shlex.quote(str(file))} --output {shlex.quote(str(target))}"
    known = "" if file.suffix in (".yaml", ".yml") else " (of a file that ends in .yaml)"
    return f"name its directory with --profile-data, make one with `{command}`{known}, or launch for real with --live"


def order_of(query: Query, words: str | None) -> Order | None:
    """The order that the command line fixes, checked."""
    if words is None:
        return None
    order = tuple(words.split(","))
    if order not in query.orders():
        raise PlanError(
            f"--order {words}: must be one of {'; '.join(','.join(each) for each in query.orders()[:6])}"
        )
    return order


def plan_command(arguments: argparse.Namespace) -> int:
    """`isolane edge plan`."""
    if arguments.schema:
        print(json.dumps(plan_schema(), indent=1))
        return DONE
    if arguments.check_claims:
        return claims.run(arguments)
    if not arguments.query:
        raise PlanError("no query; name a query file (YAML)")
    if arguments.infra is None:
        raise PlanError("--infra is missing; name a file of tiers and links (YAML)")
    infrastructure = formats.load_infrastructure(arguments.infra)
    if len(arguments.query) > 1:
        every = [plan_file(file, infrastructure, arguments) for file in arguments.query]
        return beyond.plan_several(every, infrastructure, arguments)
    beyond.check_alone(arguments)
    planned = plan_file(arguments.query[0], infrastructure, arguments)
    query = planned.problem.query
    if arguments.prices:
        return beyond.print_prices(planned, infrastructure, arguments)
    if arguments.uncertain is not None:
        planned = beyond.robust(planned, arguments)
    missed = unmet(planned)
    data = json.dumps(formats.plan_json(planned.plan, query, infrastructure, missed), indent=1) + "\n"
    if arguments.json:
        sys.stdout.write(data)
    elif not arguments.quiet:
        sys.stdout.write(as_text(planned, query, infrastructure))
    if arguments.out:
        beyond.write(arguments.out, data)
    if arguments.report:
        from isolane.planner.report import render

        beyond.write(arguments.report / REPORT, render(planned.plan, query, infrastructure, unmet=missed))
    if missed is None:
        return DONE
    print(f"isolane: query {query.name}: {missed.sentence()}", file=sys.stderr)
    return NO


def plan_file(file: pathlib.Path, infrastructure: Infrastructure, arguments: argparse.Namespace) -> Planned:
    """The plan of the query in this file."""
    query = formats.load_query(file)
    if arguments.utility:
        query = dataclasses.replace(query, utility=arguments.utility)
        if ":" in query.utility:
            # The user named this function on the command line, and so its module.
            allowed.allow([allowed.split(query.utility)[0]])
    options = options_of(arguments)
    order = order_of(query, arguments.order)
    launcher: Launcher
    if arguments.live:
        from isolane.planner.live import Live

        allowed.check(file, query.code)
        say = None if arguments.quiet else progress
        # With a budget, not even an operator that hangs may overrun it.
        launcher = Live(query, budget_s=options.budget_s, progress=say, apart=math.isfinite(options.budget_s))
    else:
        launcher = Replay(query, load_profile(profile_path(query, file, arguments.profile_data)))
    return plan_query(query, infrastructure, launcher, arguments.searcher, arguments.seed, options, order)


def progress(line: str) -> None:
    """What a live launch found, as it ends."""
    print(f"isolane: {line}", file=sys.stderr, flush=True)


def as_text(planned: Planned, query: Query, infrastructure: Infrastructure) -> str:
    """The plan for people."""
    plan = planned.plan
    lines = [f"query {plan.query}, searcher {plan.searcher}, seed {plan.seed}", ""]
    width = max(len(name) for name in plan.order)
    for name in plan.order:
        knobs = ", ".join(f"{knob} = {value}" for knob, value in plan.configuration[name].items())
        lines.append(f"  {name:<{width}}  on {plan.placement[name]:<10}  {knobs}".rstrip())
    lines += [
        "",
        f"  accuracy   {plan.accuracy:8.3f}      at least {query.accuracy_min:g}",
        f"  latency    {plan.latency_ms:8.1f} ms   at most {query.latency_max_ms:g} ms (99th percentile {plan.latency_p99_ms:.1f} ms)",
        f"  network    {shares(plan.network_share)}",
        f"  cores      {shares(plan.compute_share)}",
        f"  GPUs       {shares(plan.gpu_share)}",
    ]
    if any(tier.price_per_hour for tier in infrastructure.tiers):
        lines.append(f"  price      {plan.price_per_hour:8.4f} per hour, in the currency of the tiers' prices")
    lines += [
        f"  utility    {plan.utility:8.4g}      {unit_of(query)}",
        f"  profiling  {plan.launches} launches, {plan.profiling_cost_s:.1f} s",
    ]
    if planned.ordering.scores:
        best = {order: max(scores) for order, scores in planned.ordering.scores.items()}
        ranked = sorted(best, key=lambda order: -best[order])
        count = len(query.filters)
        lines.append("  order      " + "; ".join(f"{' > '.join(each[1 : 1 + count])} {best[each]:.3f}" for each in ranked[:4]))
    if plan.runner_up:
        lines += ["", f"The second-best plan lost: {plan.why}."]
    verdict = "meets both objectives" if plan.meets else " and ".join(shortfalls(query, plan))
    return "\n".join([*lines, "", f"The plan {verdict}.", ""])


def shares(values: object) -> str:
    """Shares that are not 0, in percent."""
    assert isinstance(values, dict)
    used = [f"{name} {100.0 * share:.2f} %" for name, share in values.items() if share > 0.0]
    return ", ".join(used) or "none"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    known = parser().parse_args(arguments)
    try:
        allowed.allow(known.allow_module)
        return plan_command(known)
    except (PlanError, allowed.NameRefused) as error:
        print(f"isolane: {error}", file=sys.stderr)
        return BAD_INPUT
    except BrokenPipeError:
        return DONE
    except KeyboardInterrupt:
        print("isolane: ended by SIGINT", file=sys.stderr)
        return INTERRUPTED
    except (OSError, MemoryError, ImportError) as error:
        print(f"isolane: {error}", file=sys.stderr)
        return CANNOT
