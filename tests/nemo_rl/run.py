"""Builds an environment for the tests against NeMo-RL v0.7.0 and runs them.

    git clone --depth 1 --branch v0.7.0 https://github.com/NVIDIA-NeMo/RL nemo-rl
    python tests/nemo_rl/run.py --source nemo-rl --cache ~/.cache/futari-nemo-rl

Needs uv, no GPU. The environment is kept in the cache folder (6 GB; 2 GB with ``--torch-backend cpu``) and built again
only when ``requirements.txt`` changes. What stands after ``--`` goes to pytest.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
REQUIREMENTS = HERE / "requirements.txt"


def environment(cache: Path, python: str, torch_backend: str | None) -> Path:
    """The interpreter of a virtual environment that holds the requirements. Raises CalledProcessError."""
    wanted = "\n".join((python, torch_backend or "", REQUIREMENTS.read_text(encoding="utf-8")))
    folder = cache / f"environment-{hashlib.sha256(wanted.encode()).hexdigest()[:12]}"
    interpreter = folder / "bin" / "python"
    whole = folder / "whole"  # written last: a broken build is not taken for an environment
    if not whole.exists():
        cache.mkdir(parents=True, exist_ok=True)
        install = ["uv", "pip", "install", "--python", str(interpreter), "-r", str(REQUIREMENTS)]
        build = [*install, *(["--torch-backend", torch_backend] if torch_backend else [])]
        # Not from the repository: uv would add its constraints, and hydra-core needs an older omegaconf.
        for command in (["uv", "venv", "--clear", "--python", python, str(folder)], build):
            subprocess.run(command, check=True, cwd=cache)
        whole.touch()
    return interpreter


def run_tests(interpreter: Path, source: Path, arguments: list[str]) -> int:
    variables = {
        **os.environ,
        "NEMO_RL_SOURCE": str(source),
        "PYTHONPATH": str(ROOT),
        "PYTHONDONTWRITEBYTECODE": "",  # each actor is a process that imports all of it
        "CUDA_VISIBLE_DEVICES": "",
    }
    command = [str(interpreter), "-m", "pytest", *(arguments or [str(HERE)])]
    return subprocess.run(command, cwd=ROOT, env=variables, check=False).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, required=True, help="a checkout of NeMo-RL v0.7.0")
    parser.add_argument("--cache", type=Path, required=True, help="where the environment is kept")
    parser.add_argument("--python", default="3.13", help="version or path: 3.11, 3.12 or 3.13 (default)")
    parser.add_argument(
        "--torch-backend", help="uv's option of this name, such as cpu; the registry's build if not given"
    )
    parser.add_argument("pytest", nargs="*", help="arguments of pytest, after --")
    asked = parser.parse_args()
    source = asked.source.resolve()
    if not (source / "nemo_rl" / "__init__.py").is_file():
        parser.error(f"--source {source} has no nemo_rl package: clone NeMo-RL v0.7.0 there")
    started = time.monotonic()
    interpreter = environment(asked.cache.resolve(), asked.python, asked.torch_backend)
    built = time.monotonic()
    code = run_tests(interpreter, source, asked.pytest)
    print(f"Python {asked.python}: environment {built - started:.0f} s, tests {time.monotonic() - built:.0f} s")
    return code


if __name__ == "__main__":
    sys.exit(main())
