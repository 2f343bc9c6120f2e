"""A synthetic query, and what else the tests of the planner share."""

from __future__ import annotations

import itertools

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
    Query,
    Tier,
)
from isolane.planner.profiles import Profile, Replay


def four_tiers(scale: float = 1.0) -> Infrastructure:
    """Device, on-premise edge, public edge, cloud; `scale` multiplies the bandwidth of the second link."""
    tiers = (
        Tier("device", 0, 0.5, 0.25, 4.0, 1.0, 0.1),
        Tier("premise", 1, 1.0, 0.5, 8.0, 2.0, 0.4),
        Tier("mec", 2, 1.0, 0.8, 32.0, 4.0, 1.5),
        Tier("cloud", 3, 1.0, 1.0, 64.0, 8.0, 3.0),
    )
    links = (
        Link("device", "premise", 200.0, 1.0),
        Link("premise", "mec", 100.0 * scale, 5.0),
        Link("mec", "cloud", 50.0, 20.0),
    )
    return Infrastructure(tiers, links)


def traffic(utility: str = "ratio", gamma: float = 0.5, latency_max_ms: float = 150.0) -> Query:
    """A query like the paper's video monitoring: 5 sampling rates, 5 sizes, 5 models."""
    return Query(
        name="traffic",
        operators=(
            OperatorSpec("camera", "source", "t:Camera", gives="frame"),
            OperatorSpec("motion", "filter", "t:Motion", (Knob("every", "motion", (6, 5, 4, 3, 2)),), accepts=("frame",)),
            OperatorSpec(
                "colour", "filter", "t:Colour", (Knob("resize", "colour", (0.6, 0.7, 0.8, 0.9, 1.0)),), accepts=("frame",)
            ),
            OperatorSpec(
                "detector",
                "model",
                "t:Detector",
                (Knob("size", "detector", ("n", "s", "m", "l", "x")),),
                gpu=True,
                accepts=("frame",),
                gives="boxes",
            ),
        ),
        accuracy_min=0.6,
        latency_max_ms=latency_max_ms,
        gamma=gamma,
        rate_items_per_s=30.0,
        utility=utility,
    )


#: `traffic()` as a query file.
TRAFFIC = """
query: traffic
accuracy_min: 0.6
latency_max_ms: 150
rate_items_per_s: 30
operators:
  - {name: camera, kind: source, implementation: "t:Camera", gives: frame}
  - {name: motion, kind: filter, implementation: "t:Motion", accepts: frame, knobs: [{name: every, values: [6, 5, 4, 3, 2]}]}
  - name: colour
    kind: filter
    implementation: "t:Colour"
    accepts: frame
    knobs: [{name: resize, values: [0.6, 0.7, 0.8, 0.9, 1.0]}]
  - name: detector
    kind: model
    implementation: "t:Detector"
    gpu: true
    accepts: frame
    gives: boxes
    knobs: [{name: size, values: [n, s, m, l, x]}]
"""

#: A file of two tiers.
TWO_TIERS = """
version: 1
tiers:
  - {name: device, gpu_factor: 0.5, price_per_hour: 0.1}
  - {name: cloud, capacity_cores: 64}
links:
  - {from: device, to: cloud, mbit_per_s: 160, delay_ms: 5}
"""


def traffic_launch(query: Query, order: Order, configuration: tuple[int, ...], dark: float = 0.0) -> Launch:
    """What a launch measures: smooth in the knobs, worse in the dark, and dependent on the order of the filters."""
    every, resize, size = configuration
    skip = 6 - every
    scale = 0.6 + 0.1 * resize
    colour_first = order.index("colour") < order.index("motion")
    accuracy = 0.97 - 0.06 * (skip - 2) - 1.1 * (1.0 - scale) ** 1.5 - 0.09 * (4 - size) ** 0.7
    accuracy -= 0.03 * colour_first + dark * (0.1 + 0.02 * (4 - size))
    frame = 0.4e6
    motion = OperatorResult(6.0, frame, 0.9 / skip, 9.0, frame)
    colour = OperatorResult(2.0 * scale, frame * scale * scale, 0.6, 3.0, frame * scale * scale)
    inference = (5.0, 9.0, 18.0, 30.0, 50.0)[size] * scale * scale
    operators = {
        "camera": OperatorResult(0.0, frame),
        "motion": motion,
        "colour": colour,
        "detector": OperatorResult(inference, 400.0, 1.0, 1.5 * inference, 900.0),
    }
    precision = 0.5 + 0.1 * colour_first + 0.02 * skip
    recall = 0.95 - 0.05 * colour_first - 0.03 * (skip - 2)
    return Launch(order, configuration, max(accuracy, 0.0), operators, 20.0 + inference, precision, recall)


def traffic_replay(query: Query, dark: float = 0.0) -> Replay:
    """Every launch of the synthetic query."""
    launches = tuple(
        traffic_launch(query, order, configuration, dark)
        for order, configuration in itertools.product(query.orders(), query.configurations())
    )
    return Replay(query, Profile(query.name, "none", query.knobs, launches))


class Fixed:
    """Launches that always measure the same."""

    def __init__(self, accuracy: float, **operators: OperatorResult) -> None:
        self.accuracy = accuracy
        self.operators = operators

    def launch(self, order: Order, configuration: Configuration) -> Launch:
        """The same every time."""
        return Launch(order, configuration, self.accuracy, self.operators, 1.0)

    def filters(self, order: Order, configuration: Configuration) -> FilterScore:
        """Without filters, every item passes."""
        return FilterScore(1.0, 1.0, 0.0)
