"""kubernetes/: what Kubernetes' schemas say, KubeRay's where its CRD is at hand, and what must agree in a manifest."""

from __future__ import annotations

import copy
import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from training.config_load import load_config

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "kubernetes" / "selfplay.yaml"
MANIFESTS = list(yaml.safe_load_all(FILE.read_text(encoding="utf-8")))
(JOB,) = (each for each in MANIFESTS if each["kind"] == "RayJob")
CLUSTER = JOB["spec"]["rayClusterSpec"]
CRD = os.environ.get("KUBERAY_CRD")
VERSION = "1.37.0"


def groups() -> Iterator[tuple[str, dict[str, Any]]]:
    yield "head", CLUSTER["headGroupSpec"]
    for group in CLUSTER["workerGroupSpecs"]:
        yield group["groupName"], group


def core_resources() -> Iterator[dict[str, Any]]:
    """What Kubernetes itself has a schema for: its own kinds, and the pods that a RayJob asks for."""
    yield from (each for each in MANIFESTS if not each["apiVersion"].startswith("ray.io/"))
    for name, group in groups():
        yield {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": name}, "template": group["template"]}


def validate(resource: dict[str, Any]) -> None:
    checker = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed (uv sync)")
    checker.validate(resource, VERSION, strict=True)


@pytest.mark.parametrize("resource", core_resources(), ids=lambda resource: resource["metadata"]["name"])
def test_kubernetes_accepts_it(resource: dict[str, Any]) -> None:
    validate(resource)


def test_the_schema_is_strict() -> None:
    checker = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed (uv sync)")
    broken = copy.deepcopy(list(core_resources())[-1])
    broken["template"]["spec"]["containers"][0]["volumeMount"] = []
    with pytest.raises(checker.ValidationError, match="volumeMount"):
        validate(broken)


def closed(schema: Any) -> Any:
    """A CRD's schema, but a field that it does not know is an error: the API server would drop it without a word."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: closed(value) for key, value in schema.items()}
    open_ended = made.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in made
    return made if "properties" not in made or open_ended else made | {"additionalProperties": False}


@pytest.mark.skipif(CRD is None, reason="KUBERAY_CRD names no file (KubeRay's config/crd/bases/ray.io_rayjobs.yaml)")
def test_kuberay_accepts_it() -> None:
    checker = pytest.importorskip("jsonschema")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # 25,000 lines
    crd = yaml.load(Path(str(CRD)).read_text(encoding="utf-8"), loader)
    (schema,) = (each["schema"]["openAPIV3Schema"] for each in crd["spec"]["versions"] if each["name"] == "v1")
    spec = checker.Draft202012Validator(closed(schema["properties"]["spec"]))
    assert [error.message for error in spec.iter_errors(JOB["spec"])] == []
    assert list(spec.iter_errors(JOB["spec"] | {"entryPoint": "x"})) != []


def test_gpus_are_asked_for_once_and_the_same() -> None:
    for name, group in groups():
        (container,) = group["template"]["spec"]["containers"]
        limits, requests = container["resources"]["limits"], container["resources"]["requests"]
        assert group["rayStartParams"]["num-gpus"] == limits.get("nvidia.com/gpu", "0")
        assert requests.get("nvidia.com/gpu") == limits.get("nvidia.com/gpu")
        assert ("nvidia.com/gpu" in limits) == (name != "head")
        if name != "head":
            assert group["replicas"] == group["minReplicas"] == group["maxReplicas"]


def test_every_pod_has_the_runs_the_credentials_and_shared_memory() -> None:
    claims = {each["metadata"]["name"] for each in MANIFESTS if each["kind"] == "PersistentVolumeClaim"}
    images = set[str]()
    for _, group in groups():
        spec = group["template"]["spec"]
        (container,) = spec["containers"]
        images.add(container["image"])
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        mounts = {mount["mountPath"]: volumes[mount["name"]] for mount in container["volumeMounts"]}
        assert mounts["/opt/futari/runs"]["persistentVolumeClaim"]["claimName"] in claims
        assert mounts["/dev/shm"]["emptyDir"]["medium"] == "Memory"
        values = {each["name"]: each for each in container["env"]}
        for name in ("FUTARI_OPENSEARCH_USER", "FUTARI_OPENSEARCH_PASSWORD", "WANDB_API_KEY", "HF_TOKEN"):
            assert "value" not in values[name]  # from a Secret, not written down
            assert "secretKeyRef" in values[name]["valueFrom"]
        ca = Path(values["FUTARI_OPENSEARCH_CA"]["value"])
        assert ca.name in {item["path"] for item in mounts[str(ca.parent)]["secret"]["items"]}
    assert len(images) == 1


def test_the_entrypoint_runs_a_recipe_that_fits_the_workers() -> None:
    change, command = JOB["spec"]["entrypoint"].split("&&")
    assert change.split() == ["cd", "/opt/futari"]  # where the image has the repository
    assert "WORKDIR /opt/futari" in (ROOT / "docker" / "Dockerfile").read_text(encoding="utf-8")
    _, script, option, recipe, *overrides = shlex.split(command)
    assert option == "--config"
    assert (ROOT / script).is_file()
    config = load_config(ROOT / recipe, overrides)
    (workers,) = CLUSTER["workerGroupSpecs"]
    assert config.engine.name == "nemo_rl"
    assert config.cluster.num_nodes == workers["replicas"]
    assert str(config.cluster.gpus_per_node) == workers["rayStartParams"]["num-gpus"]
