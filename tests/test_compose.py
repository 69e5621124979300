"""compose.yaml: what the specification and Compose itself say of it, and what must hold for private mail."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "compose.yaml"
START = ROOT / "docker" / "opensearch" / "start.sh"
TEXT = FILE.read_text(encoding="utf-8")
SERVICES = cast(dict[str, dict[str, object]], yaml.safe_load(TEXT)["services"])
TRAINER = "trainer"
SERVED = {name: service for name, service in SERVICES.items() if name != TRAINER}
PROFILES = ("--profile", "local", "--profile", "dashboards", "--profile", TRAINER)
IN_CI = os.environ.get("CI", "").lower() in {"1", "true"}
# As in the image's own file: one user a top-level key.
USERS = """\
---
# This is the internal user database
_meta:
  type: "internalusers"
  config_version: 2

## Demo users
admin:
  hash: "$2a$12$ofadmin"
  reserved: true
  backend_roles:
  - "admin"

kibanaserver:
  hash: "$2a$12$public"
  reserved: true
  description: "Demo OpenSearch Dashboards user"

readall:
  hash: "$2a$12$ofreadall"
  reserved: false
  backend_roles:
  - "readall"
new-user:
  hash: "$2a$12$ofnew"
"""


def compose(*arguments: str, **environment: str) -> str:
    tool = shutil.which("docker-compose")
    if tool is None:
        if IN_CI:
            pytest.fail("docker-compose is not installed; .ci/run installs it")
        pytest.skip("docker-compose is not installed")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("OPENSEARCH_", "COMPOSE_"))}
    command = [tool, "-f", str(FILE), *arguments]
    done = subprocess.run(command, env=clean | environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_file_follows_the_compose_specification() -> None:
    if importlib.util.find_spec("check_jsonschema") is None:
        pytest.skip("check-jsonschema, which brings the specification's schema, is not installed")
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(FILE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_compose_accepts_it_and_fills_in_the_environment() -> None:
    filled = compose(*PROFILES, "config", OPENSEARCH_INITIAL_ADMIN_PASSWORD="Xq-7 secret", OPENSEARCH_HEAP="3g")
    services = yaml.safe_load(filled)["services"]
    assert set(services) == set(SERVICES)
    assert services["opensearch"]["environment"]["OPENSEARCH_INITIAL_ADMIN_PASSWORD"] == "Xq-7 secret"
    assert services["opensearch"]["environment"]["OPENSEARCH_JAVA_OPTS"] == "-Xms3g -Xmx3g"
    assert "OPENSEARCH_INITIAL_ADMIN_PASSWORD" not in services["opensearch-local"]["environment"]


@pytest.mark.parametrize("name", sorted(SERVED))
def test_every_service_is_pinned_checked_and_on_the_loopback_only(name: str) -> None:
    service = SERVICES[name]
    assert re.fullmatch(r"opensearchproject/[a-z-]+:\d+\.\d+\.\d+", str(service["image"]))
    ports = cast(list[str], service["ports"])
    assert ports
    assert all(re.fullmatch(r"127\.0\.0\.1:\$\{\w+:-\d+\}:\d+", port) for port in ports)
    assert {"test", "interval", "timeout", "retries"} <= set(cast(dict[str, object], service["healthcheck"]))
    assert service.get("network_mode") != "host"


def test_the_version_is_that_of_the_node_without_docker() -> None:
    source = (ROOT / "docker" / "opensearch-jvm" / "distribution.py").read_text(encoding="utf-8")
    found = re.search(r'^VERSION = "([\d.]+)"$', source, re.MULTILINE)
    assert found is not None
    assert {str(service["image"]).rpartition(":")[2] for service in SERVED.values()} == {found.group(1)}


def test_only_the_local_profile_is_without_security() -> None:
    for name, service in SERVICES.items():
        text = yaml.safe_dump(service)
        assert ("DISABLE_SECURITY" in text or "plugins.security" in text) == (name == "opensearch-local")
    assert SERVICES["opensearch-local"]["profiles"] == ["local"]
    assert SERVICES["dashboards"]["profiles"] == ["dashboards"]
    assert "profiles" not in SERVICES["opensearch"]
    volumes = [
        {str(volume).partition(":")[0] for volume in cast(list[str], SERVICES[name]["volumes"])}
        for name in ("opensearch", "opensearch-local")
    ]
    assert not volumes[0] & volumes[1]


def test_the_trainer_has_the_gpus_the_node_and_the_runs(tmp_path: Path) -> None:
    secret = {"OPENSEARCH_INITIAL_ADMIN_PASSWORD": "Xq-7 secret", "FUTARI_RUNS": str(tmp_path)}
    trainer = yaml.safe_load(compose(*PROFILES, "config", **secret))["services"][TRAINER]
    (device,) = trainer["deploy"]["resources"]["reservations"]["devices"]
    assert (device["driver"], device["capabilities"]) == ("nvidia", ["gpu"])
    assert device["count"] in {"all", -1}  # as this or that version of Compose writes it
    assert trainer["profiles"] == [TRAINER]
    assert trainer["depends_on"]["opensearch"]["condition"] == "service_healthy"
    # No port of its own: it lives on the node's loopback, where the node's certificate holds.
    assert trainer["network_mode"] == "service:opensearch"
    assert "ports" not in trainer
    assert trainer["environment"]["FUTARI_OPENSEARCH_PASSWORD"] == "Xq-7 secret"
    (secret_file,) = trainer["secrets"]
    assert trainer["environment"]["FUTARI_OPENSEARCH_CA"] == f"/run/secrets/{secret_file['source']}"
    volumes = cast(list[str], SERVICES[TRAINER]["volumes"])
    assert volumes == ["${FUTARI_RUNS:-./runs}:/opt/futari/runs:z", "${FUTARI_MAIL:-./mail}:/opt/futari/mail:ro,z"]
    assert str(tmp_path) in yaml.safe_dump(trainer["volumes"])
    assert (ROOT / trainer["build"]["dockerfile"]).is_file()


def test_no_password_is_written_down() -> None:
    for service in SERVICES.values():
        for name, value in cast(dict[str, str], service["environment"]).items():
            if re.search("PASSWORD|SECRET|TOKEN|_KEY", name):
                assert re.fullmatch(r"\$\{\w+:-\}", value)
    assert not re.search(r"(curl[^\n]*\s-u\s|://[^/\s\"']*:[^/\s\"']*@)", TEXT)


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """A folder laid out as in the image, with an entry point that says that it was reached."""
    tools = tmp_path / "plugins" / "opensearch-security" / "tools"
    config = tmp_path / "config" / "opensearch-security"
    tools.mkdir(parents=True)
    config.mkdir(parents=True)
    (config / "internal_users.yml").write_text(USERS, encoding="utf-8")
    (tools / "hash.sh").write_text('echo "** a notice **"\n[ "$1" = -env ] && echo "\\$2y\\$12\\$made-of-${!2}"\n')
    entry = tmp_path / "opensearch-docker-entrypoint.sh"
    entry.write_text('#!/bin/sh\necho "started $1"\n')
    entry.chmod(0o755)
    return tmp_path


def start(image: Path, password: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "OPENSEARCH_HOME": str(image)}
    environment["OPENSEARCH_INITIAL_ADMIN_PASSWORD"] = password
    return subprocess.run(["bash", str(START)], env=environment, capture_output=True, text=True, check=False)


def users(image: Path) -> dict[str, dict[str, object]]:
    return yaml.safe_load((image / "config" / "opensearch-security" / "internal_users.yml").read_text(encoding="utf-8"))


def test_the_demo_users_are_gone_before_the_node_starts(image: Path) -> None:
    for _ in range(2):  # a container may be started again
        done = start(image, "secret")
        assert done.returncode == 0, done.stderr
        assert done.stdout == "started opensearch\n"
        assert set(users(image)) == {"_meta", "admin", "kibanaserver"}
        assert users(image)["admin"] == yaml.safe_load(USERS)["admin"]  # the image's set-up puts the password there
        assert users(image)["kibanaserver"]["hash"] == "$2y$12$made-of-secret"


def test_without_a_hash_the_user_of_dashboards_goes_too(image: Path) -> None:
    (image / "plugins" / "opensearch-security" / "tools" / "hash.sh").write_text("echo broken; exit 1\n")
    assert start(image, "secret").returncode == 0
    assert set(users(image)) == {"_meta", "admin"}


def test_without_a_password_the_node_does_not_start(image: Path) -> None:
    done = start(image, "")
    assert done.returncode == 1
    assert "OPENSEARCH_INITIAL_ADMIN_PASSWORD is empty" in done.stderr
    assert "started" not in done.stdout
