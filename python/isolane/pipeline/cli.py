"""`isolane edge run|watch|lab|manifests|serve`: plans, run for real.

Results go to standard output, progress and errors to standard error. Exit codes: 0 done, 1 the answer is no (an item failed or an
objective was missed), 2 bad input (also a knob or move that was refused while items flowed), 3 the machine cannot,
130 interrupted, 143 or 129 ended by SIGTERM or SIGHUP: what was made is removed first.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import json
import pathlib
import signal
import sys
import time
from collections.abc import AsyncIterator, Coroutine, Sequence
from typing import Any

from isolane import allowed, output
from isolane.arguments import Parser
from isolane.pipeline import clock, kubernetes, lab, live, rayserve
from isolane.pipeline.deployment import Deployment, from_plan
from isolane.pipeline.operator import OperatorError
from isolane.pipeline.records import Summary, summarize
from isolane.pipeline.runner import Event, Moved, Options, Runner, RunnerError
from isolane.pipeline.source import ITEMS, open_source
from isolane.pipeline.spaces import Spaces, SpacesError, missing
from isolane.pipeline.verdict import Verdict, judge
from isolane.planner import formats
from isolane.planner.model import PlanError

DONE, NO, BAD_INPUT, CANNOT = 0, 1, 2, 3
ENDS = (
    "Exit codes: 0 done; 1 items failed, an objective was missed, or the lab's answer is no; 2 bad input; 3 the machine cannot. `--python PATH` (or "
    "ISOLANE_PYTHON) names the interpreter."
)
#: What is added to a signal's number: 130 is an interrupt.
ENDED_BY = 128


def parser() -> argparse.ArgumentParser:
    """All arguments."""
    top = Parser(prog="isolane edge", description="Runs what `isolane edge plan` decided.", epilog=ENDS, allow_abbrev=False)
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    run = _command(commands, "run", "run a plan on its workload; report the outcome of each item", ENDS)
    _plan(run)
    _running(run)
    run.add_argument("--items", type=int, default=150, help="items to send, of each source (150)")
    run.add_argument("--source", action="append", default=[], metavar="ADDRESS", help=f"{live.ADDRESSES}; instead of the workload; may be repeated")
    run.add_argument("--set", action="append", default=[], metavar="OPERATOR.KNOB=VALUE@S", help="change a knob S seconds after the start")
    run.add_argument("--move", action="append", default=[], metavar="OPERATOR=TIER@S", help="move an operator S seconds after the start")
    run.add_argument("--records", type=pathlib.Path, metavar="FILE", help="also write the outcome of each item, one JSON line per item")

    watch = _command(commands, "watch", "run a plan and adapt it to changed conditions", ENDS)
    _plan(watch)
    _running(watch)
    watch.add_argument("--query", type=pathlib.Path, required=True, help="the query that was planned (YAML)")
    watch.add_argument("--profile-data", type=pathlib.Path, metavar="DIR", help="directory of profiles (beside the query)")
    watch.add_argument("--searcher", default="vulcan", choices=("vulcan", "isolane"), help="how to plan again (vulcan)")
    watch.add_argument("--duration-s", type=float, default=60.0, help="seconds to watch (60)")
    watch.add_argument("--period-s", type=float, default=2.0, help="seconds between observations (2)")
    watch.add_argument("--source", metavar="ADDRESS", help=f"{live.ADDRESSES}; instead of the workload")
    watch.add_argument("--cut", action="append", default=[], metavar="LINK=FACTOR@S", help="make a link FACTOR times slower after S seconds")

    trial = _command(commands, "lab", "plan, run and disturb queries in network namespaces", ENDS)
    trial.add_argument("queries", nargs="+", type=pathlib.Path, help="query files (YAML)")
    trial.add_argument("--infra", type=pathlib.Path, required=True, help="tiers and links (YAML)")
    trial.add_argument("--profile-data", type=pathlib.Path, metavar="DIR", help="directory of profiles (beside the queries)")
    trial.add_argument("--searcher", default="vulcan", choices=("vulcan", "isolane"), help="how to plan (vulcan)")
    trial.add_argument("--factor", type=float, default=20.0, help="how many times slower the busiest link gets (20)")
    trial.add_argument("--quick", action="store_true", help="under three minutes")
    _allowing(trial)
    trial.add_argument("--json", action="store_true", help="results as JSON")

    cluster = _command(commands, "manifests", "Kubernetes manifests of a plan; tiers are node labels")
    _plan(cluster)
    cluster.add_argument("--image", required=True, help="image with Python, isolane and the operators")
    cluster.add_argument("--namespace", default="default", help="Kubernetes namespace (default)")
    cluster.add_argument("--cpu", default="1", help="cores that an operator requests (1)")
    cluster.add_argument("--memory", default="1Gi", help="memory of an operator (1Gi)")
    cluster.add_argument("--camera", default="", metavar="NAME", help="also feed the operators from a camera, whose address is in a Secret")

    serve = _command(commands, "serve", "run a plan on Ray Serve (extra `serve`)")
    _plan(serve)
    serve.add_argument("--gpus", action="store_true", help="gpu operators reserve a part of one")
    serve.add_argument("--local-tiers", action="store_true", help="start a local Ray that has all tiers")
    serve.add_argument("--host", default="127.0.0.1", help="address that takes items; every program that reaches it may send items (127.0.0.1)")
    serve.add_argument("--port", type=int, default=8000, help="its port (8000)")
    serve.add_argument("--token-file", type=pathlib.Path, metavar="FILE", help="a file of mode 600 with the token that knob changes need; without it, knobs cannot be changed")
    return top


def _command(commands: argparse._SubParsersAction[Parser], name: str, about: str, ends: str = "") -> Parser:
    return commands.add_parser(name, help=about, description=f"{about[0].upper()}{about[1:]}.", epilog=ends, allow_abbrev=False)


def _plan(command: argparse.ArgumentParser) -> None:
    command.add_argument("plan", type=pathlib.Path, help="plan file (JSON of `isolane edge plan --json`)")
    _allowing(command)


def _allowing(command: argparse.ArgumentParser) -> None:
    command.add_argument("--allow-module", action="append", default=[], metavar="M", help="also run code of this module")


def deployment_of(arguments: argparse.Namespace) -> Deployment:
    """The plan's deployment, if all code that it names is accepted."""
    deployment = from_plan(formats.load_plan(arguments.plan)[1])
    allowed.check(arguments.plan, deployment.code)
    return deployment


