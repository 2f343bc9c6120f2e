"""Runs claims and says which hold.

Problem: each claim of `claims/vulcan` is a formula over experiments, for 20 seeds where chance plays a part. Method: each distinct
(experiment, seed) runs once; the formula is computed per seed and the values become one as the claim says (`over`), or, with
`median-of-runs`, once over the medians of the measurements, which is what the paper's figures compare. A median holds only if four fifths of the
seeds hold too. The 10th, 50th and 90th
percentiles of the values per seed are always reported. A miss stays a miss; its reason is in the file.

Units: the claim's. Limits: profiles are replayed, so nothing here is timed. Source: vulcan 4.6.1 (20 seeds, percentiles).
"""

from __future__ import annotations

import fnmatch
import json
import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from isolane.planner.model import PlanError
from isolane.planner.claims.files import Claim, Run
from isolane.planner.claims.metric import MetricError

#: (options of the experiment, seed) -> what it measured.
Laboratory = Callable[[Mapping[str, str | int], int], Mapping[str, float]]

#: Ways of putting seeds together under which four fifths of the single seeds must hold too.
BY_SEED = ("median", "median-of-runs")

SUFFIXES = {"x": "x", "ms": " ms", "us": " us", "%": " %"}


@dataclass(frozen=True)
class Report:
    """A claim's outcome. `ours` is absent where it could not be measured, and `within` where nothing is published."""

    claim: Claim
    ours: float | bool | None
    per_seed: tuple[float | bool, ...]
    within: bool | None
    failure: str = ""
    few: str = ""
    """How few seeds hold, where too few do though all of them together do."""

    @property
    def verdict(self) -> str:
        """As printed."""
        return {True: "within", False: "MISS", None: "reported"}[self.within]

    @property
    def percentiles(self) -> tuple[float, float, float] | None:
        """The 10th, 50th and 90th over the seeds, of numbers."""
        numbers = [value for value in self.per_seed if not isinstance(value, bool)]
        if not numbers:
            return None
        low, middle, high = (float(each) for each in np.percentile(numbers, [10, 50, 90]))
        return low, middle, high

    @property
    def reason(self) -> str:
        """Why ours is off or absent."""
        return self.failure or self.few or (self.claim.miss_reason if self.within is False else "")

    def published_text(self) -> str:
        """What the paper has, as people read it."""
        claim = self.claim
        if claim.withheld:
            return "withheld"
        if claim.at_least is not None:
            return f">= {text(claim.at_least, claim.unit)}"
        if claim.at_most is not None:
            return f"<= {text(claim.at_most, claim.unit)}"
        return text(True if claim.published is None else claim.published, claim.unit)

    def spread_text(self) -> str:
        """How the seeds differ: percentiles of numbers, a count of comparisons."""
        if self.percentiles is not None:
            return " / ".join(text(value, "") for value in self.percentiles)
        return f"holds in {sum(map(bool, self.per_seed))} of {len(self.per_seed)}" if self.per_seed else ""

    def document(self) -> dict[str, object]:
        """The JSON form; the names are those of `isolane claims --json`."""
        claim = self.claim
        percentiles = self.percentiles
        return {
            "id": claim.id,
            "system": "vulcan",
            "paper": claim.paper,
            "statement": claim.statement,
            "kind": claim.kind,
            "testbed": "planner",
            "unit": claim.unit,
            "published": self.published_text(),
            "ours": self.ours,
            "p10": percentiles and percentiles[0],
            "p50": percentiles and percentiles[1],
            "p90": percentiles and percentiles[2],
            "tolerance": tolerance_text(claim),
            "within": self.within,
            "reason": self.reason or None,
            "note": claim.note or None,
            "metric": claim.metric.text,
            "per_seed": list(self.per_seed),
            "seeds": list(claim.seeds),
            "over": claim.over,
        }


def select(claims: Sequence[Claim], patterns: Sequence[str]) -> list[Claim]:
    """Claims whose id matches one of the patterns, which may have the system before them; all without patterns."""
    patterns = [pattern.removeprefix("vulcan/") for pattern in patterns]
    for pattern in patterns:
        if not any(fnmatch.fnmatchcase(claim.id, pattern) for claim in claims):
            raise PlanError(f"no claim matches {pattern!r}; `--check-claims --list` names them all")
    return [claim for claim in claims if not patterns or any(fnmatch.fnmatchcase(claim.id, each) for each in patterns)]


