"""Manifests and Ray Serve: the same deployment for other machines."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import pathlib
import socket
import sys
from typing import Any

import pytest
import yaml

from isolane.pipeline import kubernetes, link, rayserve
from isolane.pipeline.item import decode_batch, encode_batch
from isolane.planner.model import PlanError

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from pipeline_support import HERE, items, pipeline, stage  # noqa: E402

CLUSTER = kubernetes.Cluster("registry.example/isolane:1", "live")


def documents() -> list[dict[str, Any]]:
    deployment = pipeline(stage("a_filter", "Even", knobs={"mark": 1}), stage("Model", "Pass", "cloud"))
    return list(yaml.safe_load_all(kubernetes.manifests(deployment, CLUSTER)))


def test_each_operator_is_a_service_and_a_deployment_on_its_tier() -> None:
    found = documents()
    assert [(one["kind"], one["metadata"]["name"]) for one in found] == [
        ("Service", "test-a-filter"),
        ("Deployment", "test-a-filter"),
        ("Service", "test-model"),
        ("Deployment", "test-model"),
        ("NetworkPolicy", "pipeline-test"),
    ]
    first, second = (found[1]["spec"], found[3]["spec"])
    assert first["template"]["spec"]["nodeSelector"] == {"isolane.io/tier": "edge"}
    assert second["template"]["spec"]["nodeSelector"] == {"isolane.io/tier": "cloud"}
    for spec, service in ((first, found[0]), (second, found[2])):
        labels = spec["template"]["metadata"]["labels"]
        assert spec["selector"]["matchLabels"].items() <= labels.items()
        assert service["spec"]["selector"].items() <= labels.items()
        assert spec["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}


def test_manifests_are_what_the_published_schema_allows() -> None:
    """Against the JSON schemas of Kubernetes' own API, strictly: a key that is not there is an error."""
    validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed (extra `test`)")
    version = validate.latest_version()
    gpu = dataclasses.replace(stage("model", "Pass", "cloud"), gpu=True)
    found = kubernetes.objects(pipeline(stage("a_filter", "Even", knobs={"mark": 1}), gpu), CLUSTER)
    assert [one["kind"] for one in found] == ["Service", "Deployment"] * 2 + ["NetworkPolicy"]
    for one in found:
        validate.validate(one, version, strict=True)
    found[1]["spec"]["template"]["spec"]["containers"][0]["livenessProb"] = {}
    with pytest.raises(validate.ValidationError, match="livenessProb"):
        validate.validate(found[1], version, strict=True)


def test_a_pod_reads_its_key_and_can_do_little_else() -> None:
    """The shipped image runs as a user who is not root, and a Secret's files belong to root: the group may read them."""
    for document in (documents()[1], documents()[3]):
        pod = document["spec"]["template"]["spec"]
        assert pod["securityContext"]["fsGroup"] == 65532 and pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        (container,) = pod["containers"]
        assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def test_the_command_is_one_that_the_host_understands(monkeypatch: pytest.MonkeyPatch) -> None:
    """The words of the manifest, given to the program that they start."""
    from isolane.pipeline import host

    seen: list[host.Settings] = []

    async def serve(settings: host.Settings) -> int:
        seen.append(settings)
        return 0

    monkeypatch.setattr(host, "serve", serve)
    monkeypatch.setattr(host.Identity, "load", lambda folder: None)
    monkeypatch.setattr(host.os, "_exit", lambda status: None)
    monkeypatch.setattr(host.sys, "setswitchinterval", lambda seconds: None)
    for document in (documents()[1], documents()[3]):
        command = document["spec"]["template"]["spec"]["containers"][0]["command"]
        assert command[:3] == ["python", "-m", "isolane.pipeline.host"]
        monkeypatch.setattr(host.sys, "argv", command[2:])
        host.main()
    assert seen[0].downstream == ("Model", "https://test-model.live.svc:8443") and seen[1].downstream is None
    assert seen[0].control == ("unix:/run/isolane-operator/control",) and seen[0].status == ("http://0.0.0.0:8080",)
    assert seen[0].knobs == {"mark": 1} and seen[1].tier == "cloud"


def test_names_that_kubernetes_does_not_allow_are_refused() -> None:
    with pytest.raises(PlanError, match="no name for Kubernetes"):
        kubernetes.object_name("q", "x" * 60)
    with pytest.raises(PlanError, match="differ only in what Kubernetes does not allow"):
        kubernetes.objects(pipeline(stage("a_b", "Pass"), stage("a-b", "Pass")), CLUSTER)
    with pytest.raises(PlanError, match="--image is empty"):
        kubernetes.objects(pipeline(stage("a", "Pass")), kubernetes.Cluster(""))


def test_a_ray_step_delivers_filters_and_fails_like_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(HERE)
    step = rayserve.Step("even", "pipeline_operators:Even", {}, "edge")
    step.reconfigure({"mark": 4})
    outcome, data, hop = step.process(encode_batch(items(1)))
    assert outcome == link.DELIVERED and decode_batch(data)[0].payload["mark"] == 4.0 and hop["operator"] == "even"
    assert step.process(encode_batch(items(2)[1:]))[0] == link.FILTERED
    assert step.process(b"nonsense")[0] == link.FAILED
    assert "mark = -1 is negative" in step.configure({"mark": -1}) and step.configure({"mark": 2}) == ""


def test_a_pipeline_runs_on_ray_serve() -> None:
    ray = pytest.importorskip("ray", reason="Ray Serve is not installed (extra `serve`)")
    serve = pytest.importorskip("ray.serve", reason="Ray Serve is not installed (extra `serve`)")
    import urllib.error
    import urllib.request

    deployment = pipeline(stage("even", "Even"), stage("last", "Pass", "cloud"))
    resources = {f"tier:{place.name}": 1.0 for place in deployment.places}
    ray.init(num_cpus=2, resources=resources, include_dashboard=False, runtime_env={"env_vars": {"PYTHONPATH": ":".join([HERE, *sys.path])}})
    try:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        serve.start(http_options={"host": "127.0.0.1", "port": port})
        digest = hashlib.sha256(b"token").hexdigest()
        serve.run(rayserve.application(deployment, digest=digest), name="test", route_prefix="/test")
        address = f"http://127.0.0.1:{port}/test"
        change = json.dumps({"operator": "last", "knobs": {"mark": 9}}).encode()
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(urllib.request.Request(f"{address}/config", change, method="PUT"), timeout=30)
        right = {"authorization": "Bearer token"}
        urllib.request.urlopen(urllib.request.Request(f"{address}/config", change, right, method="PUT"), timeout=30).read()
        outcomes = []
        for item in items(4):
            with urllib.request.urlopen(urllib.request.Request(f"{address}/process", encode_batch([item])), timeout=30) as answer:
                outcomes.append(answer.headers["x-isolane-outcome"])
                body = answer.read()
                if outcomes[-1] == "delivered":
                    assert decode_batch(body)[0].payload["mark"] == 9.0
        assert outcomes == ["delivered", "filtered"] * 2
    finally:
        serve.shutdown()
        ray.shutdown()