def _running(command: argparse.ArgumentParser) -> None:
    usual = Options()
    command.add_argument("--tiers", choices=("namespaces", "local"), default="namespaces", help="tiers as network namespaces, or local without links (namespaces)")
    command.add_argument("--rate", type=float, metavar="PER_S", help="items per second (the plan's)")
    command.add_argument("--window", type=int, default=usual.window, help=f"largest number of items in flight ({usual.window})")
    command.add_argument("--deadline-s", type=float, default=usual.deadline_s, help=f"seconds after which an item fails ({usual.deadline_s:g})")
    command.add_argument("--hang-s", type=float, default=usual.hang_s, help=f"seconds for one item, after which the operator is restarted ({usual.hang_s:g})")
    command.add_argument("--json", action="store_true", help="results as JSON")


def main(words: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit code."""
    arguments = parser().parse_args(words)
    signals: list[int] = []
    try:
        allowed.allow(arguments.allow_module)
        if arguments.command == "manifests":
            return _manifests(arguments)
        if arguments.command == "serve":
            return _serve(arguments)
        actions = {"run": _run, "watch": _watch, "lab": lab.main}
        return asyncio.run(_until_signal(actions[arguments.command](arguments), signals))
    except BrokenPipeError:
        return DONE
    except (SpacesError, rayserve.RayMissing, OSError) as error:
        print(f"isolane: {error}", file=sys.stderr)
        return CANNOT
    except (PlanError, OperatorError, RunnerError, allowed.NameRefused) as error:
        print(f"isolane: {error}", file=sys.stderr)
        return BAD_INPUT
    except (KeyboardInterrupt, asyncio.CancelledError):
        number = signals[0] if signals else signal.SIGINT
        print(f"isolane: ended by {signal.Signals(number).name}", file=sys.stderr)
        return ENDED_BY + number


async def _until_signal(work: Coroutine[Any, Any, int], signals: list[int]) -> int:
    """Runs `work` until it is done or a signal stops it; the signal is then in `signals`. In both cases it cleans up.

    Further signals change nothing: `timeout` sends two, and one amid the removal would leave namespaces behind.
    """
    loop, own = asyncio.get_running_loop(), asyncio.current_task()
    assert own is not None

    def stop(number: int) -> None:
        if not signals:
            own.cancel()
        signals.append(number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # A signal that the parent ignored (`nohup`) stays ignored.
        if signal.getsignal(number) != signal.SIG_IGN:
            loop.add_signal_handler(number, stop, number)
    return await work


def _manifests(arguments: argparse.Namespace) -> int:
    deployment = deployment_of(arguments)
    cluster = kubernetes.Cluster(arguments.image, arguments.namespace, arguments.cpu, arguments.memory, arguments.camera)
    print(kubernetes.manifests(deployment, cluster), end="")
    return DONE


def _serve(arguments: argparse.Namespace) -> int:
    deployment = deployment_of(arguments)
    if not 1 <= arguments.port <= 65535:
        raise PlanError(f"--port {arguments.port}: must be from 1 to 65535")
    digest = "" if arguments.token_file is None else rayserve.token_digest(arguments.token_file)
    application = rayserve.application(deployment, arguments.gpus, digest)
    import ray
    from ray import serve

    if arguments.local_tiers:
        ray.init(resources={f"tier:{place.name}": 1.0 for place in deployment.places})
    serve.start(http_options={"host": arguments.host, "port": arguments.port})
    serve.run(application, name=deployment.query, route_prefix=f"/{deployment.query}")
    print(f"POST http://{arguments.host}:{arguments.port}/{deployment.query}/process; interrupt to stop", file=sys.stderr)
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            time.sleep(1.0)
    serve.shutdown()
    return DONE


@contextlib.asynccontextmanager
async def tiers(arguments: argparse.Namespace, deployment: Deployment) -> AsyncIterator[Spaces | None]:
    """The plan's tiers in namespaces, or None where they all are this machine."""
    if arguments.tiers == "local":
        yield None
        return
    lacks = missing()
    if lacks:
        raise SpacesError(f"{lacks}; or give --tiers local, which has no links between tiers")
    async with Spaces([place.name for place in deployment.places], deployment.wires) as spaces:
        yield spaces


def options_of(arguments: argparse.Namespace) -> Options:
    """How to run, checked."""
    for name, least in (("window", 1), ("deadline_s", 0.5), ("hang_s", 0.1)):
        if not getattr(arguments, name) >= least:
            raise PlanError(f"--{name.replace('_', '-')} {getattr(arguments, name)}: must be at least {least}")
    if arguments.rate is not None and not 0.0 < arguments.rate <= 10_000.0:
        raise PlanError(f"--rate {arguments.rate:g}: must be above 0, 10000 per second at most")
    return Options(arguments.hang_s, arguments.deadline_s, arguments.window)


async def _run(arguments: argparse.Namespace) -> int:
    deployment = deployment_of(arguments)
    options = options_of(arguments)
    if not 1 <= arguments.items <= 1_000_000:
        raise PlanError(f"--items {arguments.items}: must be from 1 to 1000000")
    rate = arguments.rate or deployment.rate_items_per_s
    changes = [_change(text, deployment, True, arguments.items / rate) for text in arguments.set]
    changes += [_change(text, deployment, False, arguments.items / rate) for text in arguments.move]
    addresses = [live.parse(text) for text in arguments.source]
    source = open_source(deployment.workload, 1 if addresses else min(arguments.items, ITEMS))
    streams = [live.Stream(one, live.form_of(source.items[0]), rate) for one in addresses]
    if arguments.records is not None:
        # A file that cannot be written is said before the run, not after it.
        output.write(arguments.records, "")
    async with contextlib.AsyncExitStack() as stack:
        spaces = await stack.enter_async_context(tiers(arguments, deployment))
        # Each source has operators of its own: those with a memory know one camera.
        runners = [await stack.enter_async_context(Runner(deployment, spaces, options)) for _ in range(max(len(streams), 1))]
        of_each = f" of each of {len(runners)} sources" if len(runners) > 1 else ""
        print(f"{len(deployment.stages)} operators run; {arguments.items} items{of_each} at {rate:g} a second", file=sys.stderr)
        if streams:
            feeds = [live.feed(runner, stream, arguments.items) for runner, stream in zip(runners, streams, strict=True)]
        else:
            feeds = [runners[0].feed(source.first(arguments.items), rate)]
        feeding = [asyncio.ensure_future(_feed(runner, feed, changes)) for runner, feed in zip(runners, feeds, strict=True)]
        try:
            done = await asyncio.gather(*feeding)
        finally:
            for one in feeding:
                one.cancel()
    documents, missed = [], False
    for index, runner in enumerate(runners):
        summary = summarize(runner.sent, runner.records)
        verdict = judge(deployment, None if streams else source, runner.records, runner.sent, options.deadline_s)
        missed = missed or bool(verdict.missed) or (bool(streams) and runner.sent < arguments.items)
        document = {"query": deployment.query, **verdict.document(), **summary.document()}
        document["events"] = [dataclasses.asdict(one) for one in runner.events]
        document["moves"] = [dataclasses.asdict(one) for one in done[index][0]]
        if streams:
            document = {"source": addresses[index].name, "dropped": streams[index].dropped, **document}
        if not arguments.json:
            print(text_of(deployment, summary, verdict, document))
        # The text's reader has seen these on stderr.
        document["events"] += [dataclasses.asdict(one) for one in done[index][1]]
        documents.append(document)
    if arguments.json:
        print(json.dumps({"query": deployment.query, "sources": documents} if streams else documents[0], indent=2))
    if arguments.records is not None:
        # After the results, which a full disk must not lose.
        _write_records(arguments.records, runners, addresses)
    if any(refused for _, refused in done):
        return BAD_INPUT
    return NO if missed else DONE


async def _feed(
    runner: Runner, feed: Coroutine[Any, Any, None], changes: Sequence[tuple[float, str, Any, str]]
) -> tuple[list[Moved], list[Event]]:
    """Feeds a runner and makes the changes meanwhile."""
    feeding = asyncio.ensure_future(feed)
    try:
        done = await _apply(runner, changes, time.monotonic())
        await feeding
    finally:
        feeding.cancel()
    return done


async def _apply(runner: Runner, changes: Sequence[tuple[float, str, Any, str]], begin: float) -> tuple[list[Moved], list[Event]]:
    """Makes each change at its time; the moves, and the changes that were refused. Those change nothing, and items flow on."""
    moves: list[Moved] = []
    refused: list[Event] = []
    for at_s, name, value, knob in sorted(changes, key=lambda one: one[0]):
        await asyncio.sleep(max(begin + at_s - time.monotonic(), 0.0))
        try:
            if knob:
                await runner.configure(name, {knob: value})
            else:
                moves.append(await runner.migrate(name, str(value)))
        except RunnerError as error:
            what = f"--set {name}.{knob}={value}" if knob else f"--move {name}={value}"
            print(f"isolane: {what}@{at_s:g}: {error}; nothing was changed", file=sys.stderr)
            refused.append(Event(clock.now(), name, f"{what}@{at_s:g} was refused: {error}"))
    return moves, refused


def _change(text: str, deployment: Deployment, knob: bool, until_s: float) -> tuple[float, str, Any, str]:
    """`OPERATOR.KNOB=VALUE@S` or `OPERATOR=TIER@S`, before the last item is sent."""
    what = "--set" if knob else "--move"
    shape = "OPERATOR.KNOB=VALUE@SECONDS" if knob else "OPERATOR=TIER@SECONDS"
    left, equals, right = text.partition("=")
    value, at, when = right.rpartition("@")
    name, dot, knob_name = left.partition(".") if knob else (left, ".", "")
    try:
        if not (equals and at and name and value and dot and (knob_name or not knob)):
            raise ValueError
        seconds = float(when)
    except ValueError:
        raise PlanError(f"{what} {text}: write {shape}") from None
    if not 0.0 <= seconds <= until_s:
        raise PlanError(f"{what} {text}: {seconds:g} s is outside the run, which sends its last item after {until_s:g} s")
    deployment.stage(name)
    if not knob:
        deployment.place(value)
        return seconds, name, value, ""
    try:
        return seconds, name, json.loads(value), knob_name
    except ValueError:
        return seconds, name, value, knob_name


def _write_records(path: pathlib.Path, runners: Sequence[Runner], addresses: Sequence[live.Address]) -> None:
    lines = []
    for index, runner in enumerate(runners):
        named = {"source": addresses[index].name} if addresses else {}
        for one in sorted(runner.records, key=lambda one: one.number):
            plain = {name: getattr(one, name) for name in one.__dataclass_fields__ if name != "outputs"}
            lines.append(json.dumps({**named, **plain, "outputs": len(one.outputs)}))
    output.write(path, "\n".join(lines) + "\n")


def text_of(deployment: Deployment, summary: Summary, verdict: Verdict | None, document: dict[str, Any]) -> str:
    """A run for people."""
    lines = [f"source {document['source']}"] if "source" in document else []
    lines += [
        f"{deployment.query}: {summary.sent} items: {summary.delivered} delivered, {summary.filtered} filtered out, "
        f"{summary.failed} failed, {summary.refused} refused, {summary.lost} lost"
    ]
    if summary.latency_p50_ms is not None:
        lines.append(
            f"latency: median {summary.latency_p50_ms:.1f} ms, 90 % within {summary.latency_p90_ms:.1f} ms, "
            f"99 % within {summary.latency_p99_ms:.1f} ms (at most {deployment.latency_max_ms:g} ms wanted)"
        )
    if verdict is not None:
        known = "unknown" if verdict.accuracy is None else f"{verdict.accuracy:.3f}"
        note = f"; {verdict.unjudged}" if verdict.unjudged else ""
        lines.append(f"accuracy: {known} (at least {deployment.accuracy_min:g} wanted{note})")
    lines += _table_of(summary.hops)
    lines += [f"{count} x {reason}" for reason, count in summary.reasons.items()]
    lines += [f"{event['operator']}: {event['what']}" for event in document["events"]]
    lines += [f"MISSED {what}" for what in (verdict.missed if verdict is not None else ())]
    return "\n".join(lines)


def _table_of(hops: Sequence[dict[str, Any]]) -> list[str]:
    """A row for each operator, in at most 80 columns where the names of operator and tier have 18 characters together."""
    operator, tier = (max(map(len, [name, *(hop[name] for hop in hops)])) for name in ("operator", "tier"))
    lines = [f"{'operator':{operator}} {'tier':{tier}}  items passed net ms wait ms work ms core ms idle ms bytes out"]
    for hop in hops:
        network, *times = (_milliseconds(hop[f"{name}_ms"]) for name in ("network", "waiting", "process", "processor", "idle"))
        lines.append(
            f"{hop['operator']:{operator}} {hop['tier']:{tier}} {hop['items']:6} {hop['passed']:6} {network:>6} "
            + " ".join(f"{each:>7}" for each in times)
            + f" {hop['bytes_out']:9.0f}"
        )
    return lines


def _milliseconds(value: float) -> str:
    """At least three digits, and at most two decimals."""
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f}"


