"""A sweep through Ray prints what one through the program alone prints, and says which shard failed."""

from __future__ import annotations

import pathlib
import subprocess
from collections.abc import Callable

import pytest

from isolane import sweep

SCENARIO = """
duration = "200us"
warmup = "20us"
[fabric]
topology = "single-switch"
hosts = 4
[[class]]
name = "high"
weight = 4
[[class]]
name = "low"
[[traffic]]
name = "all"
pattern = "all-to-all"
mix = [0.5, 0.5]
sizes = "8KiB"
load = 0.5
"""
OPTIONS = ["--vary", "traffic.all.load=0.3,0.6", "--seeds", "2"]


@pytest.fixture(name="scenario")
def scenario_fixture(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "four.toml"
    path.write_text(SCENARIO, encoding="utf-8")
    return path


def alone(program: str, scenario: pathlib.Path, form: str) -> str:
    command = [program, "sweep", str(scenario), *OPTIONS, form]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def in_turn(program: str, scenario: pathlib.Path, count: int) -> list[str]:
    text = scenario.read_text(encoding="utf-8")
    return [sweep.shard(program, scenario.name, text, OPTIONS, index + 1, count) for index in range(count)]


@pytest.mark.parametrize("form", ["--json", "--csv"])
def test_merged_shards_are_the_whole(program: str, scenario: pathlib.Path, form: str) -> None:
    merged = sweep.merge(program, in_turn(program, scenario, 3), [form])
    assert merged == alone(program, scenario, form)


def test_a_wrong_option_is_said_once(program: str, scenario: pathlib.Path) -> None:
    text = scenario.read_text(encoding="utf-8")
    with pytest.raises(sweep.SweepError, match="did you mean"):
        sweep.shard(program, scenario.name, text, ["--vary", "traffic.al.load=1"], 1, 1)


@pytest.mark.parametrize("own", [["--shard", "1/2"], ["--shard=1/2"], ["--jobs", "2"], ["--merge"]])
def test_own_options_are_refused(scenario: pathlib.Path, own: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        sweep.main([str(scenario), *own])
    assert "this program sets it" in capsys.readouterr().err


def test_ray_gives_the_same_bytes(
    program: str, scenario: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ray", reason="the extra `ray` is not installed")
    run: Callable[[list[str]], int] = sweep.main
    code = run([str(scenario), "--isolane", program, "--shards", "2", *OPTIONS, "--json"])
    assert code == 0
    assert capsys.readouterr().out == alone(program, scenario, "--json")
