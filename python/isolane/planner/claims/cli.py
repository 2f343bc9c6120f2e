"""`isolane edge plan --check-claims`: runs the claims about the planner and prints which hold.

Options are those of `isolane claims`: `--only`, `--list`, `--json`, `--markdown`, `--fail-on-miss`, `--cross-validate`; and
`--fail-on-change`, for CI.
Exit codes: 0 done, 1 a claim misses and one of the last two was given, 2 bad input.
"""

from __future__ import annotations

import argparse
import functools
import pathlib
import shutil
import sys

from isolane.planner import formats
from isolane.planner.claims import check, files
from isolane.planner.claims.experiments import Laboratory, Library
from isolane.planner.model import Launcher, PlanError, Query
from isolane.planner.profiles import Replay, load_profile

DONE, NO = 0, 1

#: The name that means stdout.
STDOUT = pathlib.Path("-")


def add_options(command: argparse.ArgumentParser) -> None:
    """The options of this mode."""
    group = command.add_argument_group("claims")
    group.add_argument("--check-claims", action="store_true", help="run the paper's claims instead of planning a query")
    group.add_argument("--claims", type=pathlib.Path, metavar="DIR", help="directory of claims (claims/vulcan, here or above)")
    group.add_argument("--only", action="append", default=[], metavar="GLOB", help="only claims whose id matches")
    group.add_argument("--list", action="store_true", help="list the claims without running them")
    group.add_argument(
        "--cross-validate",
        action="store_true",
        help="print how many predictions hold with parameters that are fitted without them",
    )
    group.add_argument("--markdown", type=pathlib.Path, nargs="?", const=STDOUT, metavar="FILE", help="as Markdown")
    group.add_argument("--fail-on-miss", action="store_true", help="exit with 1 when a claim misses")
    group.add_argument(
        "--fail-on-change",
        action="store_true",
        help="exit with 1 when a claim misses without a miss_reason in its file, or holds although there is one",
    )


def run(arguments: argparse.Namespace) -> int:
    """The mode."""
    folder = files.folder(arguments.claims)
    patterns = [pattern for each in arguments.only for pattern in each.split(",")]
    chosen = check.select(files.read_folder(folder), patterns)
    if arguments.list:
        sys.stdout.write("".join(f"vulcan/{claim.id}  {claim.statement}\n" for claim in chosen))
        return DONE
    reports = check.check(chosen, laboratory(arguments, folder))
    if arguments.cross_validate:
        sys.stdout.write(check.cross_validation(reports))
        return DONE
    if arguments.markdown is not None and arguments.markdown != STDOUT:
        try:
            arguments.markdown.write_text(check.markdown(reports), encoding="utf-8")
        except OSError as error:
            raise OSError(f"cannot write {arguments.markdown}: {error.strerror or error}") from error
        print(f"wrote {arguments.markdown}", file=sys.stderr)
    if arguments.json:
        sys.stdout.write(check.to_json(reports))
    elif arguments.markdown == STDOUT:
        sys.stdout.write(check.markdown(reports))
    elif not arguments.quiet:
        columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        sys.stdout.write(check.table(reports, columns))
    changes = [text for report in reports if (text := change(report))]
    if arguments.fail_on_change and changes:
        print("".join(f"isolane: claim {each}\n" for each in changes), end="", file=sys.stderr)
        return NO
    missed = any(report.within is False for report in reports)
    return NO if missed and arguments.fail_on_miss else DONE


def change(report: check.Report) -> str:
    """How the outcome differs from what the claim's file says, or an empty text."""
    if report.failure:
        return f"{report.claim.id} cannot be measured: {report.failure}"
    if report.within is False and not (report.few or report.claim.miss_reason):
        return f"{report.claim.id} misses, and its file has no miss_reason"
    if report.within is not False and report.claim.miss_reason:
        return f"{report.claim.id} does not miss: drop its miss_reason"
    return ""


def laboratory(arguments: argparse.Namespace, folder: pathlib.Path) -> Laboratory:
    """The experiments on the repository's queries and tiers."""
    tiers = arguments.infra or folder.resolve().parents[1] / "examples" / "tiers.yaml"
    return Laboratory(formats.load_infrastructure(tiers), library())


def library() -> Library:
    """The queries that come with the package, and their recorded launches."""
    # Imported here: planning a user's query does not need them.
    from isolane.queries.registry import builtin

    @functools.cache
    def find(name: str, scene: int) -> tuple[Query, Launcher]:
        known = builtin(name)
        scenes = list(known.scenes)
        if scene >= len(scenes):
            raise PlanError(f"query {name} has no changed scene")
        query = known.query()
        return query, Replay(query, load_profile(known.profile(scenes[scene])))

    return find
