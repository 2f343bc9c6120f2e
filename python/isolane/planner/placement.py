"""Where operators may run: all placements of an order over a chain of tiers, and the rule-based ones.

Problem: list every placement that is not obviously infeasible, once, in a fixed order. Method: data flow from the source
towards the cloud, so tier indices never decrease along the pipeline; a tier must have the kind of capacity that an operator
needs, and the operator may name its tiers. The source is on tier 0 by definition. Limits: `PLACEMENTS_MAX`.
Source: Vulcan, sections 4.4.3.1 and 4.6.1 (PN, PC, NC).
"""

from __future__ import annotations

from isolane.planner.model import Infrastructure, OperatorSpec, Order, Placement, PlanError, Query

#: More placements than this are refused: 10 tiers and 9 operators have 48,620.
PLACEMENTS_MAX = 100_000

#: Rule-based strategies: closest to the source (network first), closest to the cloud (compute first), filters close and the
#: rest far (a balance).
RULES = ("pn", "pc", "nc")


def allowed_tiers(operator: OperatorSpec, infrastructure: Infrastructure) -> list[int]:
    """The tiers that this operator can run on, ascending; none is an error that says why."""
    for name in operator.tiers:
        infrastructure.tier(name)
    need = "GPUs" if operator.gpu else "cores"
    if operator.kind == "source":
        first = infrastructure.tiers[0]
        if operator.tiers and first.name not in operator.tiers:
            raise PlanError(
                f"operator {operator.name} is the source, tiers = {', '.join(operator.tiers)}: a source runs on the first tier, "
                f"{first.name}; name it, or let the tiers begin where the source is"
            )
        if not (first.capacity_gpus if operator.gpu else first.capacity_cores) > 0.0:
            raise PlanError(
                f"operator {operator.name}, the source, runs on the first tier, {first.name}, which has no {need}; "
                f"set its capacity_{need.lower()}"
            )
        return [0]
    able = [tier for tier in infrastructure.tiers if (tier.capacity_gpus if operator.gpu else tier.capacity_cores) > 0.0]
    if not able:
        raise PlanError(f"operator {operator.name} needs {need}, and no tier has any; give one tier capacity")
    chosen = [tier for tier in able if not operator.tiers or tier.name in operator.tiers]
    if not chosen:
        raise PlanError(
            f"operator {operator.name} may run on {', '.join(operator.tiers)} only, which has no {need}; "
            f"{', '.join(tier.name for tier in able)} would"
        )
    return [tier.order for tier in chosen]


def placements(query: Query, order: Order, infrastructure: Infrastructure) -> list[Placement]:
    """Every feasible placement, those nearest to the source first."""
    partial: list[Placement] = [()]
    for name in order:
        tiers = allowed_tiers(query.operator(name), infrastructure)
        grown = [(*each, tier) for each in partial for tier in tiers if not each or tier >= each[-1]]
        if not grown:
            raise PlanError(
                f"query {query.name}: operator {name} may only run on a tier before its predecessor's; data never flows "
                "back towards the source: allow it a later tier"
            )
        if len(grown) > PLACEMENTS_MAX:
            raise PlanError(f"query {query.name}: more than {PLACEMENTS_MAX} placements; restrict operators by `tiers`")
        partial = grown
    return partial


def by_rule(rule: str, query: Query, order: Order, infrastructure: Infrastructure) -> Placement:
    """The placement of PN, PC or NC: each operator as near to the source, or to the cloud, as is feasible."""
    feasible = placements(query, order, infrastructure)
    if rule == "pn":
        return min(feasible)
    if rule == "pc":
        return max(feasible)
    split = sum(1 for name in order if query.operator(name).kind in ("source", "filter"))
    return min(feasible, key=lambda each: (each[:split], tuple(-tier for tier in each[split:])))
