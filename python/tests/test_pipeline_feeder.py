"""The process that feeds a pipeline on a cluster from a camera: what it sends, what it says, and how it ends."""

from __future__ import annotations

import asyncio
import json
import os
import pathlib
import signal
import sys

import pytest
from pipeline_support import HERE, certificates, run, until, with_host
from rtsp_server import Camera
from test_pipeline_executors import CLUSTER
from test_pipeline_live import FORM, RATE, clip, traffic

from isolane.pipeline import feeder, kubernetes, live
from isolane.pipeline.feeder import Feeder, Settings
from isolane.pipeline.host import Host
from isolane.pipeline.host import Settings as HostSettings
from isolane.pipeline.messages import request, request_json
from isolane.planner.model import PlanError

SAMPLER = "isolane.queries.traffic.operators:Sampler"


def test_a_camera_feeds_an_operator_over_tls_and_says_how_it_is(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    ours, next_one = certificates(tmp_path / "ours", "a", "b")
    path = clip(tmp_path / "clip.ts", 300)

    async def body(host: Host, addresses: list[str]) -> None:
        async with Camera(path) as camera:
            settings = Settings(("camera", addresses[0]), RATE, 60.0, 1000, ("http://127.0.0.1:0",), next_one)
            fed = Feeder(settings, live.Stream(live.parse(camera.address), FORM, RATE))
            (status,) = await fed.start()
            running = asyncio.ensure_future(fed.run())
            await until(lambda: fed.counts["delivered"] >= 5, "results come")
            health = await request("GET", status, "/healthz")
            assert (health.status, health.json()["state"]) == (200, "ready")
            text = bytes((await request("GET", status, "/metrics")).body).decode()
            assert 'isolane_feeder_delivered{source="rtsp://127.0.0.1' in text
            assert (await request("PUT", status, "/config")).status == 404
            fed.stop()
            assert await running == 0
            counts = fed.metrics()
            assert counts["sent"] == counts["delivered"] + counts["filtered"] and counts["on_their_way"] == 0
            assert host.counts.received == counts["sent"]

    with_host(HostSettings("camera", SAMPLER, ("https://127.0.0.1:0",), knobs={"every": 3, "resize": 1.0}, identity=ours), body)
    first = json.loads(capsys.readouterr().out.splitlines()[0])
    assert (first["item"], first["outcome"]) == (0, "delivered")
    assert first["outputs"][0]["frame"] == {"dtype": "uint8", "shape": [224, 384, 3]} and first["outputs"][0]["holds"] == 3.0


def test_a_source_that_ends_ends_the_feeder_with_an_error(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "PAUSE_S", 0.01)
    monkeypatch.setattr(live, "LOST_S", 0.1)
    path = clip(tmp_path / "clip.ts", 300, 10)

    async def body(host: Host, addresses: list[str]) -> None:
        async with Camera(path, loops=1) as camera:
            fed = Feeder(Settings(("camera", addresses[0]), RATE, 60.0, 1000), live.Stream(live.parse(camera.address), FORM, RATE))
            running = asyncio.ensure_future(fed.run())
            await until(lambda: fed.counts["sent"] >= 10, "the clip was sent")
        assert await running == 1
        counts = fed.metrics()
        assert counts["breaks"] >= 1 and counts["sent"] == counts["delivered"] + counts["filtered"]

    with_host(HostSettings("camera", SAMPLER, (f"unix:{tmp_path}/data",)), body)


def test_items_beyond_the_window_are_refused(tmp_path: pathlib.Path) -> None:
    """No process listens at the first operator's address."""
    path = clip(tmp_path / "clip.ts", 300)

    async def body() -> None:
        fed = Feeder(Settings(("camera", f"unix:{tmp_path}/nobody"), RATE, 2.0, 4), live.Stream(live.parse(f"file:{path}"), FORM, RATE))
        running = asyncio.ensure_future(fed.run())
        await until(lambda: fed.counts["refused"] >= 3, "the window is full")
        fed.stop()
        assert await running == 0
        counts = fed.metrics()
        assert counts["sent"] == counts["refused"] + counts["failed"]

    run(body())


def test_the_program_ends_after_a_signal_and_hides_the_password(tmp_path: pathlib.Path) -> None:
    path = clip(tmp_path / "clip.ts", 300)

    async def body(host: Host, addresses: list[str]) -> None:
        async with Camera(path) as camera:
            secret = camera.address.replace("rtsp://", "rtsp://me:secret@")
            words = ["-m", "isolane.pipeline.feeder", "--workload", "isolane.queries.traffic.query:Day", "--to", f"camera={addresses[0]}"]
            words += ["--rate", str(RATE), "--deadline-s", "60", "--status", f"unix:{tmp_path}/status"]
            environment = {**os.environ, live.SOURCE: secret, "PYTHONPATH": os.pathsep.join([HERE, *filter(None, sys.path)])}
            pipe = asyncio.subprocess.PIPE
            process = await asyncio.create_subprocess_exec(sys.executable, *words, env=environment, stdout=pipe, stderr=pipe)
            assert process.stdout is not None
            line = await process.stdout.readline()
            assert json.loads(line)["outcome"] == "delivered"
            assert (await request_json("GET", f"unix:{tmp_path}/status", "/metrics"))["sent"] > 0
            camera.hang_up()
            await until(lambda: camera.clients > 1, "it comes again")
            process.send_signal(signal.SIGTERM)
            said, errors = await process.communicate()
            assert process.returncode == 0, errors
            assert b"opened again" in errors and b"secret" not in said + errors

    with_host(HostSettings("camera", SAMPLER, (f"unix:{tmp_path}/data",)), body)


def test_manifests_of_a_camera_are_valid_and_its_address_is_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed (extra `test`)")
    monkeypatch.setattr(feeder.sys, "exit", lambda status: None)
    deployment = traffic()
    with pytest.raises(PlanError, match="names no workload"):
        kubernetes.objects(deployment, kubernetes.Cluster("i", camera="north"))
    object.__setattr__(deployment, "workload", "isolane.queries.traffic.query:Day")
    found = kubernetes.objects(deployment, kubernetes.Cluster(CLUSTER.image, CLUSTER.namespace, camera="north"))
    for one in found:
        validate.validate(one, validate.latest_version(), strict=True)
    made = found[-2]
    (container,) = made["spec"]["template"]["spec"]["containers"]
    source = next(one for one in container["env"] if one["name"] == live.SOURCE)
    assert source["valueFrom"]["secretKeyRef"] == {"name": "pipeline-traffic-north-source", "key": "address"}
    assert made["metadata"]["name"] == "traffic-north-feeder" and found[0]["metadata"]["name"] == "traffic-north-camera"
    labels = made["spec"]["template"]["metadata"]["labels"]
    assert found[-1]["spec"]["podSelector"]["matchLabels"].items() <= labels.items()

    seen = []

    async def serve(settings: Settings, stream: live.Stream) -> int:
        seen.append((settings, stream))
        return 0

    monkeypatch.setattr(feeder, "serve", serve)
    monkeypatch.setattr(feeder.Identity, "load", lambda folder: None)
    monkeypatch.setattr(feeder.sys, "argv", container["command"][2:])
    monkeypatch.setenv(live.SOURCE, "rtsp://me:secret@cam/1\n")
    feeder.main()
    ((settings, stream),) = seen
    assert settings.target == ("camera", "https://traffic-north-camera.live.svc:8443") and settings.rate_per_s == RATE
    assert (stream.form, stream.address.target) == (FORM, "rtsp://me:secret@cam/1")


def test_a_camera_needs_a_name_that_kubernetes_allows() -> None:
    with pytest.raises(PlanError, match="--camera 'North!': must be lower case letters"):
        kubernetes.check_cluster(kubernetes.Cluster("i", camera="North!"))
