"""The command line: what it prints, writes and refuses, with which exit code."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest

from isolane.planner import formats, profiles
from isolane.planner.cli import main
from planner_data import TRAFFIC, four_tiers, traffic, traffic_replay

QUERY = f"version: 1\nprofile: traffic-day\n{TRAFFIC}"


@pytest.fixture(name="folder")
def folder_fixture(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "q.yaml").write_text(QUERY, encoding="utf-8")
    tiers = four_tiers()
    lines = ["tiers:"]
    for tier in tiers.tiers:
        lines.append(
            f"  - {{name: {tier.name}, compute_factor: {tier.compute_factor}, gpu_factor: {tier.gpu_factor}, "
            f"capacity_cores: {tier.capacity_cores}, capacity_gpus: {tier.capacity_gpus}, price_per_hour: {tier.price_per_hour}}}"
        )
    lines.append("links:")
    for link in tiers.links:
        lines.append(
            f"  - {{from: {link.source}, to: {link.target}, mbit_per_s: {link.mbit_per_s}, delay_ms: {link.delay_ms}}}"
        )
    (tmp_path / "t.yaml").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "profiles").mkdir()
    profiles.write_profile(tmp_path / "profiles" / "traffic-day.json.gz", traffic_replay(traffic()).profile)
    return tmp_path


def run(folder: pathlib.Path, *more: str) -> int:
    return main(["plan", str(folder / "q.yaml"), "--infra", str(folder / "t.yaml"), *more])


def test_the_files_say_what_the_tests_data_say(folder: pathlib.Path) -> None:
    assert formats.load_infrastructure(folder / "t.yaml") == four_tiers()
    assert formats.load_query(folder / "q.yaml").knobs == traffic().knobs


def test_a_plan_is_printed_for_people(folder: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(folder, "--searcher", "exhaustive") == 0
    out = capsys.readouterr().out
    for part in ("query traffic, searcher exhaustive", "at least 0.6", "at most 150 ms", "2500 launches", "second-best plan lost: with"):
        assert part in out
    assert out.endswith("The plan meets both objectives.\n")


def test_json_is_a_plan_and_the_same_every_time(folder: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(folder, "--json", "--seed", "4", "--out", str(folder / "plan.json")) == 0
    first = capsys.readouterr().out
    run(folder, "--json", "--seed", "4")
    assert capsys.readouterr().out == first == (folder / "plan.json").read_text(encoding="utf-8")
    plan, data = formats.load_plan(folder / "plan.json")
    assert plan.query == "traffic" and plan.meets and data["objectives"]["latency_max_ms"] == 150.0
    assert json.loads(first)["seed"] == 4


def test_a_page_is_written(folder: pathlib.Path) -> None:
    assert run(folder, "--quiet", "--report", str(folder / "page")) == 0
    page = (folder / "page" / "report.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>") and "detector" in page


def test_objectives_that_cannot_be_met_end_with_1_and_say_what_can(
    folder: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = QUERY.replace("latency_max_ms: 150", "latency_max_ms: 20").replace("accuracy_min: 0.6", "accuracy_min: 0.8")
    (folder / "q.yaml").write_text(text, encoding="utf-8")
    assert run(folder) == 1
    captured = capsys.readouterr()
    assert "The plan misses" in captured.out
    assert "within 20 ms the best accuracy is" in captured.err and "at accuracy 0.8 the best latency is" in captured.err


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--searcher", "exhaustiv"], "did you mean exhaustive?"),
        (["--patience", "0"], "--patience 0: must be at least 1"),
        (["--kappa", "nan"], "--kappa nan: must be at least 0"),
        (["--seed", "-1"], "--seed -1: must be at least 0"),
        (["--order", "camera,detector,motion,colour"], "--order camera,detector,motion,colour: must be one of camera,motion"),
        (["--utility", "best"], "utility = best: must be one of ratio, strict"),
        (["--profile-data", "/nonexistent"], "no profile at /nonexistent/traffic-day"),
        (["--budget-s", "0.5"], "too small for one launch"),
    ],
)
def test_bad_input_ends_with_2_and_names_it(
    folder: pathlib.Path, capsys: pytest.CaptureFixture[str], more: list[str], message: str
) -> None:
    assert run(folder, *more) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and message in captured.err and captured.err.startswith("isolane: ")


def test_what_cannot_be_written_ends_with_3(folder: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(folder, "--quiet", "--out", "/dev/null/plan.json") == 3
    assert "cannot write /dev/null/plan.json" in capsys.readouterr().err


def test_files_that_are_missing_end_with_2(folder: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(folder / "no.yaml"), "--infra", str(folder / "t.yaml")]) == 2
    assert "no.yaml: cannot be read" in capsys.readouterr().err


def test_the_module_runs(folder: pathlib.Path) -> None:
    command = [sys.executable, "-m", "isolane.planner", "plan", str(folder / "q.yaml"), "--infra", str(folder / "t.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "second-best plan" in done.stdout, done.stderr