def check(claims: Sequence[Claim], laboratory: Laboratory) -> list[Report]:
    """Runs what the claims need, each experiment once, and judges."""
    done: dict[tuple[tuple[tuple[str, str | int], ...], int], Mapping[str, float] | PlanError] = {}

    def measure(run: Run, seed: int) -> Mapping[str, float]:
        key = (run.plan, seed)
        if key not in done:
            try:
                done[key] = laboratory(run.options, seed)
            except PlanError as error:
                done[key] = error
        found = done[key]
        if isinstance(found, PlanError):
            raise found
        return found

    return [judge(claim, measure) for claim in claims]


def judge(claim: Claim, measure: Callable[[Run, int], Mapping[str, float]]) -> Report:
    """One claim."""
    try:
        runs = [{run.label: measure(run, seed) for run in claim.runs} for seed in claim.seeds]
        per_seed = tuple(claim.metric.value(of_seed) for of_seed in runs)
        ours = claim.metric.value(medians(runs)) if claim.over == "median-of-runs" else over(per_seed, claim.over)
    except (PlanError, MetricError) as error:
        return Report(claim, None, (), None if claim.withheld else False, str(error))
    verdict, few = within(claim, ours), ""
    holds = [within(claim, value) is True for value in per_seed]
    if verdict and claim.over in BY_SEED and not enough(holds):
        verdict, few = False, f"Only {sum(holds)} of {len(holds)} seeds hold."
    return Report(claim, ours, per_seed, verdict, few=few)


def medians(runs: Sequence[Mapping[str, Mapping[str, float]]]) -> dict[str, dict[str, float]]:
    """Each measurement's median over the seeds; one that a seed lacks is absent."""
    result: dict[str, dict[str, float]] = {}
    for label in runs[0]:
        names = set.intersection(*(set(of_seed[label]) for of_seed in runs))
        result[label] = {name: float(np.median([of_seed[label][name] for of_seed in runs])) for name in sorted(names)}
    return result


def over(values: Sequence[float | bool], how: str) -> float | bool:
    """One value of several seeds; an ordering must hold in four fifths of them."""
    if any(isinstance(value, bool) for value in values):
        return enough([bool(value) for value in values])
    numbers = [float(value) for value in values]
    match how:
        case "mean":
            return float(np.mean(numbers))
        case "lowest":
            return min(numbers)
        case "highest":
            return max(numbers)
        case _:
            return float(np.median(numbers))


def enough(holds: Sequence[bool]) -> bool:
    """Whether at least four fifths hold: one seed of five may miss, and none of three."""
    return 5 * sum(holds) >= 4 * len(holds)


def within(claim: Claim, ours: float | bool) -> bool | None:
    """Whether ours agrees; None where nothing is published."""
    if claim.withheld:
        return None
    if isinstance(ours, bool):
        return ours
    if not math.isfinite(ours):
        return False
    if claim.at_least is not None:
        return ours >= claim.at_least - rounding(claim.at_least)
    if claim.at_most is not None:
        return ours <= claim.at_most + rounding(claim.at_most)
    published = claim.published if claim.published is not None else math.nan
    allowed = claim.absolute + claim.relative * abs(published)
    return abs(ours - published) <= allowed + rounding(published)


def rounding(value: float) -> float:
    """What floating-point arithmetic may lose of a number like this."""
    return abs(value) * 1e-12


