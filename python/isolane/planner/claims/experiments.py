"""The experiments that claims name: searches, fixed placements, orders of filters, changes at run time, toy examples.

Problem: the paper's evaluation (4.6) on our three queries, of profiles that were recorded once, so that 20 seeds of everything
take a minute or two. Units end the names of what is measured; shares are summed over links or tiers as in equation 4.3.

Method: accuracy 0.8 times that of the most expensive configuration, gamma 0.5 and utility P / R are the paper's; the latency is that
of the query's file (the paper's 2000, 400 and 500 ms are for models a hundred times larger). `search` is a whole search with its own
order of filters; `configure` fixes the order and the best placement; `order` sweeps gamma and counts which method picks the better order;
`adapt` plans before and after the link before the MEC lost most of its bandwidth; `drift` takes the profile of another scene. Limits: `adapt` plans with both states known exactly, no noise.
Source: Vulcan, sections 4.6.1 to 4.6.7 and 4.5.1.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping

import numpy as np

from isolane.planner.claims import toy
from isolane.planner.estimate import Estimator, Table
from isolane.planner.model import Configuration, Infrastructure, Launcher, Order, Plan, PlanError, Query
from isolane.planner.online import Memory, replan
from isolane.planner.ordering import choose_order
from isolane.planner.planning import Planned, plan_query
from isolane.planner.search import videostorm, vulcan
from isolane.planner.search.fixed import chameleon_at, llama_at
from isolane.planner.search.problem import Options, Problem
from isolane.planner.utility import utility_of

#: (query, scene) -> the query and its recorded launches; scene 0 is the query's own, 1 the changed one.
Library = Callable[[str, int], tuple[Query, Launcher]]

#: Objective of accuracy, as a part of what the most expensive configuration has (section 4.6.1).
ACCURACY_PART = 0.8

#: The sweep of section 4.6.5.
GAMMAS = tuple(round(0.1 * step, 1) for step in range(1, 10))

#: Relative difference of utilities that counts as none.
SAME = 1e-9

Options_ = Mapping[str, "str | int"]


class Laboratory:
    """Runs experiments; what several need (the optimum, Vulcan's own search) runs once."""

    def __init__(self, tiers: Infrastructure, library: Library) -> None:
        self.tiers = tiers
        self.library = library
        self.case = functools.cache(self._case)
        self.order_of = functools.cache(self._order_of)
        self.planned = functools.cache(self._planned)

    def __call__(self, options: Options_, seed: int) -> dict[str, float]:
        """One experiment."""
        kind = str(options["experiment"])
        if kind == "toy":
            return toy.measure(options)
        name = str(options["query"])
        match kind:
            case "knobs":
                return self.knobs(name, str(options.get("knob", "")))
            case "search":
                return self.search(name, options, seed)
            case "configure":
                return self.configure(name, options, seed)
            case "order":
                return self.order(name, str(options["searcher"]))
            case "adapt":
                return self.adapt(name, options, seed)
            case "drift":
                return self.drift(name)
        raise PlanError(f"plan: no experiment is called {kind!r}")

    def _case(self, name: str, scene: int) -> tuple[Query, Launcher]:
        """The query with the paper's objectives, and its launches."""
        query, launcher = self.library(name, scene)
        golden = launcher.launch(query.template, query.most_expensive).accuracy
        query = dataclasses.replace(
            query, accuracy_min=ACCURACY_PART * golden, gamma=0.5, utility="ratio", alpha_accuracy=0.0, alpha_latency=0.0
        )
        return query, launcher

    def _order_of(self, name: str) -> Order:
        return choose_order(*self.case(name, 0)).order

    def _planned(self, name: str, searcher: str, seed: int, options: Options) -> Planned:
        query, launcher = self.case(name, 0)
        return plan_query(query, self.tiers, launcher, searcher, seed, options)

    def optimum(self, name: str) -> Plan:
        """The best plan of all, for the order that Vulcan chooses."""
        return self.planned(name, "exhaustive", 0, Options()).plan

    def knobs(self, name: str, knob: str) -> dict[str, float]:
        """How many values, configurations, orders and placements there are."""
        query, _ = self.case(name, 0)
        estimator = Estimator(query, query.template, self.tiers)
        result = {
            "configurations": float(len(query.configurations())),
            "placements": float(len(estimator.placements)),
            "cases": float(len(query.orders())),
        }
        if not knob:
            return result
        operator, _, own = knob.partition(".")
        found = [each for each in query.knobs if each.operator == operator and each.name == own]
        if not found:
            known = ", ".join(f"{each.operator}.{each.name}" for each in query.knobs)
            raise PlanError(f"query {name} has no knob {knob}; it has {known}")
        numbers = [float(value) for value in found[0].values if isinstance(value, (int, float))]
        result |= {"values": float(len(found[0].values))}
        if numbers:
            result |= {"lowest": min(numbers), "highest": max(numbers)}
        return result

    def search(self, name: str, options: Options_, seed: int) -> dict[str, float]:
        """A whole search, with the time that another one takes as its budget if that is wanted."""
        searcher = str(options["searcher"])
        settings = chosen_options(options)
        # Nothing random is in these: one run serves all seeds.
        own_seed = 0 if searcher in ("exhaustive", "pn", "pc", "nc") and "budget_of" not in options else seed
        if "budget_of" in options:
            budget = self.planned(name, str(options["budget_of"]), seed, Options()).plan.profiling_cost_s
            settings = dataclasses.replace(settings, budget_s=budget)
        planned = self.planned(name, searcher, own_seed, settings)
        return self.compared(name, planned.plan, planned.problem)

    def compared(self, name: str, plan: Plan, problem: Problem) -> dict[str, float]:
        """A plan's figures, beside those of the optimum."""
        best = self.optimum(name)
        bandwidth = {link.name: link.mbit_per_s for link in self.tiers.links}
        launched = [step for step in problem.path if step.launched]
        top = max((step.utility for step in launched), default=math.nan)
        at = next((index + 1 for index, step in enumerate(launched) if step.utility >= top - SAME * abs(top)), 0)
        return {
            "accuracy": plan.accuracy,
            "latency_ms": plan.latency_ms,
            "latency_p99_ms": plan.latency_p99_ms,
            "network_share": sum(plan.network_share.values()),
            "network_mbit_per_s": sum(share * bandwidth[link] for link, share in plan.network_share.items()),
            "compute_share": self.compute_share(plan, problem),
            "utility": plan.utility,
            "relative_utility": plan.utility / best.utility,
            "launches": float(plan.launches),
            "profiling_cost_s": plan.profiling_cost_s,
            "best_at_launch": float(at),
            "meets_objectives": float(plan.meets),
            "same_placement": float(plan.placement == best.placement),
            "same_configuration": float(plan.configuration == best.configuration),
            "configurations": float(len(problem.configurations)),
            "placements": float(len(problem.placements)),
        }

    def compute_share(self, plan: Plan, problem: Problem) -> float:
        """R_gpu of equation 4.3."""
        tiers = {tier.name: tier.order for tier in self.tiers.tiers}
        where = tuple(tiers[plan.placement[each]] for each in plan.order)
        configuration = problem.query.configuration(plan.configuration)
        found = problem.cache[configuration].estimates
        return float(found.compute[problem.placements.index(where), 0])

    def configure(self, name: str, options: Options_, seed: int) -> dict[str, float]:
        """The configuration alone, at the optimum's order and placement (section 4.6.3)."""
        query, launcher = self.case(name, 0)
        best = self.optimum(name)
        problem = Problem(query, self.tiers, launcher, best.order, chosen_options(options))
        tiers = {tier.name: tier.order for tier in self.tiers.tiers}
        placement = problem.placements.index(tuple(tiers[best.placement[each]] for each in best.order))
        searchers = {"vulcan": vulcan.configure, "videostorm": videostorm.configure}
        searcher = str(options["searcher"])
        if searcher not in searchers:
            raise PlanError(f"configure: searcher {searcher}: must be one of {', '.join(searchers)}")
        searchers[searcher](problem, np.random.default_rng(seed), placement)
        values = [step.utility for step in problem.path]
        top = max(values)
        return {
            "launches": float(problem.launches),
            "profiling_cost_s": problem.spent_s,
            "utility": top,
            "relative_utility": top / best.utility,
            "best_at_launch": float(values.index(top) + 1),
        }

    def order(self, name: str, searcher: str) -> dict[str, float]:
        """In how many cases of gamma the picked order has the highest utility (section 4.6.5)."""
        query, launcher = self.case(name, 0)
        orders = query.orders()
        right = 0
        for gamma in GAMMAS:
            weighed = dataclasses.replace(query, gamma=gamma)
            utilities = {order: self.best_utility(weighed, launcher, order) for order in orders}
            if searcher == "vulcan":
                picked = choose_order(weighed, launcher).order
            else:
                picked = fixed_order(searcher, orders)
            best = max(utilities.values())
            right += utilities[picked] >= best - SAME * abs(best)
        return {"cases": float(len(GAMMAS)), "right_cases": float(right)}

    def best_utility(self, query: Query, launcher: Launcher, order: Order) -> float:
        """The highest utility of all placements and configurations of this order."""
        launches = [launcher.launch(order, each) for each in query.configurations()]
        estimates = Estimator(query, order, self.tiers).estimates(Table.of(launches, order))
        return float(utility_of(query)(query, estimates).max())

    def adapt(self, name: str, options: Options_, seed: int) -> dict[str, float]:
        """A query that runs with filters on the device and the model on the MEC, before and after the link to the MEC has lost
        most of its bandwidth (section 4.6.6)."""
        system, cut = str(options["searcher"]), int(options["link_cut"])
        query, launcher = self.case(name, 0)
        order = self.order_of(name)
        mec = len(self.tiers.tiers) - 2
        start = tuple(mec if query.operator(each).kind in ("model", "post") else 0 for each in order)
        links = list(self.tiers.links)
        links[mec - 1] = dataclasses.replace(links[mec - 1], mbit_per_s=links[mec - 1].mbit_per_s / cut)
        after = dataclasses.replace(self.tiers, links=tuple(links))
        # All begin with the same configuration: the best at that placement.
        problem = Problem(query, self.tiers, launcher, order)
        placement = problem.placements.index(start)
        first = max(problem.configurations, key=lambda each: float(problem.utilities(each)[placement]))
        before = tail_ms(problem, placement, first)
        cut_problem = Problem(query, after, launcher, order)
        chosen = self.adapted(system, cut_problem, (placement, first), seed)
        detector = next(index for index, each in enumerate(order) if query.operator(each).kind == "model")
        return {
            "latency_before_p99_ms": before,
            "latency_p99_ms": tail_ms(cut_problem, *chosen),
            "accuracy": cut_problem.evaluated(chosen[1]).launch.accuracy,
            "placement_changes": float(chosen[0] != placement),
            "detector_tier": float(cut_problem.placements[chosen[0]][detector]),
        }

    def adapted(
        self, system: str, problem: Problem, running: tuple[int, Configuration], seed: int
    ) -> tuple[int, Configuration]:
        """What a system runs after the change; Vulcan begins with what its first search learned."""
        placement, _ = running
        if system == "chameleon":
            return chameleon_at(problem, placement)[0]
        if system == "llama":
            return llama_at(problem, placement)
        if system != "vulcan":
            raise PlanError(f"adapt: system {system}: must be vulcan, chameleon or llama")
        previous = self.planned(problem.query.name, "vulcan", seed, Options())
        memory = Memory()
        memory.learn(previous.problem)
        again = replan(previous, problem.infrastructure, problem.launcher, memory, "vulcan", seed)
        where = {tier.name: tier.order for tier in problem.infrastructure.tiers}
        chosen = tuple(where[again.plan.placement[each]] for each in again.plan.order)
        return problem.placements.index(chosen), problem.query.configuration(again.plan.configuration)

    def drift(self, name: str) -> dict[str, float]:
        """The best configuration of each placement, kept when the scene changes: how much utility it loses, and how many steps
        of knobs are between it and the best one of the changed scene, on average over placements (section 4.5.1)."""
        query, launcher = self.case(name, 0)
        order = self.order_of(name)
        _, changed = self.case(name, 1)
        configurations = query.configurations()
        estimator = Estimator(query, order, self.tiers)
        values = []
        for source in (launcher, changed):
            launches = [source.launch(order, each) for each in configurations]
            values.append(utility_of(query)(query, estimator.estimates(Table.of(launches, order))))
        then, now = (value.argmax(axis=1) for value in values)
        rows = np.arange(len(then))
        kept, best = values[1][rows, then], values[1][rows, now]
        # A placement that is worth nothing even at its best has no part to lose.
        worth = best > 0.0
        if not worth.any():
            raise PlanError(f"query {name}: no placement is worth anything in the changed scene")
        steps = np.abs(np.array(configurations)[then] - np.array(configurations)[now]).sum(axis=1)
        return {
            "utility_drop": float((1.0 - kept[worth] / best[worth]).mean()),
            "distance_steps": float(steps[worth].mean()),
        }


def chosen_options(options: Options_) -> Options:
    """Settings of the searcher that the experiment names."""
    result = Options()
    if "random_starts" in options:
        result = dataclasses.replace(result, starts=int(options["random_starts"]))
    if "patience" in options:
        result = dataclasses.replace(result, patience=int(options["patience"]))
    return result


def fixed_order(name: str, orders: list[Order]) -> Order:
    """`fixed-1`, `fixed-2`: one of the orders, for any gamma."""
    number = name.removeprefix("fixed-")
    if not number.isdigit() or not 1 <= int(number) <= len(orders):
        raise PlanError(f"order: searcher {name}: must be vulcan, or fixed-1 to fixed-{len(orders)}")
    return orders[int(number) - 1]


def tail_ms(problem: Problem, placement: int, configuration: Configuration) -> float:
    """The 99th percentile of latency of a pair."""
    launch = problem.evaluated(configuration).launch
    return float(problem.estimator.latency_p99_ms(Table.of([launch], problem.order))[placement, 0])


