"""The job scripts on a real Slurm of one machine, with a stand-in for the run (the real one: slurm_requeue.py)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from shell_tools import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))

from slurm_node import SlurmNode, missing

pytestmark = pytest.mark.skipif(
    bool(missing()), reason=f"no Slurm here ({', '.join(missing())}); Debian: apt-get install slurm-wlm munge"
)
SECONDS = 120.0  # on a busy machine; a few on an idle one
# Stands for Python: each attempt at the run counts itself, and only the third one ends.
PYTHON = """\
#!/usr/bin/env bash
case $1 in
  slurm/recipe.py) echo local 1 1 ;;
  *) echo "attempt" >>"$PLAY/attempts"; [[ $(wc -l <"$PLAY/attempts") -ge ${LAST:-3} ]] || sleep 60 ;;
esac
"""


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmNode]:
    with SlurmNode(tmp_path_factory.mktemp("slurm")) as node:
        yield node


def submit(slurm: SlurmNode, folder: Path, *arguments: str, **environment: str) -> str:
    python = folder / "python"
    python.write_text(PYTHON, encoding="utf-8")
    python.chmod(0o755)
    return slurm.submit(
        f"--output={folder / 'log'}", str(ROOT / "slurm" / "selfplay.sbatch"), "--config", "any.yaml", *arguments,
        PLAY=str(folder), FUTARI_PYTHON=str(python), FUTARI_ROOT=str(ROOT), FUTARI_LOG_DIR=str(folder), **environment,
    )  # fmt: skip


def attempts(folder: Path) -> int:
    path = folder / "attempts"
    return path.read_text().count("attempt") if path.exists() else 0


def test_preempted_and_warned_it_comes_back_and_ends(slurm: SlurmNode, tmp_path: Path) -> None:
    job = submit(slurm, tmp_path)
    slurm.wait(job, lambda _: attempts(tmp_path) == 1, seconds=SECONDS)
    urgent = slurm.submit("--partition=urgent", "--exclusive", "--output=/dev/null", "--wrap=true")
    slurm.wait(job, lambda now: now["Restarts"] == "1", seconds=SECONDS)
    slurm.wait(urgent, lambda now: now["JobState"] == "COMPLETED", seconds=SECONDS)
    slurm.release(job)
    slurm.wait(job, lambda _: attempts(tmp_path) == 2, seconds=SECONDS)
    slurm.call("scancel", "--batch", "--signal=USR1", job)
    slurm.wait(job, lambda now: now["Restarts"] == "2", seconds=SECONDS)
    slurm.release(job)
    ended = slurm.wait(job, lambda now: now["JobState"] == "COMPLETED", seconds=SECONDS)
    assert (ended["Restarts"], ended["ExitCode"]) == ("2", "0:0")
    log = (tmp_path / "log").read_text(encoding="utf-8")
    assert [f"attempt {number} on" in log for number in (1, 2, 3, 4)] == [True, True, True, False]
    assert "USR1 while running: back to the queue" in log


def test_cancelled_by_its_user_it_does_not_come_back(slurm: SlurmNode, tmp_path: Path) -> None:
    job = submit(slurm, tmp_path)
    slurm.wait(job, lambda _: attempts(tmp_path) == 1, seconds=SECONDS)
    slurm.call("scancel", job)
    ended = slurm.wait(job, lambda now: "CANCELLED" in now["JobState"], seconds=SECONDS)
    assert ended["Restarts"] == "0"
    # A next job gets the node, so the first has left it for good.
    after = submit(slurm, tmp_path, LAST="2")
    slurm.wait(after, lambda now: now["JobState"] == "COMPLETED", seconds=SECONDS)
    assert slurm.job(job)["Restarts"] == "0"
