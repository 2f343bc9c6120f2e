"""Models on an inference server: planned, run and checked like files."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable

import numpy as np
import pytest
from kserve_server import MODELS, InferenceServer
from pipeline_support import items, outcomes, run

from isolane import allowed
from isolane.pipeline.deployment import from_plan
from isolane.pipeline.item import Item, decode, encode
from isolane.pipeline.operator import OperatorError, load
from isolane.pipeline.runner import Options, Runner
from isolane.planner.formats import parse_query
from isolane.planner.live import made
from isolane.planner.model import PlanError
from isolane.queries.kserve import KServeOperator, Remote
from isolane.queries.onnx import ModelError

KSERVE = "isolane.queries.kserve:KServeOperator"


@pytest.fixture(autouse=True)
def named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user accepts the module."""
    monkeypatch.setattr(allowed, "_NAMED", {"isolane.queries.kserve", "pipeline_operators"})


@pytest.mark.parametrize("binary", [True, False])
def test_a_model_of_a_server_is_an_operator(binary: bool) -> None:
    image = np.random.default_rng(3).integers(0, 256, (6, 8, 3)).astype(np.uint8)
    with InferenceServer(binary) as server:
        operator = load(KSERVE, {"url": server.url, "model": "bright", "scale": 1 / 255, "keep": True})
        (item,) = operator.process(Item(7, 1.5, {"frame": image, "camera": "north"}))
        assert (item.id, item.time_s, sorted(item.payload)) == (7, 1.5, ["camera", "frame", "mean", "size"])
        assert np.allclose(item.payload["mean"], image.mean() / 255)  # type: ignore[arg-type]
        assert np.asarray(item.payload["size"]).tolist() == [1, 3, 6, 8]
        assert decode(encode(item)) == item


def test_the_knob_names_another_model_and_an_unknown_one_changes_nothing() -> None:
    with InferenceServer() as server:
        operator = KServeOperator(server.url, "double")
        for wrong, words in (("absent", "status 404.*unknown model"), ("../x", "must be a name of letters")):
            with pytest.raises(ModelError, match=words):
                operator.configure({"model": wrong})
        x = np.arange(4, dtype=np.float32)
        assert np.asarray(operator.process(Item(1, 0.0, {"x": x}))[0].payload["y"]).tolist() == [[0.0, 2.0, 4.0, 6.0]]
        operator.configure({"model": "bright"})
        assert "mean" in operator.process(Item(1, 0.0, {"frame": np.zeros((4, 4, 3), np.uint8)}))[0].payload


def test_a_file_names_it_only_where_the_user_accepts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It sends items to an address in the file."""
    monkeypatch.setattr(allowed, "_NAMED", set())
    with pytest.raises(OperatorError, match="add --allow-module isolane.queries.kserve if you trust that code"):
        load(KSERVE, {"url": "http://127.0.0.1:1", "model": "x"})


QUERY = """
query: remote
accuracy_min: 0.5
latency_max_ms: 100
operators:
  - {{name: camera, kind: source, implementation: "pipeline_operators:Camera", gives: frame}}
  - name: detector
    kind: model
    implementation: isolane.queries.kserve:KServeOperator
    options: {{url: "{url}", model: bright, timeout_s: 5, keep: true}}
    knobs: [{{name: model, values: [bright, double]}}]
    accepts: [frame]
"""


def test_a_query_file_gives_an_operator_its_options() -> None:
    with InferenceServer() as server:
        query = parse_query(QUERY.format(url=server.url), "q.yaml")
        assert query.operator("detector").options == {"url": server.url, "model": "bright", "timeout_s": 5, "keep": True}
        assert query.operator("camera").options == {}
        operator = made(query.operator("detector"))
        assert "mean" in operator.process(Item(1, 0.0, {"frame": np.zeros((4, 4, 3), np.uint8)}))[0].payload
    with pytest.raises(PlanError, match=r"q.yaml:10: operators\[1\].options: must be a mapping of options"):
        parse_query(QUERY.format(url="x").replace('{url: "x", model: bright, timeout_s: 5, keep: true}', "5"), "q.yaml")
    with pytest.raises(PlanError, match=r"options.url: .*must be a number or a text"):
        parse_query(QUERY.format(url="x").replace('"x"', "null"), "q.yaml")


def test_options_reach_the_process_of_an_operator() -> None:
    """From the plan's JSON to the request at the server."""
    with InferenceServer() as server:
        plan = {"query": "remote", "rate_items_per_s": 10, "objectives": {"latency_max_ms": 1e6, "accuracy_min": 0}}
        options = {"url": server.url, "model": "bright"}
        operator = {"name": "m", "implementation": KSERVE, "tier": "edge", "settings": {"model": "bright"}, "options": options}
        tiers = [{"name": "edge", "compute_factor": 1, "gpu_factor": 1}]
        deployment = from_plan({**plan, "operators": [operator], "infrastructure": {"tiers": tiers, "links": []}})

        async def body() -> None:
            async with Runner(deployment, None, Options(deadline_s=60.0, window=1000)) as runner:
                frames = [Item(one.id, 0.0, {"frame": np.asarray(one.payload["frame"])[:300].reshape(10, 10, 3)}) for one in items(5)]
                await runner.feed(frames, 100.0)
                assert outcomes(runner) == ["delivered"] * 5
                assert [np.asarray(one.outputs[0].payload["mean"]).tolist() for one in runner.records] == [[float(n)] for n in range(5)]

        run(body())
        assert server.requests.count("/v2/models/bright/infer") == 5


