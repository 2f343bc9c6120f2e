"""Several queries on the same tiers: who is admitted, with which plans, and what the others would need.

Problem: Vulcan plans one query; tiers and links are shared. A newcomer must not break the objectives of those that run. Units:
milliseconds, fractions of capacities, the units of the tiers' file in remedies.

Method: each query is planned alone; what its search launched is what the joint plan may choose from, at any placement, so that
joint planning launches nothing more. Queries are taken in the order running, priority, position: one is admitted if there is a
joint plan (`sharing`) in which it and all admitted before it meet their objectives; running ones may get another plan, but keep
their objectives. The final plan gives the most utility to the highest priority, then to the next. For one that is refused, the
least of each single remedy is found by bisection: a wider link, more cores or GPUs of a tier, a lower rate, a later deadline, a
lower accuracy.

Limits: remedies are single ones (two small ones together may be cheaper), up to `FACTOR_MAX` times, and for the configurations that
were launched. Source: extends Vulcan, section 4.5, which leaves concurrent queries to future work.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from isolane.planner import remedies
from isolane.planner.estimate import Estimates, Estimator, Table
from isolane.planner.model import Infrastructure, Launch, Order, Plan, PlanError, Query
from isolane.planner.planning import Planned, describe
from isolane.planner.sharing import Choices, Resource, choices, jointly, latency_ms, resources, stations
from isolane.planner.utility import utility_of

#: Nodes of the search while remedies are looked for; a remedy may then be a little larger than needed.
NODES_REMEDY = 300


@dataclass(frozen=True)
class Refusal:
    """A query that is not admitted, why, and what would change that."""

    query: str
    reason: str
    remedies: tuple[str, ...]


@dataclass(frozen=True)
class Load:
    """What is used of a resource by all admitted queries together."""

    resource: str
    kind: str
    share: float


@dataclass(frozen=True)
class JointPlan:
    """Plans of the admitted queries, with the latency that they have beside each other; `alone` is what each has without the
    others. `exact` is false where the search gave up before it had seen everything."""

    plans: tuple[Plan, ...]
    alone: Mapping[str, Plan]
    refused: tuple[Refusal, ...]
    loads: tuple[Load, ...]
    exact: bool


@dataclass(frozen=True)
class Candidate:
    """A query with what its own planning launched."""

    query: Query
    order: Order
    launches: tuple[Launch, ...]

    def choices(self, infrastructure: Infrastructure) -> Choices:
        """Its pairs on these tiers."""
        return choices(self.query, Estimator(self.query, self.order, infrastructure), self.launches)


def plan_jointly(
    planned: Sequence[Planned], infrastructure: Infrastructure, running: Sequence[str] = (), preempt: bool = False
) -> JointPlan:
    """Admits and plans the queries, each of which was planned alone. `running` are names of queries that run already; with
    `preempt`, priority counts before that."""
    names = [each.plan.query for each in planned]
    for name in names:
        if names.count(name) > 1:
            raise PlanError(f"two queries are named {name}; name each once")
    for name in running:
        if name not in names:
            raise PlanError(f"--running {name}: no such query; there are {', '.join(names)}")

    def rank(position: int) -> tuple[bool, int, int]:
        query = planned[position].problem.query
        late = query.name not in running and not preempt
        return late, -query.priority, position

    queue = [planned[position] for position in sorted(range(len(planned)), key=rank)]
    shared = resources(infrastructure)
    admitted: list[Planned] = []
    refused: list[Refusal] = []
    exact = True
    for each in queue:
        if not each.plan.meets:
            exists, text, changes = remedies.prospects(each.problem)
            lead = f"searcher {each.plan.searcher} found no plan even alone, but" if exists else "cannot be met even alone:"
            refused.append(Refusal(each.plan.query, f"{lead} {text}", changes))
            continue
        found = jointly(*arranged([*admitted, each], infrastructure), shared, first=True)
        if found.picks is None:
            exact &= found.exact
            refused.append(refusal([candidate(one) for one in admitted], candidate(each), infrastructure))
        else:
            admitted.append(each)
    members, levels, sets = sorted_members(admitted, infrastructure)
    best = jointly(sets, levels, shared)
    assert best.picks is not None, "what was admitted has a joint plan"
    plans = together(members, sets, best.picks, shared)
    load = sum((one.share[pick] for one, pick in zip(sets, best.picks, strict=True)), start=np.zeros(len(shared)))
    loads = tuple(Load(each.name, each.kind, float(share)) for each, share in zip(shared, load, strict=True))
    by_name = {plan.query: plan for plan in plans}
    return JointPlan(
        tuple(by_name[name] for name in names if name in by_name),
        {each.plan.query: each.plan for each in planned},
        tuple(refused),
        loads,
        exact and best.exact,
    )


def fits(planned: Sequence[Planned], infrastructure: Infrastructure) -> bool:
    """Whether all of these have plans beside each other on these tiers that meet everything."""
    found = jointly(*arranged(planned, infrastructure), resources(infrastructure), first=True)
    return found.picks is not None


def candidate(planned: Planned) -> Candidate:
    """A planned query with its launches."""
    launches = tuple(each.launch for each in planned.problem.cache.values())
    return Candidate(planned.problem.query, planned.problem.order, launches)


def sorted_members(
    planned: Sequence[Planned], infrastructure: Infrastructure
) -> tuple[list[Planned], list[int], list[Choices]]:
    """The queries by falling priority, their priorities and their pairs."""
    members = sorted(planned, key=lambda each: -each.problem.query.priority)
    sets = [candidate(each).choices(infrastructure) for each in members]
    return members, [each.problem.query.priority for each in members], sets


def arranged(planned: Sequence[Planned], infrastructure: Infrastructure) -> tuple[list[Choices], list[int]]:
    """The same for the search alone."""
    _, levels, sets = sorted_members(planned, infrastructure)
    return sets, levels


def together(
    members: Sequence[Planned], sets: Sequence[Choices], picks: Sequence[int], shared: Sequence[Resource]
) -> list[Plan]:
    """The picked pairs as plans, with latency and utility beside the others."""
    nothing = np.zeros(len(shared))
    load = sum((one.share[pick] for one, pick in zip(sets, picks, strict=True)), start=nothing)
    work = sum((one.work_ms[pick] for one, pick in zip(sets, picks, strict=True)), start=nothing)
    plans = []
    for member, one, pick in zip(members, sets, picks, strict=True):
        placement, launched = (int(each) for each in one.pairs[pick])
        configuration = one.launches[launched].configuration
        plan = describe(member.problem, (placement, configuration), member.plan.searcher, member.plan.seed)
        others, others_work = load - one.share[pick], work - one.work_ms[pick]
        beside = float(latency_ms(one, pick, others, others_work, stations(shared)))
        slowed = beside / plan.latency_ms if plan.latency_ms > 0.0 else 1.0
        plans.append(
            dataclasses.replace(
                plan,
                latency_ms=beside,
                latency_p99_ms=plan.latency_p99_ms * slowed,
                utility=utility_at(one, placement, launched, beside),
                path=member.plan.path,
                why=compared(member.plan, plan, beside),
            )
        )
    return plans


def utility_at(one: Choices, placement: int, launched: int, beside_ms: float) -> float:
    """The utility of a pair with this latency."""
    table = Table.of([one.launches[launched]], one.estimator.order)
    estimates = one.estimator.estimates(table)
    arrays = {name: getattr(estimates, name) for name in Estimates.__dataclass_fields__}
    here = {name: value if name == "accuracy" else value[placement : placement + 1] for name, value in arrays.items()}
    here["latency_ms"] = np.array([[beside_ms]])
    return float(utility_of(one.query)(one.query, Estimates(**here))[0, 0])


def compared(alone: Plan, plan: Plan, beside_ms: float) -> str:
    """How the plan differs from what the query would have alone."""
    moved = [name for name in plan.order if plan.placement[name] != alone.placement[name]]
    changes = [f"{name} runs on {plan.placement[name]} instead of {alone.placement[name]}" for name in moved]
    if plan.configuration != alone.configuration:
        changes.append("the configuration is another one")
    text = f"beside the others it takes {beside_ms:.1f} ms, alone {plan.latency_ms:.1f} ms"
    return f"{text}; {', '.join(changes)} because of them" if changes else f"{text}; the plan is the one it would have alone"


def refusal(admitted: Sequence[Candidate], newcomer: Candidate, infrastructure: Infrastructure) -> Refusal:
    """Why the newcomer does not fit, and the least of each single remedy."""
    found = single_changes(admitted, newcomer, infrastructure)
    beside = ", ".join(each.query.name for each in admitted)
    reason = f"does not fit beside {beside}" if beside else "does not fit: its own items would wait for each other"
    if not found:
        reason += f"; no single change of up to {remedies.FACTOR_MAX:g} times would help"
    return Refusal(newcomer.query.name, reason, tuple(found))


def single_changes(admitted: Sequence[Candidate], newcomer: Candidate, infrastructure: Infrastructure) -> list[str]:
    """Each single remedy in words."""
    query = newcomer.query

    def fits(tiers: Infrastructure, changed: Query) -> bool:
        everyone = [*admitted, dataclasses.replace(newcomer, query=changed)]
        everyone.sort(key=lambda each: -each.query.priority)
        sets = [each.choices(tiers) for each in everyone]
        levels = [each.query.priority for each in everyone]
        return jointly(sets, levels, resources(tiers), NODES_REMEDY, first=True).picks is not None

    changes = [
        *remedies.of_tiers(infrastructure, query),
        remedies.of_rate(infrastructure, query),
        *remedies.of_objectives(infrastructure, query),
    ]
    found = []
    for change in changes:
        factor = remedies.least(lambda by, change=change: fits(*change.apply(by)))  # type: ignore[misc]
        if factor is not None:
            found.append(change.words(factor))
    return found
