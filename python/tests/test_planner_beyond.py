"""The command line with several queries, with uncertainty and with prices."""

from __future__ import annotations

import json
import pathlib

import planner_data as data
import pytest

from isolane.planner import cli
from isolane.planner.profiles import Profile, write_profile

TIERS = """
tiers:
  - {name: device, gpu_factor: 0.2, capacity_cores: 2, capacity_gpus: 0, price_per_hour: 0.1}
  - {name: cloud, capacity_cores: 16, price_per_hour: 3}
links:
  - {from: device, to: cloud, mbit_per_s: 24, delay_ms: 5}
"""

QUERY = data.TRAFFIC.replace("query: traffic", "query: NAME").replace("latency_max_ms: 150", "latency_max_ms: 400")


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    """Two queries with their profiles, and tiers for one and a half of them."""
    (tmp_path / "tiers.yaml").write_text(TIERS)
    replay = data.traffic_replay(data.traffic())
    for name in ("first", "second"):
        (tmp_path / f"{name}.yaml").write_text(QUERY.replace("NAME", name))
        profile = Profile(name, "none", replay.profile.knobs, replay.profile.launches)
        write_profile(tmp_path / f"{name}.json.gz", profile)
    return tmp_path


def run(folder: pathlib.Path, *words: str) -> int:
    """The command with these words."""
    return cli.main(["plan", *words, "--infra", str(folder / "tiers.yaml")])


def test_of_two_queries_the_second_is_refused_with_remedies(
    folder: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    both = [str(folder / "first.yaml"), str(folder / "second.yaml")]
    assert run(folder, *both, "--json") == 1
    said = capsys.readouterr()
    joint = json.loads(said.out)
    assert [plan["query"] for plan in joint["plans"]] == ["first"]
    assert joint["refused"][0]["query"] == "second" and joint["refused"][0]["remedies"]
    assert "second: does not fit beside first; it would fit with" in said.err
    assert run(folder, *both) == 1
    assert "first: admitted" in capsys.readouterr().out
    out = folder / "plans"
    assert run(folder, *both, "--running", "second", "--out", str(out), "--report", str(out), "--quiet") == 1
    assert sorted(each.name for each in out.iterdir()) == ["index.html", "second.html", "second.json"]
    page = (out / "index.html").read_text(encoding="utf-8")
    for part in ("a query is rejected", '<a href="second.html">second</a> (running)', "it would fit with", "device-&gt;cloud", " of 400 ms"):
        assert part in page, part


def test_wrong_combinations_are_refused(folder: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = str(folder / "first.yaml"), str(folder / "second.yaml")
    for words, said in (
        ((one, two, "--prices"), "--prices is for one query"),
        ((one, two, "--uncertain", "load=1..2"), "--uncertain is for one query"),
        ((one, two, "--running", "third"), "--running third: no such query"),
        ((one, "--uncertain", "load"), "--uncertain load"),
        ((one, "--uncertain", "load=1..2", "--confidence", "2"), "--confidence 2"),
        ((), "no query"),
    ):
        assert run(folder, *words) == 2, words
        assert said in capsys.readouterr().err
    assert cli.main(["plan", one]) == 2
    assert "--infra is missing" in capsys.readouterr().err


def test_a_robust_plan_is_printed_with_what_it_costs(folder: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(folder, str(folder / "first.yaml"), "--uncertain", "bandwidth=0.8..1,load=1..1.2", "--json") == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["query"] == "first" and "scenarios" in said.err and "less utility" in said.err


def test_prices_are_a_table_or_json(folder: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(folder, str(folder / "first.yaml"), "--prices") == 0
    assert capsys.readouterr().out.startswith("price/hour")
    assert run(folder, str(folder / "first.yaml"), "--prices", "--json") == 0
    assert json.loads(capsys.readouterr().out)["format"] == "isolane-offers"
