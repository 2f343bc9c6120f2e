"""Query, tier, profile and plan files: what is read is what was written, and what is wrong is named with its place."""

from __future__ import annotations

import dataclasses
import gzip
import json
import pathlib

import pytest
from planner_data import TWO_TIERS

from isolane.planner import formats, profiles
from isolane.planner.model import Knob, Launch, OperatorResult, Plan, PlanError, Step

QUERY = """
version: 1
query: driving
accuracy_min: 0.8
latency_max_ms: 400
rate_items_per_s: 10
operators:
  - {name: lidar, kind: source, implementation: "m:Lidar", gives: points}
  - name: ground
    kind: filter
    implementation: "m:Ground"
    accepts: points
    knobs:
      - {name: distance_m, values: [0.5, 0.1]}
  - name: voxels
    kind: filter
    implementation: "m:Voxels"
    accepts: [points]
    knobs:
      - name: size_m
        values: [0.5, 0.3, 0.1]
  - {name: detector, kind: model, implementation: detector.onnx, gpu: true, accepts: points, gives: boxes}
"""


def wrong(text: str, old: str, new: str, tiers: bool = False) -> str:
    """The message for the file with this change."""
    assert old in text
    read = formats.parse_infrastructure if tiers else formats.parse_query
    with pytest.raises(PlanError) as caught:
        read(text.replace(old, new), "q.yaml")
    return str(caught.value)


def test_a_query_has_its_operators_knobs_and_orders() -> None:
    query = formats.parse_query(QUERY, "q.yaml")
    assert query.template == ("lidar", "ground", "voxels", "detector")
    assert query.knobs == (Knob("distance_m", "ground", (0.5, 0.1)), Knob("size_m", "voxels", (0.5, 0.3, 0.1)))
    assert query.orders() == [query.template, ("lidar", "voxels", "ground", "detector")]
    assert len(query.configurations()) == 6 and query.most_expensive == (1, 2)
    settings = query.settings((0, 1))
    assert settings == {"lidar": {}, "ground": {"distance_m": 0.5}, "voxels": {"size_m": 0.3}, "detector": {}}
    assert query.configuration(settings) == (0, 1)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("latency_max_ms", "latency_max", "q.yaml:5: latency_max: unknown key; did you mean latency_max_ms?"),
        ("kind: model", "kind: modell", "q.yaml:22: operators[3].kind: modell: must be one of source, filter, model, post"),
        ("0.8", "1.8", "q.yaml:4: accuracy_min: 1.8: must be at least 0 and at most 1"),
        ("0.8", "high", "q.yaml:4: accuracy_min: 'high': must be a number, at least 0 and at most 1"),
        ("[0.5, 0.1]", "[]", "q.yaml:14: operators[1].knobs[0]: knob ground.distance_m has no values"),
        ("version: 1", "version: 2", "q.yaml:2: version: 2: this program reads version 1"),
        ("query: driving", "query: [a", "q.yaml:4: not valid YAML"),
        ("accuracy_min: 0.8\n", "", "q.yaml:2: the key accuracy_min is missing"),
        ("name: voxels", "name: ground", "two operators are named ground"),
        ("kind: source", "kind: filter", "needs exactly one source"),
    ],
)
def test_a_wrong_query_is_named_with_its_line(old: str, new: str, message: str) -> None:
    assert message in wrong(QUERY, old, new)


def test_a_cyclic_pipeline_names_the_cycle() -> None:
    text = QUERY.replace("    accepts: points\n", "    after: voxels\n    accepts: points\n")
    text = text.replace("    accepts: [points]\n", "    after: ground\n")
    with pytest.raises(PlanError, match="cyclic: ground after voxels after ground"):
        formats.parse_query(text, "q.yaml")


def test_a_pipeline_whose_types_do_not_fit_names_the_two_operators() -> None:
    message = wrong(QUERY, "gives: points", "gives: frame")
    assert "ground accepts points, but lidar gives frame" in message


def test_types_restrict_the_orders() -> None:
    text = QUERY.replace('implementation: "m:Voxels"', 'implementation: "m:Voxels"\n    gives: grid')
    text = text.replace("gpu: true, accepts: points", "gpu: true, accepts: grid")
    assert formats.parse_query(text, "q.yaml").orders() == [("lidar", "ground", "voxels", "detector")]


def test_tiers_are_numbered_as_they_stand() -> None:
    infrastructure = formats.parse_infrastructure(TWO_TIERS, "t.yaml")
    assert [(tier.name, tier.order, tier.gpu_factor) for tier in infrastructure.tiers] == [
        ("device", 0, 0.5),
        ("cloud", 1, 1.0),
    ]
    assert [link.name for link in infrastructure.links] == ["device->cloud"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("mbit_per_s: 160", "mbit_per_s: 0", "mbit_per_s: 0: must be above 0"),
        ("from: device, to: cloud", "from: cloud, to: device", "link cloud->device does not join"),
        ("links:\n  - {from: device, to: cloud, mbit_per_s: 160, delay_ms: 5}\n", "", "device->cloud is missing"),
        ("name: cloud", "name: device", "two tiers are named device"),
        ("gpu_factor", "gpu_facter", "did you mean gpu_factor?"),
    ],
)
def test_wrong_tiers_are_named(old: str, new: str, message: str) -> None:
    assert message in wrong(TWO_TIERS, old, new, tiers=True)


def test_tiers_without_any_core_are_an_error() -> None:
    text = TWO_TIERS.replace("capacity_cores: 64", "capacity_cores: 0").replace("price_per_hour: 0.1", "capacity_cores: 0")
    with pytest.raises(PlanError, match="no tier has a core"):
        formats.parse_infrastructure(text, "t.yaml")


