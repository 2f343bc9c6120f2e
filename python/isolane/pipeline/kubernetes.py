"""A deployment as Kubernetes manifests: tiers are node labels, operators are Deployments with a Service each.

Problem: the same operators and the same contract on a cluster. Method: `manifests` writes what `kubectl apply -f -` takes. An
operator runs `python -m isolane.pipeline.host` on nodes labelled `isolane.io/tier: <tier>`, is ready when `/healthz` reports it,
gets a request to drain before it ends, and has a Service, whose name its upstream uses. Items travel over TLS with certificates
of a Secret; a NetworkPolicy lets only the pipeline's own pods reach that port. Health and metrics have a port of their own that
takes nothing; knobs and drains have a Unix socket in the pod. A new plan's manifests, applied over the old ones, move operators:
the new pod is ready before the old one drains (`maxUnavailable: 0`), and upstreams send what the old one did not answer to the
new one. Knobs change without new pods by PUT /config on that socket.

With `Cluster.camera` a Deployment more runs `isolane.pipeline.feeder` on the first operator's tier. It reads the camera whose address is in a
Secret. An operator with a memory knows one camera, so each camera has a set of all objects, which carry its name.

Units: `resources` in cores and bytes as Kubernetes spells them. Limits: one replica per operator, since items must stay in
order; bandwidth between tiers is what the cluster has; a GPU operator requests `nvidia.com/gpu`. YAML is written as JSON, which
is part of it, one document per line block.
"""

from __future__ import annotations

import dataclasses
import json
import re
from dataclasses import dataclass
from typing import Any

from isolane import allowed
from isolane.pipeline.deployment import Deployment, Stage
from isolane.pipeline.live import SOURCE
from isolane.planner.model import PlanError

#: Where items come in, over TLS; and where health and metrics are read.
PORT, STATUS_PORT = 8443, 8080
#: The Secret's files in the pod (`isolane rdma agent init`), and the folder of the control socket.
IDENTITY, CONTROL = "/etc/isolane/identity", "/run/isolane-operator"
#: The user of the shipped image, as whose group pods read the Secret: a file of a Secret belongs to root.
GROUP = 65532
#: Nodes carry this label; its value is the tier.
TIER_LABEL = "isolane.io/tier"
#: After SIGTERM an operator answers what it has; the same as its own limit.
DRAIN_S = 30
_IMAGE = re.compile(r"[A-Za-z0-9][\w.:/@-]*", re.ASCII)
_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
#: As Kubernetes spells amounts: a number, and a unit from milli to exa in powers of 10 or of 2.
_QUANTITY = re.compile(r"(\d+(\.\d+)?|\.\d+)(m|k|[KMGTPE]i|[MGTPE])?", re.ASCII)
_CAMERA = re.compile(r"[a-z0-9]([a-z0-9-]{0,18}[a-z0-9])?")
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,45}[a-z0-9])?")


@dataclass(frozen=True)
class Cluster:
    """What the plan does not say: the image that has the operators, the namespace, and resources per operator. With a `camera`
    all objects carry its name, and one more Deployment feeds the operators from it."""

    image: str
    namespace: str = "default"
    cpu: str = "1"
    memory: str = "1Gi"
    camera: str = ""


def manifests(deployment: Deployment, cluster: Cluster) -> str:
    """All objects, as text for `kubectl apply -f -`."""
    return "---\n" + "---\n".join(json.dumps(one, indent=2) + "\n" for one in objects(deployment, cluster))


def objects(deployment: Deployment, cluster: Cluster) -> list[dict[str, Any]]:
    """All objects: a Service and a Deployment per operator, in the pipeline's order, and a NetworkPolicy."""
    check_cluster(cluster)
    if cluster.camera:
        deployment = dataclasses.replace(deployment, query=f"{deployment.query}-{cluster.camera}")
    names = [object_name(deployment.query, stage.name) for stage in deployment.stages]
    if len({*names, object_name(deployment.query, "feeder")}) <= len(names):
        raise PlanError(f"plan of {deployment.query}: operator names differ only in what Kubernetes does not allow, or one is `feeder`: {names}")
    found: list[dict[str, Any]] = []
    for index, stage in enumerate(deployment.stages):
        after = None
        if index + 1 < len(names):
            address = f"https://{names[index + 1]}.{cluster.namespace}.svc:{PORT}"
            after = f"{deployment.stages[index + 1].name}={address}"
        meta = {"name": names[index], "namespace": cluster.namespace, "labels": labels(deployment.query, stage)}
        found.append(_service(meta))
        found.append(_deployment(meta, deployment, stage, after, cluster))
    if cluster.camera:
        found.append(_feeder(deployment, names[0], cluster))
    found.append(_policy(deployment, cluster))
    return found


