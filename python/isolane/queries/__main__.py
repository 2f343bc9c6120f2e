"""`python -m isolane.queries list | profile QUERY`: the built-in queries, and their profile data measured again.

Problem: profile data in the repository must be possible to measure again, on any machine. Units: as in the profile's
format. Method: `profile`. Limits: one thread; a profile takes one to five minutes. Exit codes: 0 done, 2 bad input,
3 something is not installed or cannot be written.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import sys
from collections.abc import Sequence

# Before numpy is loaded: a profile is of one thread, and threads that wait for each other would be counted.
for _library in ("OPENBLAS", "OMP", "MKL"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")

from isolane import allowed  # noqa: E402
from isolane.installing import extra  # noqa: E402
from isolane.planner.formats import load_query  # noqa: E402
from isolane.planner.model import PlanError, Query  # noqa: E402
from isolane.planner.profiles import write_profile  # noqa: E402
from isolane.queries.registry import BUILTINS, builtin  # noqa: E402


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m isolane.queries", description=(__doc__ or "").split("\n", 1)[0])
    commands = parser.add_subparsers(dest="command", required=True)
    listing = commands.add_parser("list", help="the built-in queries, their scenes and knobs")
    listing.add_argument("--json", action="store_true", help="as JSON")
    measuring = commands.add_parser(
        "profile", help="measure accuracy, bytes and times of every order and configuration"
    )
    measuring.add_argument("query", help="a built-in query, or a query file whose `workload` names its data")
    measuring.add_argument("--scene", help="which data of a built-in query (default: its first)")
    measuring.add_argument("--output", type=pathlib.Path, help="file to write (default: the one in the package)")
    measuring.add_argument("--allow-module", action="append", default=[], metavar="M", help="also run code of this module")
    options = parser.parse_args(arguments)
    try:
        allowed.allow(getattr(options, "allow_module", []))
        return (
            show(options.json) if options.command == "list" else measure(options.query, options.scene, options.output)
        )
    except (PlanError, allowed.NameRefused) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        return 3
    except ModuleNotFoundError as error:
        print(f"error: {error.name} is not installed; {extra('plan')}", file=sys.stderr)
        return 3


def show(as_json: bool) -> int:
    """Names, scenes and knobs."""
    queries = [(one, one.query()) for one in BUILTINS.values()]
    if as_json:
        print(
            json.dumps(
                [
                    {
                        "query": query.name,
                        "scenes": list(one.scenes),
                        "orders": len(query.orders()),
                        "configurations": len(query.configurations()),
                        "knobs": {f"{knob.operator}.{knob.name}": list(knob.values) for knob in query.knobs},
                    }
                    for one, query in queries
                ],
                indent=2,
            )
        )
        return 0
    for one, query in queries:
        print(
            f"{query.name}: scenes {', '.join(one.scenes)}; {len(query.orders())} orders, "
            f"{len(query.configurations())} configurations"
        )
        for knob in query.knobs:
            print(f"  {knob.operator}.{knob.name}: {', '.join(map(str, knob.values))}")
    return 0


def measure(name: str, scene: str | None, output: pathlib.Path | None) -> int:
    """Profiles one query."""
    from isolane.planner.live import check_operators, workload_of
    from isolane.queries.profile import profile

    if name.endswith((".yaml", ".yml")):
        query = load_query(pathlib.Path(name))
        allowed.check(name, query.code)
        check_operators(query)
        workload, scene = workload_of(query), scene or ""
        target = output or pathlib.Path(f"{query.name}.json.gz")
    else:
        found = builtin(name)
        query, scene = found.query(), scene or next(iter(found.scenes))
        workload, target = found.workload(scene), output or found.profile(scene)
    # What cannot be written is said before minutes of measuring.
    target.parent.mkdir(parents=True, exist_ok=True)
    target.touch()
    try:
        measured = profile(query, workload, scene, lambda line: print(line, file=sys.stderr, flush=True))
    finally:
        if not target.stat().st_size:
            target.unlink()
    write_profile(target, measured)
    accuracies = [launch.accuracy for launch in measured.launches]
    print(f"{target}: {len(accuracies)} launches, accuracy {min(accuracies):.3f} to {max(accuracies):.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
