"""A file names code; only accepted code is imported and called.

Goal: a plan or query from another author starts no program. Method: files that name code outside the package, whose effect would
be a file in a folder of the test; entry points of a distribution that the test writes.
"""

from __future__ import annotations

import json
import pathlib
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from isolane import allowed
from isolane.pipeline import cli, kubernetes
from isolane.pipeline.deployment import Deployment, Place, Stage
from isolane.pipeline.operator import OperatorError, load
from isolane.planner import cli as planner_cli
from isolane.queries.__main__ import main as queries

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """The modules that a test names are not those of the next one."""
    before = set(allowed.allowed())
    yield
    allowed._NAMED.clear()
    allowed._NAMED.update(before)
    allowed._declared.cache_clear()


def plan(tmp_path: pathlib.Path, implementation: str, workload: str, **options: Any) -> pathlib.Path:
    """A plan whose only operator is this one."""
    operator = {"name": "camera", "implementation": implementation, "tier": "edge", "settings": {}, "options": options}
    tier = {"name": "edge", "order": 0, "compute_factor": 1.0, "gpu_factor": 1.0}
    document = {
        "version": 1,
        "query": "own",
        "operators": [operator],
        "infrastructure": {"tiers": [tier], "links": []},
        "objectives": {"latency_max_ms": 100.0, "accuracy_min": 0.5},
        "rate_items_per_s": 10.0,
        "workload": workload,
    }
    source = json.loads((tmp_path / "whole.json").read_text()) if (tmp_path / "whole.json").exists() else whole(tmp_path)
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({**source, **document}), encoding="utf-8")
    return path


def whole(tmp_path: pathlib.Path) -> dict[str, Any]:
    """A plan with every field, from the example."""
    words = ["plan", str(EXAMPLES / "traffic.yaml"), "--infra", str(EXAMPLES / "tiers.yaml"), "--quiet"]
    assert planner_cli.main([*words, "--out", str(tmp_path / "whole.json")]) == 0
    found: dict[str, Any] = json.loads((tmp_path / "whole.json").read_text())
    return found


DAY = "isolane.queries.traffic.query:Day"


