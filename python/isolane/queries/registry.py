"""Names of the built-in queries, their files and scenes.

Problem: command line, tests and claims name a query by one word. Method: a table. Limits: queries of users are files
of their own and need no entry here. Paths are relative to this package, so that they hold wherever it is installed.
"""

from __future__ import annotations

import dataclasses
import pathlib
from typing import cast

from isolane import allowed
from isolane.planner.formats import load_query
from isolane.planner.model import PlanError, Query, Workload


@dataclasses.dataclass(frozen=True)
class Builtin:
    """A query of this package. `scenes` are workloads by name; the first is the query's own."""

    name: str
    folder: str
    scenes: dict[str, str]

    @property
    def file(self) -> pathlib.Path:
        """The query's YAML file."""
        return pathlib.Path(__file__).parent / self.folder / "query.yaml"

    def query(self) -> Query:
        """The query in that file."""
        return load_query(self.file)

    def profile(self, scene: str) -> pathlib.Path:
        """Where the profile data of a scene are kept."""
        return pathlib.Path(__file__).parent / "profiles" / f"{self.name}-{scene}.json.gz"

    def workload(self, scene: str) -> Workload:
        """The data of a scene."""
        if scene not in self.scenes:
            raise PlanError(f"query {self.name} has no scene {scene!r}; it has {', '.join(self.scenes)}")
        return named(self.scenes[scene])


def named(implementation: str) -> Workload:
    """The workload that `module:Class` names, made without arguments."""
    try:
        return cast(Workload, allowed.find_class(implementation, ("items",))())
    except allowed.NameRefused as error:
        raise PlanError(f"workload {error}") from error


_HERE = "isolane.queries"

BUILTINS = {
    "traffic": Builtin(
        "traffic",
        "traffic",
        {
            "day": f"{_HERE}.traffic.query:Day",
            "night": f"{_HERE}.traffic.query:Night",
        },
    ),
    "driving": Builtin(
        "driving",
        "lidar",
        {
            "clear": f"{_HERE}.lidar.query:Clear",
            "rain": f"{_HERE}.lidar.query:Rain",
        },
    ),
    "speech": Builtin(
        "speech",
        "speech",
        {
            "home": f"{_HERE}.speech.query:Home",
        },
    ),
}


def builtin(name: str) -> Builtin:
    """The query of that name, or an error that lists the known ones."""
    found = BUILTINS.get(name)
    if found is None:
        raise PlanError(f"there is no built-in query {name!r}; there are {', '.join(BUILTINS)}")
    return found
