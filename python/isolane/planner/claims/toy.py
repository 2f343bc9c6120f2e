"""The toy examples of figures 4.2 to 4.4: two filters and a detector, a device and a datacenter, two configurations.

Problem: the paper shows on them why configuration and placement must be chosen together, and why the order of filters matters.
Units: megabytes, milliseconds. Method: as a query of the planner, with what the figures print as its profile. Of figure 4.2c only
the consequences are in the text; its numbers follow from figure 4.3: what P3 has is twice the detector's time, what P1, P2 and P4
have beyond it is data over 20 MB/s. The latency objective is between those that pass and those that fail; 400 ms.
Source: Vulcan, section 4.2.2.
"""

from __future__ import annotations

from collections.abc import Mapping

from isolane.planner.estimate import Estimator, Table
from isolane.planner.model import (
    Configuration,
    FilterScore,
    Infrastructure,
    Knob,
    Launch,
    Link,
    OperatorResult,
    OperatorSpec,
    Order,
    Placement,
    PlanError,
    Query,
    Tier,
)

#: Per order of the filters (G: ground removal, V: voxelisation) and configuration: accuracy, detector's ms, MB after the source
#: and after each filter.
MEASURED: dict[str, tuple[tuple[float, float, tuple[float, float, float]], ...]] = {
    "GV": ((0.85, 260.0, (6.0, 4.4, 3.2)), (0.80, 270.0, (6.0, 3.6, 2.2))),
    "VG": ((0.70, 180.0, (6.0, 4.0, 2.7)), (0.60, 190.0, (6.0, 2.8, 2.0))),
}

#: Accuracy and latency objectives of the figures, by order of the filters.
ASKED = {"GV": (0.80, 400.0), "VG": (0.60, 300.0)}

FILTERS = {"G": "ground", "V": "voxels"}

#: P1 to P4 of figure 4.3a: how many operators, from the source on, stay on the device.
ON_DEVICE = (2, 3, 4, 1)

TIERS = Infrastructure((Tier("device", 0, gpu_factor=0.5), Tier("datacenter", 1)), (Link("device", "datacenter", 160.0),))


def query(accuracy_min: float, latency_max_ms: float) -> Query:
    """The query of figure 4.2b with these objectives."""
    operators = (
        OperatorSpec("lidar", "source", "toy:Lidar"),
        OperatorSpec("ground", "filter", "toy:Ground"),
        OperatorSpec("voxels", "filter", "toy:Voxels"),
        OperatorSpec("detector", "model", "toy:Detector", (Knob("setting", "detector", ("C2", "C1")),), gpu=True),
    )
    return Query("toy", operators, accuracy_min, latency_max_ms, rate_items_per_s=1.0)


def order(name: str) -> Order:
    """`GV` or `VG` as operators."""
    if name not in MEASURED:
        raise PlanError(f"toy example: order {name}: must be GV or VG")
    return ("lidar", *(FILTERS[each] for each in name), "detector")


class Toy:
    """A launcher that knows the figures."""

    def launch(self, order: Order, configuration: Configuration) -> Launch:
        """What figures 4.2c and 4.4c record."""
        name = "".join(key for each in order for key, operator in FILTERS.items() if operator == each)
        accuracy, detector_ms, megabytes = MEASURED[name][1 - configuration[0]]
        operators = {
            each: OperatorResult(0.0, size * 1e6) for each, size in zip(order, (*megabytes, 0.0), strict=True)
        }
        operators["detector"] = OperatorResult(detector_ms, 0.0)
        return Launch(order, configuration, accuracy, operators, 1.0)

    def filters(self, order: Order, configuration: Configuration) -> FilterScore:
        """The figures have no precision or recall."""
        raise PlanError("the toy examples say nothing of filters alone")


def placed(index: int) -> Placement:
    """P1 to P4, from 1."""
    if not 1 <= index <= len(ON_DEVICE):
        raise PlanError(f"toy example: placement = {index}: must be 1 to {len(ON_DEVICE)}")
    return tuple(0 if position < ON_DEVICE[index - 1] else 1 for position in range(4))


def end_to_end(name: str, configuration: int, placement: int) -> tuple[float, float]:
    """Accuracy and latency (ms) of a configuration and a placement, both from 1."""
    if configuration not in (1, 2):
        raise PlanError(f"toy example: configuration = {configuration}: must be 1 or 2")
    asked = query(*ASKED["GV"])
    launch = Toy().launch(order(name), (2 - configuration,))
    estimator = Estimator(asked, order(name), TIERS, [placed(placement)])
    estimates = estimator.estimates(Table.of([launch], order(name)))
    return launch.accuracy, float(estimates.latency_ms[0, 0])


def measure(options: Mapping[str, str | int]) -> dict[str, float]:
    """One toy experiment: a pair that is named, or the one that a way of planning chooses.

    `separate` takes the configuration that is best offline and then its best placement; `joint` takes, of all pairs that meet what
    is asked of the order `asked_of`, the fastest, or the fastest at all where none does.
    """
    name = str(options.get("order", "GV"))
    if "configuration" in options:
        configuration, placement = int(options["configuration"]), int(options["placement"])
    else:
        configuration, placement = choose(name, str(options["searcher"]), asked(options))
    accuracy, latency_ms = end_to_end(name, configuration, placement)
    accuracy_min, latency_max_ms = asked(options)
    return {
        "accuracy": accuracy,
        "latency_ms": latency_ms,
        "configuration": float(configuration),
        "placement": float(placement),
        "meets_objectives": float(accuracy >= accuracy_min and latency_ms <= latency_max_ms),
    }


def asked(options: Mapping[str, str | int]) -> tuple[float, float]:
    """The objectives: those of figure 4.2a, or of 4.4a where the experiment has figure 4.4."""
    return ASKED["VG" if options.get("figure") == "4.4" else "GV"]


def choose(name: str, searcher: str, objectives: tuple[float, float]) -> tuple[int, int]:
    """Configuration and placement, from 1."""
    pairs = [(configuration, placement) for configuration in (1, 2) for placement in (1, 2, 3, 4)]
    found = {pair: end_to_end(name, *pair) for pair in pairs}
    if searcher == "separate":
        best = max((1, 2), key=lambda each: (MEASURED[name][each - 1][0], -MEASURED[name][each - 1][1]))
        pairs = [pair for pair in pairs if pair[0] == best]
    elif searcher != "joint":
        raise PlanError(f"toy example: searcher {searcher}: must be separate or joint")
    meeting = [pair for pair in pairs if found[pair][0] >= objectives[0] and found[pair][1] <= objectives[1]]
    return min(meeting or pairs, key=lambda pair: found[pair][1])