async def _watch(arguments: argparse.Namespace) -> int:
    plan, document = formats.load_plan(arguments.plan)
    deployment = deployment_of(arguments)
    options = options_of(arguments)
    for name, least, most in (("period_s", 0.1, 3600.0), ("duration_s", 0.1, 1e9)):
        if not least <= getattr(arguments, name) <= most:
            raise PlanError(f"--{name.replace('_', '-')} {getattr(arguments, name):g}: must be from {least:g} to {most:g}")
    query = formats.load_query(arguments.query)
    if query.name != plan.query:
        raise PlanError(f"{arguments.query}: is the query {query.name}, and the plan is for {plan.query}")
    allowed.check(arguments.query, query.code)
    cuts = [lab.parse_cut(text, document) for text in arguments.cut]
    source = open_source(deployment.workload)
    stream = None
    if arguments.source is not None:
        rate = arguments.rate or query.rate_items_per_s
        # The workload judges accuracies by its own ids.
        ids = live.ids_within(len(source.workload.items()))
        stream = live.Stream(live.parse(arguments.source), live.form_of(source.items[0]), rate, ids=ids)
    launcher = lab.launcher_of(query, arguments.query, arguments.profile_data)
    infrastructure = lab.infrastructure_of(document)
    async with tiers(arguments, deployment) as spaces, Runner(deployment, spaces, options) as runner:
        session = lab.Session(runner, spaces, query, infrastructure, plan, launcher, source, arguments.searcher, stream)
        await session.watch(arguments.duration_s, arguments.period_s, cuts, arguments.json, arguments.rate)
        summary = summarize(runner.sent, runner.records)
    events = [dataclasses.asdict(one) for one in runner.events if stream is not None and one.operator == stream.address.name]
    print(json.dumps(summary.document()) if arguments.json else text_of(runner.deployment, summary, None, {"events": events}))
    return DONE if summary.lost == 0 else NO


