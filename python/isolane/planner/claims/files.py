"""Reads `claims/vulcan/*.toml`.

Problem: the program in Rust lists the claims and checks their form; this package runs them, from the same files. Method: the
folder that is named, else the first `claims/vulcan` found from the working directory or from this file upwards. Keys are those
of `docs/internals/claims.md`; an unknown one is an error. Limits: claims for another testbed are refused, not skipped.
"""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from isolane.planner.model import PlanError
from isolane.planner.claims.metric import Metric, MetricError

if sys.version_info >= (3, 11):
    import tomllib
else:  # The package supports 3.10, whose library cannot read TOML.
    import tomli as tomllib

#: The path of the claims in the repository.
FOLDER = pathlib.PurePath("claims", "vulcan")

#: Tolerances by unit where a claim states none; relative unless the unit is counted.
DEFAULTS = {"x": 0.25, "ms": 0.25, "us": 0.25, "%": 0.1, "share": 0.1, "count": 0.0, "ordering": 0.0}

KEYS = {
    *("id", "system", "paper", "statement", "kind", "unit", "published", "at_least", "at_most", "withheld", "tolerance"),
    *("metric", "seeds", "over", "testbed", "note", "miss_reason", "run", "seen"),
}
OVERS = ("median", "mean", "lowest", "highest", "median-of-runs")
KINDS = ("calibration", "prediction", "arithmetic", "ordering")


@dataclass(frozen=True)
class Run:
    """One experiment that a claim needs: what `plan = { ... }` says."""

    label: str
    plan: tuple[tuple[str, str | int], ...]

    @property
    def options(self) -> dict[str, str | int]:
        """The same as a dictionary."""
        return dict(self.plan)


@dataclass(frozen=True)
class Claim:
    """One statement: what is published and how ours is measured. Exactly one of `published`, `at_least`, `at_most`,
    `withheld`, or a comparison as the metric."""

    id: str
    paper: str
    statement: str
    kind: str
    unit: str
    metric: Metric
    runs: tuple[Run, ...]
    seeds: tuple[int, ...]
    over: str
    published: float | None
    at_least: float | None
    at_most: float | None
    withheld: bool
    relative: float
    absolute: float
    note: str
    miss_reason: str
    seen: bool
    """Whether a mechanism or a setting was changed after the outcome was known."""


def folder(named: pathlib.Path | None = None) -> pathlib.Path:
    """Where the claims are."""
    if named is not None:
        if not named.is_dir():
            raise PlanError(f"--claims {named}: is no directory; name the one that holds claims as *.toml")
        return named
    for start in (pathlib.Path.cwd(), pathlib.Path(__file__).resolve().parent):
        for above in (start, *start.parents):
            if (above / FOLDER).is_dir():
                return above / FOLDER
    raise PlanError(f"no directory {FOLDER} here or above; run this in the repository, or name the directory with --claims")


def read_folder(path: pathlib.Path) -> list[Claim]:
    """All claims of the folder, by id."""
    claims = [read(file) for file in sorted(path.glob("*.toml"))]
    if not claims:
        raise PlanError(f"--claims {path}: holds no claim (*.toml)")
    return claims


def read(path: pathlib.Path) -> Claim:
    """One file."""
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise PlanError(f"{path}: {error}") from error
    try:
        return _claim(path, raw)
    except (KeyError, TypeError, ValueError, MetricError) as error:
        missing = f"key {error} is missing" if isinstance(error, KeyError) else str(error)
        raise PlanError(f"{path}: {missing}") from error


def _claim(path: pathlib.Path, raw: Mapping[str, Any]) -> Claim:
    unknown = sorted(set(raw) - KEYS)
    if unknown:
        raise ValueError(f"unknown key {unknown[0]}")
    if raw["id"] != path.stem:
        raise ValueError(f"id {raw['id']!r} belongs into {raw['id']}.toml")
    if raw.get("testbed") != "planner":
        raise ValueError('testbed must be "planner"')
    if raw["kind"] not in KINDS:
        raise ValueError(f"kind {raw['kind']!r} is none of {', '.join(KINDS)}")
    over = raw.get("over", "median")
    if over not in OVERS:
        raise ValueError(f"over {over!r} is none of {', '.join(OVERS)}")
    metric = Metric(raw["metric"])
    bounds = {key: raw.get(key) for key in ("published", "at_least", "at_most")}
    given = sum(value is not None for value in bounds.values()) + bool(raw.get("withheld"))
    if given != (0 if metric.is_ordering else 1):
        raise ValueError("give one of published, at_least, at_most and withheld, and none for a comparison")
    relative, absolute = _tolerance(raw)
    runs = tuple(Run(run["label"], tuple(sorted(run["plan"].items()))) for run in raw.get("run", []))
    labels = [run.label for run in runs]
    if sorted(labels) != sorted(metric.labels):
        raise ValueError(f"the metric names {', '.join(metric.labels)}, the runs are {', '.join(labels)}")
    return Claim(
        id=raw["id"],
        paper=raw["paper"],
        statement=raw["statement"],
        kind=raw["kind"],
        unit=raw["unit"],
        metric=metric,
        runs=runs,
        seeds=tuple(raw.get("seeds", (1, 2, 3))),
        over=over,
        withheld=bool(raw.get("withheld", False)),
        relative=relative,
        absolute=absolute,
        note=raw.get("note", ""),
        miss_reason=raw.get("miss_reason", ""),
        seen=bool(raw.get("seen", False)),
        **bounds,
    )


def _tolerance(raw: Mapping[str, Any]) -> tuple[float, float]:
    """Relative and absolute; both 0 is exact."""
    stated = raw.get("tolerance")
    if stated == "exact" or (stated is None and raw["kind"] == "arithmetic"):
        return 0.0, 0.0
    if stated is None:
        return DEFAULTS[raw["unit"]], 0.0
    return float(stated.get("relative", 0.0)), float(stated.get("absolute", 0.0))
