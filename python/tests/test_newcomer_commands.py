"""Hurried mistakes at `isolane edge`: answered before anything is started, with what is wrong and what to write."""

from __future__ import annotations

import pathlib

import pytest

from isolane import output
from isolane.pipeline import cli as pipeline
from isolane.planner import cli as planner

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
QUERY, TIERS = str(EXAMPLES / "traffic.yaml"), str(EXAMPLES / "tiers.yaml")
INFRA = ["--infra", TIERS]


@pytest.fixture(name="plan", scope="module")
def plan_fixture(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("plan") / "plan.json"
    assert planner.main(["plan", QUERY, *INFRA, "--quiet", "--out", str(file)]) == 0
    return str(file)


def answered(main: object, words: list[str], said: str, capsys: pytest.CaptureFixture[str], code: int = 2) -> None:
    assert main(words) == code  # type: ignore[operator]
    out, err = capsys.readouterr()
    assert said in err, err
    assert "Traceback" not in err and not out, out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([TIERS, *INFRA], "is a file of tiers, and a query is needed; tiers go with --infra"),
        ([QUERY, "--infra", QUERY], "is a query, and --infra needs a file of tiers and links"),
        ([QUERY, *INFRA, "--kappa", "inf"], "--kappa inf: must be at least 0 and have an end"),
        ([QUERY, *INFRA, "--running", "traffic"], "--running is for several queries"),
        ([QUERY, *INFRA, "--preempt"], "--preempt is for several queries"),
        ([QUERY, *INFRA, "--confidence", "0.9"], "--confidence is for --uncertain"),
        ([QUERY, *INFRA, "--prices", "--uncertain", "load=1..2"], "ask one at a time"),
        ([QUERY, str(EXAMPLES / "speech.yaml"), *INFRA, "--confidence", "0.9"], "--confidence is for one query"),
    ],
)
def test_mistakes_at_plan(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    answered(planner.main, ["plan", *words], said, capsys)


@pytest.mark.parametrize(
    ("main", "words", "said"),
    [
        (planner.main, ["plan", QUERY, "--infr", TIERS], "isolane: --infr: isolane edge plan has no such option; did you mean --infra?"),
        (planner.main, ["plan", QUERY, *INFRA, "--polcy", "x"], "isolane: --polcy: isolane edge plan has no such option (`"),
        (planner.main, ["plan", QUERY, *INFRA, "--seed", "x"], "isolane: --seed x: must be a whole number (`"),
        (pipeline.main, ["run"], "isolane: isolane edge run needs PLAN (`"),
        (pipeline.main, ["run", "p.json", "--tiers", "foo"], "isolane: --tiers foo: must be one of namespaces, local (`"),
        (pipeline.main, ["watch", "p.json", "--query", QUERY, "q.yaml"], "isolane: q.yaml: one word too many (`isolane edge watch --help` says more)"),
    ],
)
def test_mistakes_of_words(main: object, words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)  # type: ignore[operator]
    assert ended.value.code == 2
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == 1, err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "PLAN", "--move", "detector=mec@nan"], "nan s is outside the run"),
        (["run", "PLAN", "--move", "detector=mec@-1"], "-1 s is outside the run"),
        (["run", "PLAN", "--items", "30", "--set", "detector.model=small@3600"], "which sends its last item after 2 s"),
        (["run", "PLAN", "--records", "/proc/none/records.jsonl"], "cannot write /proc/none/records.jsonl"),
        (["watch", "PLAN", "--query", QUERY, "--period-s", "0"], "--period-s 0: must be from 0.1"),
        (["watch", "PLAN", "--query", QUERY, "--period-s", "-1"], "--period-s -1: must be from 0.1"),
        (["watch", "PLAN", "--query", QUERY, "--duration-s", "nan"], "--duration-s nan: must be from 0.1"),
        (["manifests", "PLAN", "--image", "a b"], "without spaces"),
        (["manifests", "PLAN", "--image", "x", "--namespace", "Not Valid"], "lower case letters, digits and dashes"),
        (["manifests", "PLAN", "--image", "x", "--memory", "lots"], "--memory 'lots': write an amount such as 512Mi"),
        (["manifests", "PLAN", "--image", "x", "--cpu", "-1"], "--cpu '-1': write an amount such as 2"),
        (["manifests", "PLAN", "--image", "x", "--cpu", "0.0"], "--cpu '0.0': write an amount such as 2"),
    ],
)
def test_mistakes_at_pipeline(words: list[str], said: str, plan: str, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    words = [plan if word == "PLAN" else word for word in words]
    if words[0] in ("run", "watch"):
        words += ["--tiers", "local"]
    code = 3 if "--records" in words else 2
    if "--cpu" in words and words[-1] == "-1":
        words = [*words[:-2], "--cpu=-1"]
    answered(pipeline.main, words, said, capsys, code)


def test_a_file_in_place_of_a_folder_is_named(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "file"
    file.write_text("", encoding="utf-8")
    with pytest.raises(OSError, match=f"cannot write {file}/plan.json: {file} is a file, and a directory is needed"):
        output.write(file / "plan.json", "")


def test_amounts_that_kubernetes_takes_are_taken(plan: str, capsys: pytest.CaptureFixture[str]) -> None:
    for cpu, memory in (("500m", "1.5Gi"), ("2", "1000000000"), (".5", "200M")):
        assert pipeline.main(["manifests", plan, "--image", "registry.example:5000/a/b@sha256:0f", "--cpu", cpu, "--memory", memory]) == 0
        assert f'"cpu": "{cpu}"' in capsys.readouterr().out


def test_a_lab_of_one_tier_is_refused_before_it_measures(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from isolane.pipeline import lab
    from isolane.planner.model import PlanError

    (tmp_path / "one.yaml").write_text("tiers:\n  - {name: a}\n", encoding="utf-8")
    monkeypatch.setattr(lab, "missing", lambda: "")
    arguments = pipeline.parser().parse_args(["lab", QUERY, "--infra", str(tmp_path / "one.yaml")])
    with pytest.raises(PlanError, match="one tier and no link"):
        import asyncio

        asyncio.run(lab.main(arguments))


OWN = """
query: numbers
accuracy_min: 0.5
latency_max_ms: 100
workload: "WORKLOAD"
operators:
  - {name: source, kind: source, implementation: "planner_operators:Numbers", gives: number}
  - {name: big, kind: filter, implementation: "planner_operators:Big", accepts: number}
  - {name: model, kind: model, implementation: "MODEL", accepts: number, gives: even}
"""


@pytest.mark.parametrize(
    ("workload", "model", "said"),
    [
        ("planner_operators:Data", "planner_operators:Nothing", "operator model: operator planner_operators:Nothing"),
        ("planner_operators:Data", "nothere.onnx", "operator model: operator isolane.queries.onnx:OnnxOperator: making it failed"),
        ("planner_operators:Data", "planner_operators:Garbage", "operator model returned"),
        ("planner_operators:Missing", "planner_operators:Even", "workload planner_operators:Missing: planner_operators has no Missing"),
    ],
)
def test_mistakes_in_an_own_query_that_is_profiled(
    workload: str, model: str, said: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from isolane.queries.__main__ import main

    file, output = tmp_path / "own.yaml", tmp_path / "profiles" / "own.json.gz"
    file.write_text(OWN.replace("WORKLOAD", workload).replace("MODEL", model), encoding="utf-8")
    answered(main, ["profile", str(file), "--output", str(output)], said, capsys)
    assert not output.exists(), "what was not measured leaves no file"


def test_a_profile_that_cannot_be_written_is_reported_before_it_is_measured(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from isolane.queries.__main__ import main

    file = tmp_path / "own.yaml"
    file.write_text(OWN.replace("WORKLOAD", "planner_operators:Data").replace("MODEL", "planner_operators:Even"), encoding="utf-8")
    answered(main, ["profile", str(file), "--output", "/proc/none/own.json.gz"], "/proc/none", capsys, 3)
    assert main(["profile", str(file), "--output", str(tmp_path / "a" / "b" / "own.json.gz")]) == 0