def secret_name(query: str) -> str:
    """The Secret with `authority.pem`, `certificate.pem` and `key.pem`."""
    return f"{object_name('pipeline', query)}-identity"


def source_name(query: str) -> str:
    """The Secret whose key `address` is the camera's."""
    return f"{object_name('pipeline', query)}-source"


def _feeder(deployment: Deployment, first: str, cluster: Cluster) -> dict[str, Any]:
    """The process that reads the camera, on the first operator's tier. Its results are lines of its log."""
    stage = deployment.stages[0]
    if not deployment.workload:
        raise PlanError(f"plan of {deployment.query}: it names no workload, which says the size of frames; plan a query with `workload`")
    words = ["python", "-m", "isolane.pipeline.feeder", "--workload", deployment.workload]
    words += [word for module in allowed.allowed() for word in ("--allow-module", module)]
    words += ["--to", f"{stage.name}=https://{first}.{cluster.namespace}.svc:{PORT}", "--rate", str(deployment.rate_items_per_s)]
    words += ["--identity", IDENTITY, "--status", f"http://0.0.0.0:{STATUS_PORT}"]
    feeder = Stage("feeder", "", stage.tier)
    meta = {
        "name": object_name(deployment.query, "feeder"),
        "namespace": cluster.namespace,
        "labels": labels(deployment.query, feeder),
    }
    made = _deployment(meta, deployment, feeder, None, cluster)
    # Two feeders of one camera would send each frame twice.
    made["spec"]["strategy"] = {"type": "Recreate"}
    pod = made["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    secret = {"name": source_name(deployment.query), "key": "address"}
    container.update(name="feeder", command=words, env=[*container["env"], {"name": SOURCE, "valueFrom": {"secretKeyRef": secret}}])
    container["ports"] = [port for port in container["ports"] if port["name"] == "status"]
    container["volumeMounts"] = [one for one in container["volumeMounts"] if one["name"] == "identity"]
    pod["volumes"] = [one for one in pod["volumes"] if one["name"] == "identity"]
    return made


def _policy(deployment: Deployment, cluster: Cluster) -> dict[str, Any]:
    """Items come from the pipeline's own pods; any client may read health and metrics."""
    part = {"app.kubernetes.io/part-of": object_name("pipeline", deployment.query)}
    ingress = [
        {"from": [{"podSelector": {"matchLabels": part}}], "ports": [{"port": PORT, "protocol": "TCP"}]},
        {"ports": [{"port": STATUS_PORT, "protocol": "TCP"}]},
    ]
    spec = {"podSelector": {"matchLabels": part}, "policyTypes": ["Ingress"], "ingress": ingress}
    meta = {"name": object_name("pipeline", deployment.query), "namespace": cluster.namespace, "labels": part}
    return {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": meta, "spec": spec}


def check_cluster(cluster: Cluster) -> None:
    """Raises what the cluster would refuse, or take and never start."""
    if not cluster.image:
        raise PlanError("--image is empty; name the image that has Python, isolane and the operators")
    if not _IMAGE.fullmatch(cluster.image):
        raise PlanError(f"--image {cluster.image!r}: write it like registry.example/isolane:1, without spaces")
    if not _NAMESPACE.fullmatch(cluster.namespace):
        raise PlanError(f"--namespace {cluster.namespace!r}: must be lower case letters, digits and dashes, 63 at most")
    if cluster.camera and not _CAMERA.fullmatch(cluster.camera):
        raise PlanError(f"--camera {cluster.camera!r}: must be lower case letters, digits and dashes, 20 at most")
    for option, value, example in (("--cpu", cluster.cpu, "2, 0.5 or 500m"), ("--memory", cluster.memory, "512Mi or 1Gi")):
        if not _QUANTITY.fullmatch(value) or not re.search("[1-9]", value):
            raise PlanError(f"{option} {value!r}: write an amount such as {example}")


def object_name(query: str, operator: str) -> str:
    """A name that Kubernetes accepts: lower case, digits and dashes, 47 characters at most."""
    name = re.sub(r"[^a-z0-9]+", "-", f"{query}-{operator}".lower()).strip("-")
    if not _NAME.fullmatch(name):
        raise PlanError(f"operator {operator} of {query}: {name!r} is no name for Kubernetes; shorten it to letters and digits")
    return name


def labels(query: str, stage: Stage) -> dict[str, str]:
    """What selects an operator's pods."""
    return {
        "app.kubernetes.io/name": object_name(query, stage.name),
        "app.kubernetes.io/part-of": object_name("pipeline", query),
        "app.kubernetes.io/managed-by": "isolane",
    }


def _service(meta: dict[str, Any]) -> dict[str, Any]:
    selector = {"app.kubernetes.io/name": meta["labels"]["app.kubernetes.io/name"]}
    ports = [{"name": "items", "port": PORT, "targetPort": PORT, "protocol": "TCP"}]
    return {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {"selector": selector, "ports": ports}}


def _deployment(
    meta: dict[str, Any], deployment: Deployment, stage: Stage, after: str | None, cluster: Cluster
) -> dict[str, Any]:
    words = ["python", "-m", "isolane.pipeline.host", "--name", stage.name, "--implementation", stage.implementation]
    words += [word for module in allowed.allowed() for word in ("--allow-module", module)]
    words += ["--listen", f"https://0.0.0.0:{PORT}", "--identity", IDENTITY, "--tier", stage.tier]
    words += ["--status", f"http://0.0.0.0:{STATUS_PORT}", "--control", f"unix:{CONTROL}/control"]
    words += ["--knobs", json.dumps(stage.knobs, sort_keys=True), "--options", json.dumps(stage.options, sort_keys=True)]
    if after is not None:
        words += ["--downstream", after]
    resources: dict[str, Any] = {"requests": {"cpu": cluster.cpu, "memory": cluster.memory}, "limits": {}}
    resources["limits"]["memory"] = cluster.memory
    if stage.gpu:
        resources["limits"]["nvidia.com/gpu"] = 1
    probe = {"httpGet": {"path": "/healthz", "port": STATUS_PORT}}
    container = {
        "name": "operator",
        "image": cluster.image,
        "command": words,
        "env": [{"name": name, "value": "1"} for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")],
        "ports": [
            {"name": "items", "containerPort": PORT, "protocol": "TCP"},
            {"name": "status", "containerPort": STATUS_PORT, "protocol": "TCP"},
        ],
        "startupProbe": {**probe, "periodSeconds": 1, "failureThreshold": 120},
        "readinessProbe": {**probe, "periodSeconds": 1, "failureThreshold": 1},
        "livenessProbe": {"tcpSocket": {"port": STATUS_PORT}, "periodSeconds": 2, "failureThreshold": 3},
        "resources": resources,
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [
            {"name": "identity", "mountPath": IDENTITY, "readOnly": True},
            {"name": "control", "mountPath": CONTROL},
        ],
    }
    pod = {
        "nodeSelector": {TIER_LABEL: stage.tier},
        "terminationGracePeriodSeconds": DRAIN_S + 5,
        "automountServiceAccountToken": False,
        "securityContext": {"fsGroup": GROUP, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
        "volumes": [
            {"name": "identity", "secret": {"secretName": secret_name(deployment.query), "defaultMode": 0o400}},
            {"name": "control", "emptyDir": {}},
        ],
    }
    selector = {"app.kubernetes.io/name": meta["labels"]["app.kubernetes.io/name"]}
    annotations = {"prometheus.io/scrape": "true", "prometheus.io/path": "/metrics", "prometheus.io/port": str(STATUS_PORT)}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": meta,
        "spec": {
            "replicas": 1,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "selector": {"matchLabels": selector},
            "template": {"metadata": {"labels": meta["labels"], "annotations": annotations}, "spec": pod},
        },
    }