def profile_of(text: str = QUERY) -> profiles.Profile:
    query = formats.parse_query(text, "q.yaml")
    launches = tuple(
        Launch(
            order,
            configuration,
            0.5 + 0.1 * sum(configuration),
            {name: OperatorResult(2.0 + index, 1e6 / 3, 0.5, 9.0, 2e6) for index, name in enumerate(order)},
            12.5,
            0.75,
            0.9,
        )
        for order in query.orders()
        for configuration in query.configurations()
    )
    return profiles.Profile("driving", "2 cores", query.knobs, launches, "day", {"seed": 1})


@pytest.mark.parametrize("name", ["p.json", "p.json.gz"])
def test_a_profile_reads_back(tmp_path: pathlib.Path, name: str) -> None:
    profile = profile_of()
    profiles.write_profile(tmp_path / name, profile)
    again = profiles.load_profile(tmp_path / name)
    assert dataclasses.replace(again, launches=()) == dataclasses.replace(profile, launches=())
    first, second = profile.launches[3], again.launches[3]
    assert (first.order, first.configuration, first.launch_cost_s) == (second.order, second.configuration, 12.5)
    assert second.operators["ground"].output_bytes == pytest.approx(1e6 / 3, rel=1e-5)
    assert profiles.profile_bytes(again) == profiles.profile_bytes(profile)
    replay = profiles.Replay(formats.parse_query(QUERY, "q.yaml"), again)
    assert replay.launch(first.order, first.configuration) == second
    # Source and filters reach 1, .5, .25 of the items: (2 + 3/2 + 4/4) of (2 + 3/2 + 4/4 + 5/8) milliseconds.
    assert replay.filters(first.order, first.configuration).cost_s == pytest.approx(12.5 * 4.5 / 5.125)


def test_a_profile_of_other_knobs_or_another_query_is_refused() -> None:
    query = formats.parse_query(QUERY.replace("[0.5, 0.1]", "[0.5, 0.2]"), "q.yaml")
    with pytest.raises(PlanError, match=r"ground.distance_m = \[0.5, 0.2\], the profile .* \[0.5, 0.1\]"):
        profiles.Replay(query, profile_of())
    with pytest.raises(PlanError, match="of query driving, not of other"):
        profiles.Replay(formats.parse_query(QUERY.replace("driving", "other"), "q.yaml"), profile_of())


def test_damaged_profiles_are_named(tmp_path: pathlib.Path) -> None:
    whole = profiles.profile_bytes(profile_of())
    path = tmp_path / "p.json.gz"
    for content in (whole[:-20], b"plain", gzip.compress(b"{}"), gzip.compress(b"[1"), gzip.compress(b"\xff\xfe")):
        path.write_bytes(content)
        with pytest.raises(PlanError, match="p.json.gz: "):
            profiles.load_profile(path)
    data = json.loads(gzip.decompress(whole))
    data["entries"][0]["operators"]["ground"][0] = -1
    path.write_bytes(gzip.compress(json.dumps(data).encode()))
    with pytest.raises(PlanError, match="negative"):
        profiles.load_profile(path)


def test_a_plan_reads_back() -> None:
    query = formats.parse_query(QUERY, "q.yaml")
    tiers = formats.parse_infrastructure(TWO_TIERS, "t.yaml")
    placement = {"lidar": "device", "ground": "device", "voxels": "device", "detector": "cloud"}
    plan = Plan(
        query="driving",
        searcher="exhaustive",
        order=query.template,
        placement=placement,
        configuration=query.settings((0, 1)),
        accuracy=0.85,
        latency_ms=300.0,
        latency_p99_ms=350.0,
        network_share={"device->cloud": 0.1},
        compute_share={"device": 0.2, "cloud": 0.0},
        gpu_share={"device": 0.0, "cloud": 0.3},
        utility=1.5,
        meets=True,
        launches=6,
        profiling_cost_s=75.0,
        path=(Step((0, 0, 0, 1), (0, 1), 1.5, 0.85, 300.0, True),),
    )
    plan = dataclasses.replace(plan, runner_up=dataclasses.replace(plan, utility=1.4, path=()), why="1.5 is more")
    text = json.dumps(formats.plan_json(plan, query, tiers))
    again, data = formats.parse_plan(text, "p.json")
    assert again == plan
    assert [(each["name"], each["tier"]) for each in data["operators"]] == list(placement.items())
    assert data["infrastructure"]["links"][0] == {"from": "device", "to": "cloud", "mbit_per_s": 160.0, "delay_ms": 5.0}
    for broken in ("{", "[]", '{"format": "isolane-plan", "version": 9}', '{"format": "isolane-plan", "version": 1}'):
        with pytest.raises(PlanError, match="p.json"):
            formats.parse_plan(broken, "p.json")


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b'[port]\nrate = "1Gb/s"\n', "is TOML"),
        (b'{"version": 1, "scenario": "x"}', "is the result of a run"),
        (b"\xff\x00", "is binary data"),
        (b" \n", "is empty"),
        (None, "is a directory"),
    ],
)
def test_a_file_of_another_kind_is_named_with_what_is_needed(tmp_path: pathlib.Path, content: bytes | None, kind: str) -> None:
    file = tmp_path if content is None else tmp_path / "file"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(PlanError, match=f"{kind}, and a query in YAML .*is needed"):
        formats.load_query(file)
    with pytest.raises(PlanError, match=f"{kind}, and .*tiers and links"):
        formats.load_infrastructure(file)
