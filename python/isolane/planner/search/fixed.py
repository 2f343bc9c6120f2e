"""Chameleon and LLAMA: configuration searches that take the placement as given.

Problem: baselines that adapt configurations but never move an operator. Method:

Chameleon: knobs are taken as independent. From the most expensive configuration each knob alone is varied; the accuracy and
the cost of a configuration are predicted as products of the single effects; of those predicted to be accurate enough, the
cheapest `TOP` are launched, and the cheapest that is accurate enough is used. Online only the previous window's top
configurations are launched first (temporal correlation), and the whole profiling runs again when none of them suffices.

LLAMA: each operator's settings are measured alone (others at their most expensive). Then, operator by operator, the latency
left is split in proportion to what operators take; the operator gets the most accurate of its settings that fits its part,
or its fastest. What is saved or lost is passed on to the operators after it.

Limits: both leave the placement as it is (balanced, if none is given). Chameleon looks at accuracy and compute alone, LLAMA at
latency. Source: Chameleon (SIGCOMM 2018), LLAMA (SoCC 2021), both by their descriptions; Vulcan, sections 4.6.1 and 4.6.6.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from isolane.planner.model import Configuration
from isolane.planner.search.problem import Problem

#: Configurations that Chameleon keeps and tries again.
TOP = 5


def chameleon(problem: Problem, rng: np.random.Generator) -> tuple[int, Configuration]:
    """Chameleon's choice at the balanced placement."""
    return chameleon_at(problem, problem.rule("nc"))[0]


def chameleon_at(
    problem: Problem, placement: int, previous: Sequence[Configuration] = ()
) -> tuple[tuple[int, Configuration], list[Configuration]]:
    """Its choice at this placement, and the top configurations for the next window."""
    for configuration in previous:
        problem.deployed(placement, configuration)
    good = accurate(problem, previous)
    if not good:
        top = predicted_top(problem, placement)
        for configuration in top:
            problem.deployed(placement, configuration)
        launched = [configuration for _, configuration in problem.tried]
        good = accurate(problem, launched) or sorted(launched, key=lambda each: -accuracy(problem, each))[:1]
        previous = list(dict.fromkeys([*good[:TOP], *top]))[:TOP]
    return (placement, good[0]), list(previous)


def accurate(problem: Problem, configurations: Sequence[Configuration]) -> list[Configuration]:
    """Those launched that are accurate enough, the cheapest first."""
    target = problem.query.accuracy_min
    good = [each for each in dict.fromkeys(configurations) if accuracy(problem, each) >= target]
    return sorted(good, key=lambda each: work_ms(problem, each))


def predicted_top(problem: Problem, placement: int) -> list[Configuration]:
    """The cheapest configurations that independent knobs predict to be accurate enough."""
    golden = problem.query.most_expensive
    problem.deployed(placement, golden)
    base_accuracy, base_work = accuracy(problem, golden), work_ms(problem, golden)
    effects: list[list[tuple[float, float]]] = []
    for position, knob in enumerate(problem.query.knobs):
        column = []
        for index in range(len(knob.values)):
            single = (*golden[:position], index, *golden[position + 1 :])
            problem.deployed(placement, single)
            column.append(
                (
                    accuracy(problem, single) / base_accuracy if base_accuracy else 0.0,
                    work_ms(problem, single) / base_work if base_work else 1.0,
                )
            )
        effects.append(column)
    scored = []
    for configuration in problem.configurations:
        chosen = [effects[position][index] for position, index in enumerate(configuration)]
        score = base_accuracy * float(np.prod([each[0] for each in chosen]))
        scored.append((score, base_work * float(np.prod([each[1] for each in chosen])), configuration))
    enough = sorted((work, each) for score, work, each in scored if score >= problem.query.accuracy_min)
    return [each for _, each in enough[:TOP]] or [golden]


def llama(problem: Problem, rng: np.random.Generator) -> tuple[int, Configuration]:
    """LLAMA's choice at the balanced placement."""
    return llama_at(problem, problem.rule("nc"))


def llama_at(problem: Problem, placement: int) -> tuple[int, Configuration]:
    """Its choice at this placement."""
    query = problem.query
    golden = query.most_expensive
    problem.deployed(placement, golden)
    usual = stage_ms(problem, placement, golden)
    chosen = golden
    left = query.latency_max_ms
    for position, name in enumerate(problem.order):
        ahead = sum(usual[position:])
        part = left * usual[position] / ahead if ahead > 0.0 else left
        best = None
        for configuration in variants(problem, chosen, name):
            problem.deployed(placement, configuration)
            spent = stage_ms(problem, placement, configuration)[position]
            fits = spent <= part
            key = (fits, accuracy(problem, configuration) if fits else -spent, -spent)
            if best is None or key > best[0]:
                best = (key, configuration, spent)
        if best is not None:
            chosen = best[1]
            left = max(left - best[2], 0.0)
    problem.deployed(placement, chosen)
    return placement, chosen


def variants(problem: Problem, base: Configuration, operator: str) -> list[Configuration]:
    """The base with every setting of this operator's own knobs."""
    knobs = problem.query.knobs
    ranges = [
        range(len(knob.values)) if knob.operator == operator else (base[position],)
        for position, knob in enumerate(knobs)
    ]
    return list(itertools.product(*ranges))


def stage_ms(problem: Problem, placement: int, configuration: Configuration) -> list[float]:
    """The latency of each operator with the transfer after it, at this placement."""
    launch = problem.cache[configuration].launch
    slow, core = problem.estimator.slow[placement], problem.estimator.slow_core[placement]
    per_byte = problem.estimator.ms_per_byte[placement]
    return [
        float(
            slow[position] * one.processing_ms + core[position] * one.core_ms + one.waiting_ms + per_byte[position] * one.output_bytes
        )
        for position, one in enumerate(launch.operators[name] for name in problem.order)
    ]


def accuracy(problem: Problem, configuration: Configuration) -> float:
    """The accuracy of a launched configuration."""
    return problem.cache[configuration].launch.accuracy


def work_ms(problem: Problem, configuration: Configuration) -> float:
    """Processing time per source item of a launched configuration: what Chameleon saves."""
    launch = problem.cache[configuration].launch
    reach, total = 1.0, 0.0
    for name in problem.order:
        total += reach * launch.operators[name].processing_ms
        reach *= launch.operators[name].pass_rate
    return total
