"""A hunt whose experiments are done by workers finds the same bytes as one that does them itself."""

from __future__ import annotations

import io
import json
import os
import pathlib
import subprocess
import sys

import pytest

from isolane import hunt

HERE = str(pathlib.Path(__file__).resolve().parent.parent)
RESTRICTION = "queue_pairs = [1, 8]\nregions = [1, 64]\ndepth = [16, 64]\npost_list = [1, 16]\nrequests = 1\n"


def hunted(program: str, directory: pathlib.Path, name: str, more: list[str]) -> str:
    file = directory / "app.toml"
    file.write_text(RESTRICTION, encoding="utf-8")
    command = [program, "hunt", "--target", "sim:cx6-200g-roce", "--restrict", str(file), "--budget", "40", "--json"]
    environment = {**os.environ, "ISOLANE": program, "ISOLANE_PYTHON": sys.executable, "PYTHONPATH": HERE}
    done = subprocess.run(
        [*command, "--report", str(directory / name), *more], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_answers_come_back_with_their_numbers() -> None:
    orders = io.StringIO("".join(json.dumps({"id": number}) + "\n" for number in range(50)))
    answers = io.StringIO()

    def ask(line: str) -> str:
        return json.dumps({"id": json.loads(line)["id"], "measured": {}}) + "\n"

    hunt.serve([ask, ask, ask], orders, answers)
    ids = sorted(json.loads(line)["id"] for line in answers.getvalue().splitlines())
    assert ids == list(range(50))


def test_a_worker_that_ends_is_an_answer() -> None:
    def ask(line: str) -> str:
        raise hunt.WorkerError("a worker ended with 9")

    answers = io.StringIO()
    hunt.serve([ask], io.StringIO('{"id": 7}\n'), answers)
    assert json.loads(answers.getvalue()) == {"id": 7, "error": "a worker ended with 9"}


def test_local_workers_speak_the_protocol(program: str, tmp_path: pathlib.Path) -> None:
    local = hunted(program, tmp_path, "local", [])
    start = (tmp_path / "local" / "hunt.jsonl").read_text(encoding="utf-8").splitlines()
    known = json.loads(start[2])
    orders = [{"start": json.loads(start[1])}]
    assert json.loads(local)["spent"]["experiments"] >= 40
    for number in range(4):
        point, repeat = known["experiment"]
        orders.append({"id": number, "point": point, "seed": repeat})
    command = [sys.executable, "-m", "isolane.hunt", "--isolane", program, "--local", "2", "--"]
    command += ["hunt", "--worker", "--target", "sim:cx6-200g-roce"]
    text = "".join(json.dumps(order) + "\n" for order in orders)
    done = subprocess.run(
        command, input=text, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": HERE}
    )
    assert done.returncode == 0, done.stderr
    ready, *answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert ready["workers"] == 2
    assert sorted(answer["id"] for answer in answers) == [0, 1, 2, 3]
    assert len({json.dumps(answer["measured"], sort_keys=True) for answer in answers}) == 1


def test_ray_finds_the_same_bytes(program: str, tmp_path: pathlib.Path) -> None:
    pytest.importorskip("ray", reason="the extra `ray` is not installed")
    local = hunted(program, tmp_path, "local", [])
    assert hunted(program, tmp_path, "ray", ["--executor", "ray"]) == local
