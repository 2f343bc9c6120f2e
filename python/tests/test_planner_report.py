"""The page of a plan: its markup is inert, and in a real browser it does what a reader clicks and types.

Skips the browser's part with a printed reason where there is no Chromium, unless `ISOLANE_REQUIRE_BROWSER=1` is set.
`ISOLANE_SCREENSHOTS=FOLDER` keeps what the browser saw.
"""

from __future__ import annotations

import dataclasses
import html.parser
import json
import os
import pathlib
import random
import re
from collections.abc import Iterator

import browser
import pytest

from isolane.planner import overview, plots, report
from isolane.planner.model import Infrastructure, Knob, Link, OperatorSpec, Plan, Query, Step, Tier
from isolane.planner.multi import JointPlan, Load

#: What all reports keep, as a script whose value is a list of what a page does not: of the Rust program's tests.
RULES = pathlib.Path(__file__).resolve().parents[2] / "crates" / "report" / "tests" / "support" / "rules.js"

QUERY = Query(
    "traffic",
    (
        OperatorSpec("camera", "source", "x:Camera", (Knob("frame_rate", "camera", (1 / 6, 0.2, 0.25, 1 / 3, 0.5)),)),
        OperatorSpec("background", "filter", "x:Background"),
        OperatorSpec("colour", "filter", "x:Colour"),
        OperatorSpec(
            "detector",
            "model",
            "x:Detector",
            (Knob("size", "detector", ("small", "medium", "large")), Knob("resize", "detector", (0.6, 0.8, 1.0))),
            gpu=True,
        ),
    ),
    accuracy_min=0.6,
    latency_max_ms=2000.0,
    rate_items_per_s=30.0,
)
TIERS = Infrastructure(
    (Tier("device-edge", 0, 0.2, 0.2), Tier("on-prem-edge", 1, 0.5, 0.5), Tier("mec", 2, 0.8, 0.8), Tier("cloud", 3)),
    (Link("device-edge", "on-prem-edge", 100, 2), Link("on-prem-edge", "mec", 50, 5), Link("mec", "cloud", 20, 20)),
)


def steps(count: int) -> tuple[Step, ...]:
    """A search that never was."""
    draw = random.Random(count)
    return tuple(
        Step(
            (0, 0, draw.randint(0, 1), draw.randint(1, 3)),
            (draw.randint(0, 4), draw.randint(0, 2), draw.randint(0, 2)),
            draw.gauss(0.0, 2.0),
            draw.uniform(0.3, 0.95),
            10.0 ** draw.uniform(1.5, 3.6),
            draw.random() < 0.4,
        )
        for _ in range(count)
    )


def plan(count: int = 40) -> Plan:
    """A plan with a search of so many steps and a runner-up."""
    best = Plan(
        query="traffic",
        searcher="vulcan",
        order=QUERY.template,
        placement={"camera": "device-edge", "background": "device-edge", "colour": "device-edge", "detector": "mec"},
        configuration=QUERY.settings((2, 1, 2)),
        accuracy=0.85,
        latency_ms=412.0,
        latency_p99_ms=620.0,
        network_share={"device-edge->on-prem-edge": 0.12, "on-prem-edge->mec": 0.3, "mec->cloud": 0.0},
        compute_share={"device-edge": 0.3, "on-prem-edge": 0.0, "mec": 0.0, "cloud": 0.0},
        gpu_share={"mec": 0.4},
        utility=2.31,
        meets=True,
        launches=14,
        profiling_cost_s=312.0,
        price_per_hour=1.25,
        why="Everything in the cloud: mec->cloud would add 400 ms.",
        seed=1,
        path=steps(count),
    )
    cloud = {**best.placement, "detector": "cloud"}
    other = dataclasses.replace(best, placement=cloud, utility=1.2, latency_ms=812.0, path=(), why="")
    return dataclasses.replace(best, runner_up=other)


