"""How fast the planner is beside pipeline launches: `python python/benches/planner.py [--runs 5]`.

Problem: planning must not cost what launches cost: below 5 ms per suggestion, and below 2 s for all estimates and utilities of a
million pairs of placement and configuration from cached launches. Method: medians over runs on synthetic data, with the machine
and its load printed; `taskset -c 0` holds it on one core. Limits: processor time, as other programs share the machine; on one idle core it is the
time that passes.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import platform
import resource
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests"))

from planner_data import four_tiers, traffic, traffic_launch  # noqa: E402

from isolane.planner.bayes import Optimiser, coordinates  # noqa: E402
from isolane.planner.estimate import Estimator, Table  # noqa: E402
from isolane.planner.model import FilterScore, Knob, Launch, OperatorResult, OperatorSpec, Order, Query  # noqa: E402
from isolane.planner.planning import plan_query  # noqa: E402
from isolane.planner.search.problem import Problem  # noqa: E402
from isolane.planner.search.surrogate import Search  # noqa: E402
from isolane.planner.utility import utility_of  # noqa: E402


def wide() -> Query:
    """Five operators after the source: 56 placements on four tiers, 18,000 configurations, 1,008,000 pairs."""
    knobs = tuple(Knob(f"k{index}", f"f{index}", tuple(range(size))) for index, size in enumerate((20, 30, 30)))
    filters = tuple(OperatorSpec(f"f{index}", "filter", "b:F", (knobs[index],)) for index in range(3))
    ends = (OperatorSpec("model", "model", "b:M", gpu=True), OperatorSpec("post", "post", "b:P"))
    source = OperatorSpec("source", "source", "b:S", gives="x")
    return Query("wide", (source, *filters, *ends), 0.5, 200.0, rate_items_per_s=20.0)


def wide_table(query: Query, rng: np.random.Generator) -> Table:
    """Random numbers in the range of real launches."""
    shape = (len(query.configurations()), len(query.template))
    times, sizes, passes = rng.uniform(1, 30, shape), rng.uniform(1e3, 3e5, shape), rng.uniform(0.2, 1.0, shape)
    none = np.zeros(shape)
    return Table.from_arrays(
        rng.uniform(0.3, 0.95, shape[0]), passes, processing_ms=times, output_bytes=sizes, core_ms=none, waiting_ms=none
    )


def median_ms(runs: int, work: Callable[[], object]) -> tuple[float, float]:
    """Median and worst of the runs, after one that does not count."""
    work()
    times = []
    for _ in range(runs):
        begin = time.process_time()
        work()
        times.append(1e3 * (time.process_time() - begin))
    return statistics.median(times), max(times)


def pairs(runs: int) -> str:
    """All pairs of the wide query: estimates, utilities, the best that meets everything."""
    query = wide()
    table = wide_table(query, np.random.default_rng(1))
    estimator = Estimator(query, query.template, four_tiers())
    utility = utility_of(query)

    def work() -> int:
        estimates = estimator.estimates(table)
        return int(np.where(estimates.meets(query), utility(query, estimates), -np.inf).argmax())

    middle, worst = median_ms(runs, work)
    count = len(estimator.placements) * len(table.accuracy)
    return f"evaluate {count:,} pairs              {middle:9.1f} ms (worst {worst:.1f}, bound 2000)"


class Cached:
    """All launches of the wide query, made before the clock runs."""

    def __init__(self, query: Query) -> None:
        rng = np.random.default_rng(1)
        self.launches = {}
        for configuration in query.configurations():
            numbers = rng.uniform((1.0, 1e3, 0.2), (30.0, 3e5, 1.0), (len(query.template), 3)).tolist()
            operators = {name: OperatorResult(*row) for name, row in zip(query.template, numbers, strict=True)}
            accuracy = float(rng.uniform(0.3, 0.95))
            self.launches[configuration] = Launch(query.template, configuration, accuracy, operators, 1.0)

    def launch(self, order: Order, configuration: tuple[int, ...]) -> Launch:
        """Looked up."""
        return self.launches[configuration]

    def filters(self, order: Order, configuration: tuple[int, ...]) -> FilterScore:
        """Unused."""
        raise NotImplementedError


def whole(runs: int) -> str:
    """The exhaustive searcher on the wide query, from cached launches to the plan."""
    query = wide()
    launcher = Cached(query)
    middle, worst = median_ms(
        runs, lambda: plan_query(query, four_tiers(), launcher, "exhaustive", order=query.template)
    )
    return f"exhaustive plan over 1,008,000 pairs    {middle:8.1f} ms (worst {worst:.1f}, bound 2000)"


def suggestions(sizes: tuple[int, ...], count: int) -> str:
    """Bayesian optimisation over a grid: each suggestion after the starts."""
    grid = coordinates(sizes)
    engine = Optimiser(grid, np.random.default_rng(1), patience=count)
    times = []
    while len(engine.seen) < count:
        begin = time.process_time()
        row = engine.suggest()
        if len(engine.seen) >= engine.starts:
            times.append(1e3 * (time.process_time() - begin))
        engine.tell(row, float(-((grid[row] - 0.4) ** 2).sum()))
    return f"suggest among {len(grid):6,} configurations  {statistics.median(times):9.2f} ms (worst {max(times):.1f}, bound 5)"


class Direct:
    """Launches of the synthetic traffic query."""

    def __init__(self, query: Query) -> None:
        self.query = query

    def launch(self, order: Order, configuration: tuple[int, ...]) -> Launch:
        """Computed, not run."""
        return traffic_launch(self.query, order, configuration)

    def filters(self, order: Order, configuration: tuple[int, ...]) -> FilterScore:
        """Unused."""
        raise NotImplementedError


def own(runs: int) -> str:
    """Our searcher: each suggestion after the starts."""
    query = traffic()
    times = []
    for seed in range(runs):
        search = Search(Problem(query, four_tiers(), Direct(query), query.template), np.random.default_rng(seed))
        while True:
            begin = time.process_time()
            row = search.suggest()
            if len(search.seen) >= search.starts:
                times.append(1e3 * (time.process_time() - begin))
            if row is None:
                break
            search.tell(row)
    return f"suggest, our searcher, 125 x 20 pairs   {statistics.median(times):6.2f} ms (worst {max(times):.1f}, bound 5)"


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--runs", type=int, default=5, help="runs per figure (5)")
    runs = parser.parse_args().runs
    load = os.getloadavg()[0]
    print(f"{platform.machine()}, Python {platform.python_version()}, numpy {np.__version__}, load {load:.1f}")
    print(pairs(runs))
    print(whole(runs))
    print(suggestions((5, 5, 5), 30))
    print(suggestions((16, 16, 16), 30))
    print(suggestions((30, 30, 20), 30))
    print(own(runs))
    print(f"memory at its highest                   {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:8.0f} MiB")


if __name__ == "__main__":
    main()
