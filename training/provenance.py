"""What a report needs to say about how a run was started."""

from __future__ import annotations

import platform
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_PACKAGES = ("futari", "torch", "transformers", "tantivy", "numpy")


def describe_start() -> dict[str, object]:
    """Command line, commit (empty without git), whether the tree had changes, versions, and the time."""
    # An installed copy may lie in somebody else's repository, whose commit says nothing about this code.
    tracked = _git("ls-files", "--error-unmatch", Path(__file__).name)
    commit = _git("rev-parse", "HEAD") if tracked else ""
    return {
        "time": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "command": shlex.join([Path(sys.executable).name, *sys.argv]),
        "commit": commit,
        "uncommitted_changes": bool(commit) and bool(_git("status", "--porcelain", "--untracked-files=no")),
        "python": platform.python_version(),
        "versions": {name: found for name in _PACKAGES if (found := _version(name))},
    }


def _git(*arguments: str) -> str:
    """Output of git in the folder of this code; empty where there is no git or no repository."""
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=Path(__file__).parent, capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