def text(value: float | bool | None, unit: str) -> str:
    """Four significant digits without trailing zeros, and the unit."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "holds" if value else "does not hold"
    if value == 0.0 or not math.isfinite(value):
        return f"{value:g}{SUFFIXES.get(unit, '')}"
    decimals = min(max(3 - math.floor(math.log10(abs(value))), 0), 9)
    digits = f"{value:.{decimals}f}"
    short = digits.rstrip("0").rstrip(".") if "." in digits else digits
    return f"{short}{SUFFIXES.get(unit, '')}"


def tolerance_text(claim: Claim) -> str:
    """How far ours may be off."""
    if claim.relative:
        return f"{claim.relative * 100:g} %"
    return f"+-{claim.absolute:g}" if claim.absolute else "exact"


def tally(reports: Sequence[Report]) -> str:
    """The line at the end."""
    counts = [sum(report.within is wanted for report in reports) for wanted in (True, False, None)]
    return (
        f"{len(reports)} claims: {counts[0]} within tolerance, {counts[1]} missed, "
        f"{counts[2]} reported without a published number"
    )


def cross_validation(reports: Sequence[Report]) -> str:
    """How many predictions hold with parameters that are fitted without them.

    A parameter that was set to meet a published number makes the claim about this number a calibration. Without calibrations nothing is
    fitted, and a prediction that is left out of the fit is judged by the same values.
    """
    fitted = [report.claim.id for report in reports if report.claim.kind == "calibration"]
    if fitted:
        raise PlanError(f"--cross-validate: {fitted[0]} is a calibration, and no fit of the planner's parameters is known")
    judged = [report for report in reports if report.claim.kind == "prediction" and report.within is not None]
    if not judged:
        raise PlanError("--cross-validate: none of these claims is a prediction with a published number")
    held = sum(report.within is True for report in judged)
    rate = f"{held} ({100 * held / len(judged):.0f} %)"
    rows = (("system", "fitted", "claims", "shipped", "left out"), ("vulcan", "0", str(len(judged)), rate, rate))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  " + "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    seen = sum(report.claim.seen for report in judged)
    return "\n".join([
        f"nothing is fitted: no parameter was set to meet a published number, so the {len(judged)} predictions are judged as shipped",
        *lines,
        f"a mechanism of the planner was changed after the outcomes of {seen} of them were known\n",
    ])


HEAD = ("claim", "kind", "published", "ours", "p10 / p50 / p90 of the seeds", "tolerance", "verdict")


def row(report: Report) -> tuple[str, ...]:
    """A claim as cells."""
    claim = report.claim
    ours = text(report.ours, claim.unit)
    tolerance = tolerance_text(claim)
    return claim.id, claim.kind, report.published_text(), ours, report.spread_text(), tolerance, report.verdict


def table(reports: Sequence[Report], columns: int | None = None) -> str:
    """For a terminal: padded columns, the reason of a miss below its row. If the rows have more than `columns` characters, each claim
    has lines of its own instead."""
    rows = [row(report) for report in reports]
    widths = [max(map(len, column)) for column in zip(HEAD, *rows, strict=True)]
    if columns is not None and sum(widths) + 2 * len(widths) - 2 > columns:
        return "\n".join([*(narrow(report, columns) for report in reports), tally(reports)]) + "\n"
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(HEAD, widths, strict=True)).rstrip()]
    for report, cells in zip(reports, rows, strict=True):
        lines.append("  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip())
        if report.reason:
            lines.append(f"    why: {report.reason}")
    return "\n".join([*lines, tally(reports)]) + "\n"


def narrow(report: Report, columns: int) -> str:
    """One claim in lines of at most `columns` characters."""
    identifier, kind, published, ours, spread, tolerance, verdict = row(report)
    figures = f"published {published}, ours {ours} ({spread}), tolerance {tolerance}"
    texts = [figures, *([f"why: {report.reason}"] if report.reason else [])]
    folded = [textwrap.fill(text, max(columns, 30), initial_indent="    ", subsequent_indent="    ") for text in texts]
    return "\n".join([f"{identifier} ({kind}): {verdict}", *folded])


def to_json(reports: Sequence[Report]) -> str:
    """For programs."""
    return json.dumps([report.document() for report in reports], indent=2, sort_keys=True) + "\n"


def markdown(reports: Sequence[Report]) -> str:
    """For the repository: misses first, with their reasons."""
    parts = [
        "# The planner's claims\n\n"
        "What Vulcan's author states in numbers and orderings, and what the planner of this repository gives for its own three\n"
        "queries. Generated by `isolane edge plan --check-claims --markdown docs/internals/planner-claims.md`; do not edit.\n"
        "[claims.md](claims.md) explains the format, [planner.md](planner.md) the experiments. In brackets stand the 10th, 50th and\n"
        "90th percentile over the seeds, or how many seeds hold.\n\n"
        f"{tally(reports)}.\n"
    ]
    for title, wanted in (("Missed", False), ("Within tolerance", True), ("Published number withheld", None)):
        members = [report for report in reports if report.within is wanted]
        if not members:
            continue
        parts.append(f"\n## {title}\n\n")
        for report in members:
            claim = report.claim
            _, kind, published, ours, spread, tolerance, _ = row(report)
            remark = report.reason if wanted is False else claim.note
            figures = f"Published {published}, ours {ours} ({spread}), tolerance {tolerance}."
            words = f"- `{claim.id}` ({kind}, {claim.paper}): {claim.statement} {figures} {remark}"
            parts.append(" ".join(words.split()) + "\n")
    return "".join(parts)
