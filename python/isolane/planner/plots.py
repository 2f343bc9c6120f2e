"""The plots of a plan's page: the search path, and accuracy over latency with the Pareto front, as SVG.

Problem: a reader wants to see how the plan was found and what else there was. Units: milliseconds, accuracy and utility without
unit. Method: as the reports of the Rust program draw, so that both look alike: round ticks, logarithmic latency, classes of the
one style sheet. Limits: values outside an axis are drawn at its end; of more than `POINTS_MAX` steps that
many are drawn, or a few more.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass

from isolane.planner.model import Step

#: More than this many dots would hide each other and make the page slow.
POINTS_MAX = 1500

WIDTH, HEIGHT = 500.0, 300.0
LEFT, RIGHT, TOP, BOTTOM = 52.0, 16.0, 26.0, 44.0


@dataclass(frozen=True)
class Axis:
    """Values to pixels, with the ticks that are drawn."""

    low: float
    high: float
    first_px: float
    last_px: float
    ticks: tuple[float, ...]
    logarithmic: bool = False

    def at(self, value: float) -> float:
        """The pixel of this value; beyond the ends, the end."""
        low, high = (math.log(self.low), math.log(self.high)) if self.logarithmic else (self.low, self.high)
        place = math.log(max(value, 1e-12)) if self.logarithmic else value
        part = min(max((place - low) / (high - low), 0.0), 1.0)
        return self.first_px + part * (self.last_px - self.first_px)


def linear(values: Sequence[float], first_px: float, last_px: float, target: int = 5) -> Axis:
    """An axis over these values with about `target` steps of 1, 2 or 5 times a power of ten."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    if high - low < 1e-9:
        low, high = low - 0.5, high + 0.5
    rough = (high - low) / target
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1.0, 2.0, 5.0, 10.0) if factor * power >= rough * (1.0 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    ticks = tuple(index * step for index in range(first, last + 1))
    return Axis(ticks[0], ticks[-1], first_px, last_px, ticks)


def decades(values: Sequence[float], first_px: float, last_px: float) -> Axis:
    """A logarithmic axis over these values, all above 0, with ticks at 1, 2 and 5 times powers of ten."""
    positive = [value for value in values if value > 0.0] or [1.0]
    low, high = min(positive), max(positive)
    exponents = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
    marks = [factor * 10.0**exponent for exponent in exponents for factor in (1.0, 2.0, 5.0)]
    below = [mark for mark in marks if mark <= low * (1.0 + 1e-9)][-1]
    above = [mark for mark in marks if mark >= high * (1.0 - 1e-9) and mark > below][0]
    ticks = tuple(mark for mark in marks if below <= mark <= above)
    if len(ticks) > 9:
        ticks = tuple(mark for mark in ticks if mark in (below, above) or round(math.log10(mark), 9).is_integer())
    return Axis(below, above, first_px, last_px, ticks, logarithmic=True)


def number(value: float) -> str:
    """Three significant digits, without an exponent where that is readable."""
    if value == 0.0 or not math.isfinite(value):
        return f"{value:g}"
    digits = max(2 - math.floor(math.log10(abs(value))), 0)
    text = f"{value:,.{min(digits, 6)}f}".replace(",", "\u202f")
    return text.rstrip("0").rstrip(".") if "." in text else text


class Drawing:
    """Marks of one SVG, in the order in which they are painted."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.marks: list[str] = []

    def text(self, kind: str, x: float, y: float, anchor: str, text: str) -> None:
        """A text; `anchor` is start, middle or end."""
        escaped = html.escape(text)
        self.marks.append(f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escaped}</text>')

    def path(self, kind: str, points: Sequence[tuple[float, float]]) -> None:
        """Straight lines from point to point."""
        if points:
            lines = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
            self.marks.append(f'<path class="{kind}" d="M{lines}"/>')

    def circle(self, kind: str, x: float, y: float, radius: float, title: str, step: int | None = None) -> None:
        """A dot; `step` makes it one that can be chosen."""
        which = "" if step is None else f' data-step="{step}"'
        inner = f"<title>{html.escape(title)}</title>"
        self.marks.append(f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}"{which}>{inner}</circle>')

    def rectangle(self, kind: str, x: float, y: float, width: float, height: float) -> None:
        """A filled rectangle."""
        size = f'width="{max(width, 0.0):.1f}" height="{max(height, 0.0):.1f}"'
        self.marks.append(f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" {size}/>')

    def axes(self, x: Axis, y: Axis, x_title: str, y_title: str) -> None:
        """Grid, ticks and titles."""
        bottom = HEIGHT - BOTTOM
        for value in x.ticks:
            self.path("grid", [(x.at(value), TOP), (x.at(value), bottom)])
            self.text("tick", x.at(value), bottom + 15.0, "middle", number(value))
        for value in y.ticks:
            self.path("axis" if value == 0.0 else "grid", [(LEFT, y.at(value)), (WIDTH - RIGHT, y.at(value))])
            self.text("tick", LEFT - 6.0, y.at(value) + 3.5, "end", number(value))
        self.text("axis-title", 0.0, 12.0, "start", y_title)
        self.text("axis-title", (LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 8.0, "middle", x_title)

    def finish(self) -> str:
        """The element; it takes the focus, so that keys can step through the dots."""
        inner = "\n".join(self.marks)
        return (
            f'<svg class="plot" data-steps tabindex="0" role="img" aria-label="{html.escape(self.label)}" '
            f'viewBox="0 0 {WIDTH:g} {HEIGHT:g}" width="{WIDTH:g}" height="{HEIGHT:g}" '
            f'xmlns="http://www.w3.org/2000/svg">\n{inner}\n</svg>'
        )


def search_path(steps: Sequence[Step], titles: Sequence[str], where: Sequence[int], path: Sequence[Step]) -> str:
    """Utility of each of these steps, which are at the places `where` (from 0) of the whole `path`, and of the best so far."""
    drawing = Drawing("utility (no unit) of each step of the search, and of the best so far")
    x = linear([1.0, float(max(len(path), 2))], LEFT + 8.0, WIDTH - RIGHT - 8.0, 8)
    finite = [step.utility for step in steps if math.isfinite(step.utility)]
    y = linear([*clipped(finite), 0.0], HEIGHT - BOTTOM, TOP)
    drawing.axes(x, y, "step of the search", "utility (no unit)")
    best = -math.inf
    line: list[tuple[float, float]] = []
    for index, step in enumerate(path):
        if step.utility > best:
            if line:
                line.append((x.at(index + 1.0), line[-1][1]))
            best = step.utility
            line.append((x.at(index + 1.0), y.at(best)))
    if line:
        line.append((x.at(float(len(path))), line[-1][1]))
    drawing.path("line s2", line)
    for index, step in enumerate(steps):
        kind = "step dot f1" if step.launched else "step reused"
        drawing.circle(kind, x.at(where[index] + 1.0), y.at(step.utility), 4.5 if step.launched else 3.5, titles[index], index)
    return drawing.finish()


def clipped(values: Sequence[float]) -> list[float]:
    """The values without the lowest outliers, which would flatten all else: nothing further below the median than three
    times what the best is above it, or one unit."""
    if not values:
        return [0.0, 1.0]
    ordered = sorted(values)
    middle = ordered[len(ordered) // 2]
    floor = middle - max(3.0 * (ordered[-1] - middle), 1.0)
    return [max(value, floor) for value in ordered]


def pareto(
    steps: Sequence[Step], titles: Sequence[str], chosen: tuple[float, float], objectives: tuple[float, float]
) -> str:
    """Accuracy over latency: each step, the front, the plan `chosen` and the objectives (accuracy, latency in ms)."""
    drawing = Drawing("accuracy over latency of each step, with the Pareto front and the objectives")
    accuracies = [step.accuracy for step in steps] + [chosen[0], objectives[0]]
    latencies = [step.latency_ms for step in steps if math.isfinite(step.latency_ms)] + [chosen[1], objectives[1]]
    x = decades(latencies, LEFT, WIDTH - RIGHT)
    y = linear(accuracies, HEIGHT - BOTTOM, TOP)
    right, top = x.at(objectives[1]), y.at(objectives[0])
    drawing.rectangle("allowed", LEFT, TOP, right - LEFT, top - TOP)
    drawing.axes(x, y, "latency, ms (logarithmic)", "accuracy")
    drawing.path("rule", [(right, TOP), (right, HEIGHT - BOTTOM)])
    drawing.path("rule", [(LEFT, top), (WIDTH - RIGHT, top)])
    for index, step in enumerate(steps):
        kind = "step dot f1" if step.launched else "step reused"
        drawing.circle(kind, x.at(step.latency_ms), y.at(step.accuracy), 4.0 if step.launched else 3.0, titles[index], index)
    edge = front([(step.accuracy, step.latency_ms) for step in steps])
    drawing.path("line s3", [(x.at(latency), y.at(accuracy)) for accuracy, latency in edge])
    drawing.circle("plan", x.at(chosen[1]), y.at(chosen[0]), 9.0, "the plan")
    return drawing.finish()


def front(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Those (accuracy, latency) that no other beats in both, by latency."""
    best: list[tuple[float, float]] = []
    for accuracy, latency in sorted(set(points), key=lambda point: (point[1], -point[0])):
        if math.isfinite(latency) and (not best or accuracy > best[-1][0]):
            best.append((accuracy, latency))
    return best


#: Steps of this part of a turn never fall into step with the period of a knob: its continued fraction is the slowest.
GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0


def drawn(steps: Sequence[Step]) -> list[int]:
    """The steps that are drawn: all, or the front, the best, one of each value of each knob and of each placement, and of the
    rest those whose multiple of the golden section has the smallest fraction: evenly spread, but in step with no knob."""
    if len(steps) <= POINTS_MAX:
        return list(range(len(steps)))
    first: dict[tuple[float, float], int] = {}
    for index, step in enumerate(steps):
        first.setdefault((step.accuracy, step.latency_ms), index)
    kept = {first[point] for point in front(list(first))}
    kept.add(max(range(len(steps)), key=lambda index: steps[index].utility))
    order = sorted(range(len(steps)), key=lambda index: (index * GOLDEN) % 1.0)
    seen: set[object] = set()
    for index in order:
        own: set[object] = {("placement", *steps[index].placement), *enumerate(steps[index].configuration)}
        if not own <= seen:
            seen |= own
            kept.add(index)
    for index in order:
        if len(kept) >= POINTS_MAX:
            break
        kept.add(index)
    return sorted(kept)
