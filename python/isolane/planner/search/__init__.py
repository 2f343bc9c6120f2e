"""Searchers by name. Each tries pairs of placement and configuration on a `Problem`; the best that it tried is the plan.

A searcher returns nothing, or the pair that it chooses itself where its own objective is another than utility.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from isolane.planner.model import Configuration
from isolane.planner.search import fixed, jellybean, rules, surrogate, videostorm, vulcan
from isolane.planner.search.problem import Problem

Searcher: TypeAlias = Callable[[Problem, np.random.Generator], tuple[int, Configuration] | None]

SEARCHERS: dict[str, Searcher] = {
    "vulcan": vulcan.vulcan,
    "isolane": surrogate.isolane,
    "exhaustive": rules.exhaustive,
    "videostorm": videostorm.videostorm,
    "videostorm+": videostorm.videostorm_plus,
    "chameleon": fixed.chameleon,
    "jellybean": jellybean.jellybean,
    "llama": fixed.llama,
    "pn": rules.pn,
    "pc": rules.pc,
    "nc": rules.nc,
}