@pytest.mark.parametrize("command", ["run", "watch", "manifests", "serve"])
def test_a_plan_that_names_other_code_runs_nothing_and_says_what_it_would_run(
    command: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mark = tmp_path / "mark"
    file = plan(tmp_path, "subprocess:Popen", DAY, args=["touch", str(mark)])
    more = {
        "run": ["--tiers", "local", "--items", "1"],
        "watch": ["--query", str(EXAMPLES / "traffic.yaml")],
        "manifests": ["--image", "a/b:1"],
        "serve": [],
    }
    capsys.readouterr()
    assert cli.main([command, str(file), *more[command]]) == cli.BAD_INPUT
    out, err = capsys.readouterr()
    assert out == ""
    assert "operator camera: subprocess:Popen" in err and "add --allow-module subprocess" in err
    assert not mark.exists()


def test_a_named_module_still_has_to_hold_an_operator(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    mark = tmp_path / "mark"
    file = plan(tmp_path, "subprocess:Popen", DAY, args=["touch", str(mark)])
    words = ["run", str(file), "--tiers", "local", "--items", "1", "--allow-module", "subprocess"]
    assert cli.main(words) == cli.BAD_INPUT
    assert "subprocess:Popen: has no configure() and no process()" in capsys.readouterr().err
    assert not mark.exists()


def test_a_workload_that_is_other_code_is_refused_before_it_is_made(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = plan(tmp_path, "isolane.queries.traffic.operators:Sampler", "antigravity:fly")
    assert cli.main(["run", str(file), "--tiers", "local", "--items", "1"]) == cli.BAD_INPUT
    assert "workload: antigravity:fly" in capsys.readouterr().err
    assert "antigravity" not in sys.modules


def test_a_query_that_names_other_code_is_neither_launched_nor_profiled(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (EXAMPLES / "traffic.yaml").read_text(encoding="utf-8")
    for wrong in (
        text.replace("isolane.queries.traffic.operators:Sampler", "subprocess:Popen"),
        text.replace(DAY, "subprocess:Popen"),
        text + "utility: os:system\n",
    ):
        file = tmp_path / "query.yaml"
        file.write_text(wrong, encoding="utf-8")
        assert planner_cli.main(["plan", str(file), "--infra", str(EXAMPLES / "tiers.yaml"), "--live"]) == 2
        assert "nothing was run" in capsys.readouterr().err
        assert queries(["profile", str(file), "--output", str(tmp_path / "profile.json.gz")]) == 2
        assert "nothing was run" in capsys.readouterr().err
    assert planner_cli.main(["plan", str(file), "--infra", str(EXAMPLES / "tiers.yaml")]) == 2
    assert "utility os:system: is not code of isolane" in capsys.readouterr().err


def test_a_utility_must_be_a_function_in_python(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", str(EXAMPLES / "traffic.yaml"), "--infra", str(EXAMPLES / "tiers.yaml"), "--utility", "os:system"]
    assert planner_cli.main(words) == 2
    assert "os:system: is no function written in Python" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("isolane.pipeline.rayserve:Step", "is not code of isolane that"),
        ("isolane.queries.training.__main__:main", "is not code of isolane that"),
        ("isolane.queries.traffic.operators:np", "is no class"),
        ("isolane.queries.traffic.operators:Nothing", "has no Nothing"),
        ("isolane.queries.traffic.operators:Sampler.process", "is no name of code"),
        ("../evil:Operator", "is no name of code"),
        ("", "is no name of code"),
    ],
)
def test_not_every_module_of_the_package_is_an_operators_module(name: str, words: str) -> None:
    with pytest.raises(OperatorError, match=words.replace("is not code of isolane that", "is not code of isolane")):
        load(name)


def test_options_are_compared_with_the_constructor_before_the_call() -> None:
    with pytest.raises(OperatorError, match="its options do not fit: got an unexpected keyword argument 'shell'"):
        load("isolane.queries.traffic.operators:Sampler", {"shell": True})
    with pytest.raises(OperatorError, match="option model = 7: must be str"):
        load("isolane.queries.onnx:OnnxOperator", {"model": 7})


def test_an_installed_entry_point_is_accepted_and_one_in_the_current_folder_is_not(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "their_operators.py").write_text(
        "class Same:\n    def configure(self, knobs): pass\n    def process(self, item): return [item]\n", encoding="utf-8"
    )
    folder = tmp_path / "theirs-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n", encoding="utf-8")
    (folder / "entry_points.txt").write_text("[isolane.operators]\nsame = their_operators:Same\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    allowed._declared.cache_clear()
    with pytest.raises(OperatorError, match="add --allow-module their_operators"):
        load("their_operators:Same")
    monkeypatch.chdir(tmp_path.parent)
    allowed._declared.cache_clear()
    assert type(load("their_operators:Same")).__name__ == "Same"


def test_manifests_carry_the_modules_that_their_user_named() -> None:
    allowed.allow(["shop.filters"])
    deployment = Deployment("own", (Stage("bright", "shop.filters:Bright", "edge"),), (Place("edge"),), ())
    found = kubernetes.objects(deployment, kubernetes.Cluster("a/b:1"))
    command = next(one for one in found if one["kind"] == "Deployment")["spec"]["template"]["spec"]["containers"][0]["command"]
    assert command[command.index("--allow-module") :].count("shop.filters") == 1


BELOW_ZERO = b'{"accuracy": 1, "results": {"a": [-1, 2]}, "score": [1, 1]}'


def test_a_launch_in_another_process_answers_in_json_of_bounded_size() -> None:
    from isolane.planner.live import ANSWER_BYTES, Ran, elsewhere, read_answer
    from isolane.planner.model import OperatorResult, PlanError

    found = Ran(1.0, {"a": OperatorResult(1.0, 2.0, core_ms=0.5)}, (0.5, 0.25))
    assert elsewhere(lambda: found, "query own", float("inf")) == found
    for said in (b"\x80\x04.", b"[" * 100_000, b'{"accuracy": 1e999}', b"null", BELOW_ZERO, b" " * (ANSWER_BYTES + 1)):
        with pytest.raises(PlanError, match="query own: its process sent no result of a launch"):
            read_answer(said, "query own")
    with pytest.raises(PlanError) as raised:
        read_answer(b'{"error": "' + b"a\\nb " * 1_000 + b'"}', "query own")
    assert "\n" not in str(raised.value) and len(str(raised.value)) < 1_001


def test_an_answer_that_lacks_an_operator_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from isolane.planner.claims import toy

    from isolane.planner.live import Live, Ran, read_answer
    from isolane.planner.model import PlanError

    with pytest.raises(PlanError, match="sent no result"):
        read_answer(b'{"spent": false}', "query own")
    launcher = Live.__new__(Live)
    launcher.query, launcher.launches = toy.query(0.6, 600.0), 0
    monkeypatch.setattr(launcher, "bounded", lambda work: Ran(1.0, {}, (1.0, 1.0)))
    with pytest.raises(PlanError, match="measured other operators: none"):
        launcher.launch(toy.order("GV"), (0,))