def test_a_connection_that_the_server_closed_is_opened_again() -> None:
    with InferenceServer() as server:
        remote = Remote(server.url, 5.0)
        port = remote._connection.sock.getsockname()[1]
        remote._connection.sock.shutdown(socket.SHUT_RDWR)
        assert remote.ask("GET", "/v2")["name"] == "stub"
        assert remote._connection.sock.getsockname()[1] != port


def lying(**changes: object) -> Callable[[bytes], bytes]:
    """Answers with one output that is changed so."""

    def answer(_: bytes) -> bytes:
        return json.dumps({"outputs": [{"name": "y", "datatype": "FP32", "shape": [2], "data": [1, 2], **changes}]}).encode()

    return answer


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda _: b"nonsense", "no JSON"),
        (lambda _: b"[" * 100_000, "no JSON"),
        (lambda _: b"[]", "no JSON object"),
        (lambda _: b"{}", "invalid output: 'outputs'"),
        (lambda _: b'{"outputs": []}', "lacks the output y"),
        (lying(shape=[3]), "invalid output"),
        (lying(shape=[-1]), "invalid output"),
        (lying(shape=[1 << 40, 1 << 40]), "invalid output"),
        (lying(shape=[1] * 9), "invalid output"),
        (lying(datatype="BYTES"), "invalid output"),
        (lying(data=[[1], [2, 3]]), "invalid output"),
        (lying(data=["a", "b"]), "invalid output"),
        (lying(parameters={"binary_data_size": 8}), "invalid output: 8 bytes"),
        (lying(parameters={"binary_data_size": -8}), "invalid output: -8 bytes"),
        (lying(parameters=5), "invalid output"),
    ],
)
def test_an_invalid_answer_is_an_error_of_the_model(answer: Callable[[bytes], bytes], words: str) -> None:
    with InferenceServer(answer=answer) as server:
        operator = KServeOperator(server.url, "double")
        with pytest.raises(ModelError, match=words):
            operator.process(Item(1, 0.0, {"x": np.zeros(4, np.float32)}))


def test_a_server_that_is_absent_silent_or_endless_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelError, match="server 127.0.0.1:1: GET /v2: .*refused"):
        KServeOperator("http://127.0.0.1:1", "x")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        with pytest.raises(ModelError, match="GET /v2: timed out"):
            KServeOperator(f"http://127.0.0.1:{silent.getsockname()[1]}", "x", timeout_s=0.05)
    monkeypatch.setattr("isolane.queries.kserve.MAX_BYTES", 1000)
    with socket.create_server(("127.0.0.1", 0)) as endless:

        def flood() -> None:
            taken, _ = endless.accept()
            taken.recv(65536)
            taken.sendall(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 100_000)

        threading.Thread(target=flood, daemon=True).start()
        with pytest.raises(ModelError, match="the answer has more than 1000 bytes"):
            KServeOperator(f"http://127.0.0.1:{endless.getsockname()[1]}", "x", timeout_s=5.0)


def test_the_time_of_an_answer_does_not_begin_anew_with_its_parts() -> None:
    with socket.create_server(("127.0.0.1", 0)) as endless:

        def hold_up() -> None:
            taken, _ = endless.accept()
            with taken, contextlib.suppress(OSError):
                taken.recv(65536)
                # Interim answers, then a whole one. Reading all of them takes more than the timeout.
                for _ in range(2_000):
                    taken.sendall(b"HTTP/1.1 100 Continue\r\n\r\n" * 100)
                taken.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")

        threading.Thread(target=hold_up, daemon=True).start()
        with pytest.raises(ModelError, match="GET /v2: timed out"):
            Remote(f"http://127.0.0.1:{endless.getsockname()[1]}", timeout_s=0.2)


@pytest.mark.parametrize("url", ["ftp://host", "http://", "http://host:x", "http://u:p@host", "host:80"])
def test_a_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ModelError, match="write http://HOST:PORT"):
        KServeOperator(url, "x")


def test_a_model_with_another_input_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODELS, "text", ({"name": "x", "datatype": "BYTES", "shape": [1]}, lambda x: {}))
    with InferenceServer() as server:
        with pytest.raises(ModelError, match="its input is BYTES; allowed: BOOL"):
            KServeOperator(server.url, "text")
        monkeypatch.setitem(MODELS, "two", ({"datatype": "FP32"}, lambda x: {}))
        with pytest.raises(ModelError, match="no single input with name, datatype and shape"):
            KServeOperator(server.url, "two")
