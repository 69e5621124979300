"""Checkers that come as programs in packages of the dev group."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
IN_CI = os.environ.get("CI", "").lower() in {"1", "true"}


def check(program: str, package: str, *arguments: str) -> None:
    """Run a checker in the repository; its findings are the failure. Skips where it is not installed."""
    found = shutil.which(program, path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
    if found is None:
        if IN_CI:
            pytest.fail(f"{program} is not installed; it comes with {package} in the dev group")
        pytest.skip(f"{program} is not installed (uv sync brings {package})")
    done = subprocess.run([found, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