class Tags(html.parser.HTMLParser):
    """Counts elements and checks that they close."""

    VOID = frozenset({"meta", "link", "rect", "path", "circle", "br"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag


@pytest.mark.parametrize("name", ["</script><script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "a\x07b & <!--"])
def test_names_from_outside_are_inert(name: str) -> None:
    camera = dataclasses.replace(QUERY.operators[0], name=name, knobs=(Knob(name, name, (0.5, name)),))
    query = dataclasses.replace(QUERY, name=name, operators=(camera, *QUERY.operators[1:]))
    tiers = Infrastructure((Tier(name, 0), *TIERS.tiers[1:]), (Link(name, "on-prem-edge", 1), *TIERS.links[1:]))
    own = dataclasses.replace(
        plan(3),
        query=name,
        searcher=name,
        order=query.template,
        placement={operator: name for operator in query.template},
        configuration=query.settings((0, 0, 0)),
        why=name,
        path=tuple(dataclasses.replace(step, configuration=(0, 0, 0)) for step in plan(3).path),
        runner_up=None,
    )
    page = report.render(own, query, tiers, name)
    tags = Tags()
    tags.feed(page)
    assert not tags.open
    assert tags.seen.count("script") == 3 and "img" not in tags.seen
    data = re.search(r'id="data">(.*?)</script>', page, re.DOTALL)
    assert data is not None and len(json.loads(data[1])["steps"]) == 3


def test_a_plan_that_misses_is_marked() -> None:
    page = report.render(dataclasses.replace(plan(), meets=False, accuracy=0.4), QUERY, TIERS)
    assert "misses an objective" in page and "No plan meets" in page


def test_the_front_is_what_nothing_beats() -> None:
    points = [(step.accuracy, step.latency_ms) for step in steps(200)]
    slow = [
        point
        for point in points
        if not any((a >= point[0] and b < point[1]) or (a > point[0] and b <= point[1]) for a, b in points)
    ]
    assert plots.front(points) == sorted(set(slow), key=lambda point: point[1])


def test_a_long_search_is_thinned_and_keeps_its_front() -> None:
    path = steps(20_000)
    kept = plots.drawn(path)
    assert len(kept) <= 2 * plots.POINTS_MAX
    edge = plots.front([(step.accuracy, step.latency_ms) for step in path])
    assert plots.front([(path[index].accuracy, path[index].latency_ms) for index in kept]) == edge
    assert "are shown" in report.render(plan(20_000), QUERY, TIERS)


@pytest.mark.parametrize("values", [[], [0.0], [1.0, 1.0], [-3.0, 1e6], [1e-6, 2e-6]])
def test_axes_span_their_values(values: list[float]) -> None:
    axis = plots.linear(values, 0.0, 100.0)
    assert all(axis.low <= value <= axis.high for value in values) and len(axis.ticks) >= 2
    positive = [value for value in values if value > 0.0]
    log = plots.decades(positive, 0.0, 100.0)
    assert all(log.low <= value * (1 + 1e-9) and value <= log.high * (1 + 1e-9) for value in positive)


@pytest.fixture
def window() -> Iterator[browser.Browser]:
    program = browser.find()
    if program is None:
        assert os.environ.get("ISOLANE_REQUIRE_BROWSER") != "1", "ISOLANE_REQUIRE_BROWSER=1, and there is no Chromium"
        pytest.skip("no Chromium")
    with browser.Browser(program) as opened:
        yield opened


def shot(window: browser.Browser, name: str) -> None:
    """Keeps a picture where that is wanted."""
    image = window.screenshot()
    assert image.startswith(b"\x89PNG")
    folder = os.environ.get("ISOLANE_SCREENSHOTS")
    if folder:
        pathlib.Path(folder, f"plan-{name}.png").write_bytes(image)


def test_the_page_in_a_browser(window: browser.Browser, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "plan.html"
    file.write_text(report.render(plan(), QUERY, TIERS, "isolane edge plan examples/traffic.yaml"), encoding="utf-8")
    window.size(1280, 900)
    window.open(file.as_uri())
    step = "Number(document.getElementById('readout').dataset.step)"
    best = max(range(40), key=lambda index: plan().path[index].utility)
    assert window.value(step) == best
    shot(window, "desk")
    window.key("Tab")
    assert window.value("document.activeElement.className") == "skip", "a reader may go to the results at once"

    # Arrow keys step while a plot has the focus, and stop at the ends.
    window.value("document.querySelector('svg[data-steps]').focus()")
    window.key("Home")
    assert window.value(step) == 0
    window.key("ArrowLeft")
    window.key("ArrowRight")
    window.key("ArrowRight")
    assert window.value(step) == 2
    assert window.value("document.querySelectorAll('.step.chosen').length") == 2, "one dot in each plot"
    assert window.value("document.getElementById('readout').textContent").startswith("Step 3:")
    window.key("End")
    assert window.value(step) == 39
    assert window.value("document.querySelector('[data-go=next]').disabled")

    # Buttons and dots do the same.
    window.value("document.querySelector('[data-go=back]').click()")
    assert window.value(step) == 38
    window.value("document.querySelector('[data-name=pareto] .step[data-step=\"7\"]').dispatchEvent(new MouseEvent('click', {bubbles: true}))")
    assert window.value(step) == 7

    # Plots can be saved, alone.
    saved = window.value("isolane.standalone(document.querySelector('[data-name=pareto] svg')).text")
    assert saved.startswith("<svg") and "class=" not in saved

    assert window.problems() == []
    assert {address.split("#")[0] for address in window.requested()} <= {file.as_uri(), "data:,"}


def kept(window: browser.Browser) -> list[str]:
    """What the page breaks of the rules of all reports."""
    if not RULES.exists():
        pytest.skip("this package is outside its repository")
    broken: list[str] = window.value(RULES.read_text(encoding="utf-8"))
    return broken


def test_the_page_on_a_phone_and_in_the_dark(window: browser.Browser, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "plan.html"
    file.write_text(report.render(plan(), QUERY, TIERS), encoding="utf-8")
    window.size(390, 844, phone=True)
    window.open(file.as_uri())
    assert window.value("document.documentElement.scrollWidth") <= 390, "nothing makes the page wider than the phone"
    assert kept(window) == []
    shot(window, "phone")
    background = "getComputedStyle(document.body).backgroundColor"
    light = window.value(background)
    window.scheme("dark")
    dark = window.value(background)
    assert light != dark
    assert kept(window) == []
    shot(window, "phone-dark")
    # The theme button overrides what the system says: auto, light, dark.
    window.value("document.getElementById('theme').click()")
    assert window.value(background) == light
    window.size(1280, 900)
    window.value("document.getElementById('theme').click()")
    assert window.value(background) == dark
    shot(window, "dark")
    assert window.problems() == []


def test_the_page_of_several_queries_in_a_browser(window: browser.Browser, tmp_path: pathlib.Path) -> None:
    first = dataclasses.replace(plan(), why="beside the others it takes 412 ms, alone 400 ms")
    loads = (Load("device-edge", "cores", 0.3), Load("mec", "gpus", 0.4), Load("cloud", "cores", 0.0))
    joint = JointPlan((first,), {"traffic": plan()}, (), loads, exact=False)
    other = dataclasses.replace(QUERY, name="<script>second")
    said = {"<script>second": "does not fit beside traffic; it would fit with 26 Mbit/s instead of 14"}
    page = overview.render(joint, {"traffic": QUERY, other.name: other}, said, ("traffic",))
    assert "<script>second" not in page and page.index("mec") < page.index(">device-edge<")
    file = tmp_path / "index.html"
    file.write_text(page, encoding="utf-8")
    for name, width, phone in (("several", 1280, False), ("several-phone", 390, True)):
        window.size(width, 844, phone=phone)
        window.open(file.as_uri())
        assert window.value("document.documentElement.scrollWidth") <= width, "nothing makes the page wider than the screen"
        assert window.value("document.querySelectorAll('#queries tbody tr').length") == 2
        assert window.value("document.querySelectorAll('#loads tbody tr').length") == 2, "an unused resource is left out"
        assert window.value("document.querySelector('#queries a').getAttribute('href')") == "traffic.html"
        assert kept(window) == []
        shot(window, name)
    assert window.problems() == []
